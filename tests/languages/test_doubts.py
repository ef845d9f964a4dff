"""What is not proved of programs over automata: nothing is left out that makes an answer wrong."""

import random
from dataclasses import replace
from functools import lru_cache
from itertools import product

import numpy as np
import pytest

from ipagnn.languages.arithmetic import Grammar, Program, ProgramTable, execute, parse
from ipagnn.languages.arithmetic.automata import Automaton, Statement, disagreement_at, true_automaton
from ipagnn.languages.arithmetic.automata.comparison import MAX_COMPARED
from ipagnn.languages.arithmetic.automata.doubts import UNKNOWN, Found, bounds_of, doubts
from ipagnn.languages.arithmetic.automata.run import run_automata, statements_of
from ipagnn.languages.arithmetic.statements import MODULAR
from ipagnn.languages.arithmetic.vocabulary import ADD, ASSIGN, MULTIPLY, OPERATION_ID, SUBTRACT

EXTENDED = Grammar(
    modulus=1_000, variables=3, operands=(0, 99_999), operand_variable=1, condition_variable=1, stmt_assign=1, wrap=True
)
IF_LESS, WHILE = OPERATION_ID["if <"], OPERATION_ID["while >"]
truth = lru_cache(maxsize=None)(true_automaton)


def planted(statement: Statement, generator: random.Random, changes: int) -> Automaton:
    """The true automaton with some entries changed."""
    true = truth(*statement)
    gives, goes = true.gives.copy(), true.goes.copy()
    for _ in range(changes):
        at = generator.randrange(len(true)), generator.randrange(true.symbols)
        gives[at] = generator.randrange(2 if true.decides else 10)
        goes[at] = generator.randrange(len(true))
    return Automaton(*statement, gives, goes, true.stops)


@pytest.mark.parametrize("operation", [ASSIGN, ADD, SUBTRACT, MULTIPLY, IF_LESS, OPERATION_ID["if >= %"]])
@pytest.mark.parametrize("operand", [None, 7, 12])
@pytest.mark.parametrize("places", [1, 2])
def test_the_smallest_number_of_a_width_is_found(operation: int, operand: int | None, places: int) -> None:
    if operand is None and operation in MODULAR:
        pytest.skip("conditions on a remainder compare it with a number")
    generator = random.Random(operation)
    for changes in (0, 1, 1, 2, 3):
        learned, true = planted((operation, operand), generator, changes), true_automaton(operation, operand)
        numbers = range(10**places)
        beside: list[int] = [*range(10 if operation == MULTIPLY else 10**places)] if operand is None else [0]

        def differ(number: int, other: int, learned: Automaton = learned, true: Automaton = true) -> bool:
            return learned.run(number, places, other) != true.run(number, places, other)

        def order(pair: tuple[int, int]) -> list[tuple[str, str]]:
            return list(zip(str(pair[1]).zfill(places), str(pair[0]).zfill(places), strict=True))

        wrong = sorted((pair for pair in product(numbers, beside) if differ(*pair)), key=order)
        found = disagreement_at(learned, true, places)
        assert (found and (found.number, found.operand or 0)) == (wrong[0] if wrong else None)
        if found:
            assert found.learned == learned.run(found.number, places, found.operand or 0)
        if operand is None:
            for other in (0, 3, 8):
                [*first] = [number for number in numbers if differ(number, other)][:1]
                found = disagreement_at(learned, true, places, operand=other)
                assert [found.number] * bool(found) == first if found else not first
            if operation != MULTIPLY:
                [*first] = [number for number in numbers if differ(number, number)][:1]
                found = disagreement_at(learned, true, places, same=True)
                assert (found.number if found else None) == (first[0] if first else None)


def test_a_difference_beyond_the_digits_is_none() -> None:
    learned, true = true_automaton(IF_LESS, 7), true_automaton(IF_LESS, 1_007)
    assert disagreement_at(true_automaton(IF_LESS, 1_000), true, 2) is None
    found = disagreement_at(learned, true, 2)
    assert found is not None
    assert (found.number, found.width) == (7, 2)
    assert str(disagreement_at(learned, true, 18)) == "if v0 < 7 at 7, 18 digits: learned 0, true 1"


def test_too_much_to_compare_is_refused() -> None:
    states = MAX_COMPARED // 100
    goes = np.minimum(np.arange(states)[:, None] + np.random.default_rng(0).integers(1, 99, (states, 10)), states - 1)
    learned = Automaton(ADD, 1, goes % 10, goes.astype(np.int32), np.zeros(goes.shape, np.bool_))
    with pytest.raises(ValueError, match="too many states"):
        disagreement_at(learned, learned, 400)


class Learned:
    """Automata of which some are wrong, and what comparing them finds."""

    def __init__(self, generator: random.Random, grammar: Grammar, faulty: float) -> None:
        self.generator, self.grammar, self.faulty = generator, grammar, faulty
        self.places = len(str(grammar.modulus)) - 1
        self.automata: dict[Statement, Automaton] = {}

    def run(self, program: Program) -> int:
        table = ProgramTable.from_programs([program])
        for statement in statements_of(table):
            changes = int(self.generator.random() < self.faulty)
            self.automata.setdefault(statement, planted(statement, self.generator, changes))
        return int(run_automata(self.automata, table, self.places, max_steps=5_000).value[0])

    def compare(self, statement: Statement, operand: int | None, same: bool) -> Found:
        true = truth(*statement)
        return disagreement_at(self.automata[statement], true, self.places, operand=operand, same=same)


