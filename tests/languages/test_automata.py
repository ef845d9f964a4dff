"""Automata of statements: the true ones against Python's integers, and what comparing and extracting them finds."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipagnn.evaluation.semantics import count_wrong_runs
from ipagnn.languages.arithmetic.automata import (
    Automaton,
    claim,
    disagreement,
    extract,
    extract_pairs,
    grammar_automata,
    prove,
    true_automaton,
)
from ipagnn.languages.arithmetic.grammar import Grammar
from ipagnn.languages.arithmetic.statements import COMPARISON, MODULAR, apply, compare
from ipagnn.languages.arithmetic.tables import grammar_statements
from ipagnn.languages.arithmetic.vocabulary import ADD, ASSIGN, MULTIPLY, OPERATION_ID, SUBTRACT

ARITHMETIC = [ASSIGN, ADD, SUBTRACT, MULTIPLY]
STATEMENTS = [(operation, operand) for operation, operand in grammar_statements().tolist()]


def _truth(operation: int, operand: int, number: int, width: int, modulus: int = 10) -> int:
    if operation not in COMPARISON:
        return apply(operation, number, operand) % 10**width
    value = number % 10**width
    return int(compare(COMPARISON[operation], value % modulus if operation in MODULAR else value, operand))


@given(st.sampled_from(ARITHMETIC), st.integers(0, 2_000), st.integers(0, 10**40), st.integers(1, 50))
def test_true_arithmetic_is_that_of_integers(operation: int, operand: int, number: int, width: int) -> None:
    number %= 10**width
    assert true_automaton(operation, operand).run(number, width) == _truth(operation, operand, number, width)


@given(
    st.sampled_from(sorted(COMPARISON)),
    st.integers(0, 2_000),
    st.one_of(st.integers(0, 3_000), st.integers(0, 10**40)),
    st.integers(1, 45),
    st.sampled_from([10, 100]),
)
def test_true_conditions_are_those_of_integers(
    operation: int, operand: int, number: int, width: int, modulus: int
) -> None:
    number %= 10**width
    automaton = true_automaton(operation, operand, modulus)
    assert automaton.run(number, width) == _truth(operation, operand, number, width, modulus)


@pytest.mark.parametrize(("operation", "operand"), [*STATEMENTS, (ADD, 413), (OPERATION_ID["if <="], 413)])
def test_a_statement_agrees_with_integers_of_a_thousand_digits(operation: int, operand: int) -> None:
    generator, automaton = random.Random(operand), true_automaton(operation, operand)
    for width in (1, 2, 17, 1_000):
        number = generator.randrange(10**width)
        assert automaton.run(number, width) == _truth(operation, operand, number, width)


def test_states_of_multiplication_are_carries() -> None:
    automaton = true_automaton(MULTIPLY, 7)
    assert len(automaton) == len(automaton.minimal()) == 7
    assert len(true_automaton(ADD, 5)) == 3  # the start, no carry and a carry
    assert automaton.gives[0].tolist() == [0, 7, 4, 1, 8, 5, 2, 9, 6, 3]


@pytest.mark.parametrize(("operation", "operand"), [*STATEMENTS, (ADD, 413), (OPERATION_ID["if >"], 413)])
def test_minimal_automata_are_the_same_function(operation: int, operand: int) -> None:
    automaton = true_automaton(operation, operand)
    minimal = automaton.minimal()
    assert len(minimal) <= len(automaton)
    assert len(minimal.minimal()) == len(minimal)
    assert disagreement(minimal, automaton) is None
    assert disagreement(automaton, minimal) is None


def _carries(operation: int, operand: int):  # a transducer built by hand: its state is the carry, or pending operand
    def cell(state: int, operand_digit: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        digits = np.arange(10)
        if operation == MULTIPLY:
            total = digits * operand + state
        else:
            total = digits + (operand_digit + state) * (1 if operation == ADD else -1)
        return total % 10, abs(total // 10), np.zeros(10, bool)

    return cell


@pytest.mark.parametrize("operation", [ADD, SUBTRACT, MULTIPLY])
@pytest.mark.parametrize("operand", [1, 7, 9, 10, 413])
def test_extraction_finds_the_automaton_of_a_transducer_built_by_hand(operation: int, operand: int) -> None:
    found = extract(operation, operand, _carries(operation, operand))
    assert disagreement(found, true_automaton(operation, operand)) is None


def test_extraction_of_a_condition_that_stops() -> None:
    def cell(state: int, operand_digit: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return np.arange(10) > 0, np.zeros(10, int), np.arange(10) > 0  # reads on while digits are 0

    found = extract(OPERATION_ID["while >"], 0, cell)
    assert disagreement(found, true_automaton(OPERATION_ID["while >"], 0)) is None
    assert found.run(3_000) == 1
    assert found.run(0, 30) == 0
    assert len(found.minimal()) == 1


def _broken(automaton: Automaton, state: int, digit: int) -> Automaton:
    gives = automaton.gives.copy()
    gives[state, digit] = 1 - gives[state, digit] if automaton.decides else (gives[state, digit] + 1) % 10
    return replace(automaton, gives=gives)


@pytest.mark.parametrize(("operation", "operand"), STATEMENTS)
def test_a_planted_fault_is_found_at_the_smallest_number(operation: int, operand: int) -> None:
    true = true_automaton(operation, operand)
    generator = random.Random(operand)
    for _ in range(3):
        broken = _broken(true, generator.randrange(len(true)), generator.randrange(10))
        found = disagreement(broken, true)
        wrong = [(n, w) for n in range(1_000) for w in range(len(str(n)), 6) if broken.run(n, w) != true.run(n, w)]
        assert found is not None
        assert (found.number, found.width) == min(wrong)
        assert (found.learned, found.true) == (
            broken.run(found.number, found.width),
            true.run(found.number, found.width),
        )


def test_a_fault_that_only_long_numbers_show() -> None:
    true = true_automaton(ADD, 2)  # states: the start, no carry, a carry
    depth = 12
    gives = np.concatenate([true.gives[:2]] + [true.gives[2:]] * depth)
    goes = np.concatenate([true.goes[:2]] + [np.where(true.goes[2:] == 2, 3 + i, 1) for i in range(depth)])
    goes[-1] = np.where(goes[-1] == 2 + depth, 1, goes[-1])  # the last of twelve carries in a row is lost
    broken = replace(true, gives=gives, goes=goes.astype(np.int32), stops=np.zeros(gives.shape, bool))
    found = disagreement(broken, true)
    assert found is not None
    assert found.number == 10 ** (depth + 1) - 2
    assert (found.width, found.learned, found.true) == (depth + 2, 0, 10 ** (depth + 1))
    assert broken.run(found.number - 1, 20) == true.run(found.number - 1, 20)


def test_a_condition_that_stops_too_early_is_found() -> None:
    operation = OPERATION_ID["while >"]
    true = true_automaton(operation, 0)
    stops = true.stops.copy()
    stops[0, 0] = True  # `v1 > 0` decided after one zero
    found = disagreement(replace(true, stops=stops), true)
    assert found is not None
    assert (found.number, found.width, found.learned, found.true) == (10, 2, 0, 1)
    assert str(found) == "while v1 > 0 at 10, 2 digits: learned 0, true 1"
    early = prove([replace(true, stops=stops)])
    assert early[0].holds  # loops count no further than 9
    assert claim(early).startswith("0 of 1 statements are equal")
    assert "any size, `while v1 > 0` for 0 to 9, all that loops count: over these automata, every program" in claim(
        early
    )
    assert count_wrong_runs(early) == (0, 10)  # each of these numbers, with leading zeros
    few = prove([replace(true, stops=stops)], Grammar(loop_counts=(1, 12), modulus=100))
    assert "1 is wrong on numbers that programs of this language hold there, first while v1 > 0 at 10" in claim(few)


def test_text_and_drawing() -> None:
    text = str(true_automaton(ADD, 9))
    assert text.splitlines()[0] == "v0 += 9"
    assert text.splitlines()[2].split() == ["0", "9/1", *(f"{d}/2" for d in range(9))]
    drawn = true_automaton(OPERATION_ID["if < %"], 4).dot()
    assert drawn.startswith('digraph "if v0 % 10 < 4" {')
    assert '0 -> true [label="0 1 2 3"];' in drawn


def test_proofs_of_the_grammar() -> None:
    true = [true_automaton(operation, operand) for operation, operand in STATEMENTS]
    assert claim(prove(true)) == (
        "68 of 68 statements are equal to the true ones for numbers of any size: over these automata, every program of "
        "this language is executed correctly."
    )
    proofs = prove([*true[1:], _broken(true[0], 1, 4)])
    assert [proof.holds for proof in proofs] == [True] * 67 + [False]
    assert claim(proofs).startswith("67 of 68 statements are equal")
    assert "1 is wrong on numbers that programs of this language hold there, first v0 += 1 at 4" in claim(proofs)


EXTENDED = Grammar(modulus=10**6, variables=4, digit_variables=1, operand_variable=1, condition_variable=1, wrap=True)
PAIRED = [(o, k) for o, k in grammar_automata(EXTENDED) if k is None]


@given(
    st.sampled_from(PAIRED),
    st.one_of(st.integers(0, 300), st.integers(0, 10**40)),
    st.one_of(st.integers(0, 300), st.integers(0, 10**40)),
    st.integers(1, 45),
)
def test_true_automata_of_pairs_are_integers(statement: tuple[int, None], x: int, y: int, width: int) -> None:
    operation = statement[0]
    x, y = x % 10**width, y % (10 if operation == MULTIPLY else 10**width)
    expected = _truth(operation, y, x, width)
    assert true_automaton(operation, None).run(x, width, y) == expected
    assert true_automaton(operation, None).minimal().run(x, width, y) == expected
    assert true_automaton(operation, None).with_digit_operand().minimal().run(x, width, y % 10) == _truth(
        operation, y % 10, x, width
    )


def test_statements_of_a_language_with_variable_operands() -> None:
    assert [len(true_automaton(*statement).minimal()) for statement in PAIRED] == [1, 2, 2, 47, 2, 2, 2, 2]
    assert len(grammar_automata(EXTENDED)) == len(PAIRED) + 40 + 1
    assert grammar_automata()[1_000:] == STATEMENTS
    with pytest.raises(ValueError, match="give the number"):
        true_automaton(OPERATION_ID["if < %"], None)


def _pair_transducer(operation: int):  # built by hand: its state is the carry, or for conditions what was unequal last
    def cell(state: int, lowest: int | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        d, u = np.arange(100) % 10, np.arange(100) // 10
        never = np.zeros(100, bool)
        if operation in COMPARISON:
            order = np.where(d == u, state, np.where(d > u, 1, 2))
            return np.array([compare(COMPARISON[operation], (0, 1, -1)[o], 0) for o in order]), order, never
        total = {
            ASSIGN: u + 0 * d,
            ADD: d + u + state,
            SUBTRACT: d - u - state,
            MULTIPLY: d * (u if lowest is None else lowest) + state,
        }[operation]
        return total % 10, abs(total // 10), never

    return cell


@pytest.mark.parametrize(("operation", "_"), PAIRED)
def test_extraction_finds_the_automaton_of_a_pair_transducer(operation: int, _: None) -> None:
    found = extract_pairs(operation, _pair_transducer(operation)).minimal()
    true = true_automaton(operation, None)
    proof = prove([found], EXTENDED)[0]
    assert proof.disagreement is None
    assert proof.largest is None
    generator = random.Random(operation)
    for _ in range(20):
        x, y = generator.randrange(10**30), generator.randrange(10 if operation == MULTIPLY else 10**30)
        assert found.run(x, 30, y) == true.run(x, 30, y)


@pytest.mark.parametrize(("operation", "_"), PAIRED)
def test_a_planted_fault_is_found_at_the_smallest_pair(operation: int, _: None) -> None:
    true = true_automaton(operation, None)
    generator = random.Random(operation)

    def order(x: int, y: int, width: int) -> tuple[list[tuple[int, int]], int]:
        return [(y // 10**i % 10, x // 10**i % 10) for i in (2, 1, 0)], width

    for _ in range(3):
        state = generator.randrange(min(3, len(true)))
        reached = 10 if operation == MULTIPLY and state else 100  # factors have one digit
        broken = _broken(true, state, generator.randrange(reached))
        proof = prove([broken], EXTENDED)[0]
        found = proof.disagreement
        operands = range(10 if operation == MULTIPLY else 100)
        wrong = [
            order(x, y, w)
            for x in range(100)
            for y in operands
            for w in (1, 2, 3)
            if max(x, y) < 10**w and broken.run(x, w, y) != true.run(x, w, y)
        ]
        assert found is not None
        assert not proof.holds
        assert found.operand is not None
        assert order(found.number, found.operand, found.width) == min(wrong)
        assert f" and {found.operand}, " in str(found)


def test_text_of_pairs() -> None:
    lines = str(true_automaton(ADD, None)).splitlines()
    assert lines[0] == "v0 += v1"
    assert lines[1].split() == ["state,", "operand", *map(str, range(10))]
    assert lines[2 + 9].split() == ["0,", "9", "9/0", *(f"{d}/1" for d in range(9))]
    assert '0 -> 0 [label="0,0/0 1,0/1' in true_automaton(ADD, None).dot()


def test_bad_input() -> None:
    automaton = true_automaton(ADD, 1)
    with pytest.raises(ValueError, match="numbers from 0 on"):
        automaton.run(-1)
    with pytest.raises(ValueError, match="numbers from 0 on"):
        automaton.run(1, 0)
    with pytest.raises(ValueError, match="at least one state"):
        replace(automaton, gives=automaton.gives[:1])
    with pytest.raises(ValueError, match="goes names states"):
        replace(automaton, goes=automaton.goes + 5)
    with pytest.raises(ValueError, match="power of ten"):
        true_automaton(OPERATION_ID["if < %"], 4, 12)
    with pytest.raises(ValueError, match="neither arithmetic nor a condition"):
        true_automaton(OPERATION_ID["pass"], 4)
    with pytest.raises(ValueError, match="fewer digits"):
        true_automaton(MULTIPLY, 10**7)