def random_source(generator: random.Random, extended: bool) -> str:
    """A program with statements of all kinds, most of them outside of the grammars."""
    names, modulo = ["v0", "v1", "v2"], generator.choice(["", " % 10"])
    numbers = [0, 1, 3, 9, 10, 12, 99, 500, 998, 999, *([1_000, 1_234, 54_321] if extended else [])]

    def right() -> str:
        return generator.choice([*names, str(generator.choice(numbers))] if extended else [*map(str, numbers)])

    lines = [f"{name} = {generator.choice(numbers)}" for name in names]
    if generator.random() < 0.7:
        count = generator.choice([2, 9, 12])
        lines += [f"v3 = {count}", "while v3 > 0:", "  v3 -= 1"]
        lines += [f"  {generator.choice(names)} {generator.choice(['+=', '-='])} {right()}"]
    for _ in range(generator.randrange(1, 5)):
        name = generator.choice(names)
        kind = generator.randrange(4)
        if kind == 0:
            comparison = generator.choice([">", "<", ">=", "<="])
            lines += [f"if {name}{modulo} {comparison} {generator.choice(numbers[:6]) if modulo else right()}:"]
            lines += [f"  {generator.choice(names)} += {right()}"]
        elif kind == 1:
            factors = [*names, "v3", "9", "12"] if extended and "v3 = " in "\n".join(lines) else ["9", "12"]
            lines += [f"{name} *= {generator.choice(factors)}"]
        else:
            lines += [f"{name} {generator.choice(['=', '+=', '-='])} {right()}"]
    return "\n".join(lines)


@pytest.mark.parametrize("extended", [False, True])
@pytest.mark.parametrize("digits", [1, 2, 3])
def test_without_a_doubt_the_answer_is_right(extended: bool, digits: int) -> None:
    generator = random.Random(digits)
    grammar = replace(EXTENDED if extended else Grammar(), modulus=10**digits)
    sure = wrong = 0
    for _ in range(150):
        learned = Learned(generator, grammar, generator.choice([0, 0, 0.3]))
        program = parse(random_source(generator, extended), grammar=grammar)
        value = learned.run(program)
        true = execute(program, 10**digits, wrap=grammar.wrap).value
        if doubts(program, grammar, learned.compare):
            wrong += value != true
        else:
            sure += 1
            assert value == true, program
    assert sure > 20
    assert wrong > 0


def counted(count: int) -> str:
    return f"v0 = 5\nv1 = {count}\nwhile v1 > 0:\n  v1 -= 1\n  v0 += 1"


def test_what_is_said_of_what_is_not_proved() -> None:
    wrong = disagreement_at(true_automaton(WHILE, 9), true_automaton(WHILE, 0), 3)
    assert wrong is not None
    assert wrong.number == 1

    def said(source: str, fault: dict[int, Found], grammar: Grammar = EXTENDED) -> list[str]:
        return doubts(parse(source, grammar=grammar), grammar, lambda statement, *_: fault.get(statement[0]))

    at_ten = disagreement_at(true_automaton(OPERATION_ID["if <="], 9), true_automaton(OPERATION_ID["if <="], 10), 3)
    assert at_ten is not None
    assert at_ten.number == 10
    assert said(counted(9), {WHILE: at_ten}) == []
    assert said(counted(10), {WHILE: at_ten}) == ["Line 3: `while v1 > 0` is learned wrong, first at v1 = 10."]
    assert said(counted(9).replace("v1 -= 1", "v1 += 1"), {WHILE: at_ten})
    three = "v0 = 1\nv0 += 1\n" + "v2 = 1\nv2 += 1\n" + "v0 += 1\n" * 3
    assert said(three, {ADD: at_ten}) == [
        "Line 2: `v0 += 1` is learned wrong, first at v0 = 10; lines 4, 5, 6 and 1 more are alike."
    ]
    assert said("v0 = 1\nv1 = 12\nv0 *= v1", {}) == [
        "Line 3: `v0 *= v1` is proved for a v1 of one digit only, and v1 may have more."
    ]
    assert said("v0 = 1\nv1 = 9\nv0 *= v1", {}) == []
    assert said("v0 = 1\nif v0 < 1234:\n  v0 += 1", {}) == [
        "Line 2: `if v0 < 1234` compares with a number of more than the 3 digits that variables have here."
    ]
    assert said("v0 = 1\nv0 += 5\nif v0 < 12:\n  v0 += 1", {}, Grammar()) == [
        "Line 3: `if v0 < 12` is proved for a v0 of 0 to 999 only, and v0 may be beyond."
    ]
    assert said("v0 = 1\nv0 += 5", {ADD: UNKNOWN}) == [
        "Line 2: `v0 += 5` is not proved; what was learned of it could not be compared with what is true."
    ]
    assert said("v0 = 1\n_\n_", {ADD: at_ten}, Grammar(operands=(7, 7))) == [
        "Line 2: the masked line may be `v0 += 7`, which is learned wrong, first at v0 = 10."
    ]


def test_bounds_are_those_of_counters() -> None:
    assert bounds_of(parse(counted(9))) == {1: 9}
    assert bounds_of(parse("v1 = 3\nv1 = 7\nv0 = 999")) == {0: 999, 1: 7}
    assert bounds_of(parse("v0 = 1\nv1 = 3\nwhile v1 > 0:\n  v0 += 1\n  v1 -= 1")) == {}
    assert bounds_of(parse("v0 = 1\n_")) == {}
    assert bounds_of(parse("v0 = 1\nv1 = 3\nwhile v1 >= 0:\n  v1 -= 1")) == {0: 1}
