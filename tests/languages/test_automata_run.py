"""Programs over automata: the true ones give what the exact interpreter gives, with any number of digits."""

from dataclasses import replace

import numpy as np
import pytest

from ipagnn.languages.arithmetic import Lengths, ProgramTable, Sampler, parse
from ipagnn.languages.arithmetic.automata import Statement, grammar_automata, true_automaton
from ipagnn.languages.arithmetic.automata.run import GIVEN_UP, run_automata, statements_of, walk_automata
from ipagnn.languages.arithmetic.interpreter import execute
from ipagnn.languages.arithmetic.table_run import ENDLESS, ENDS
from ipagnn.languages.arithmetic.targets import values_of
from ipagnn.languages.arithmetic.vocabulary import ADD, ASSIGN, MULTIPLY, OPERATION_ID

from ..conftest import EXTENDED


def _true(statements: list[Statement]) -> dict[Statement, object]:
    return {statement: true_automaton(*statement) for statement in statements}


@pytest.mark.parametrize("places", [1, 3, 12, 18])
def test_programs_end_as_they_do_by_the_exact_interpreter(places: int) -> None:
    programs = Sampler("full", Lengths.uniform(range(2, 40)), seed=4).table(0, 300)
    found = run_automata(_true(statements_of(programs)), programs, places, max_steps=20_000, threads=2)
    ended = found.value != GIVEN_UP
    assert ended.sum() > 250
    assert (found.steps[~ended] == 20_000).all()
    assert found.value[ended].tolist() == values_of(programs, 10**places)[ended].tolist()
    for i in np.flatnonzero(ended)[:40].tolist():
        expected = execute(programs[i], 10**places)
        assert (found.value[i], found.steps[i]) == (expected.value, expected.trace_length)


def test_conditions_that_compare_values_of_several_digits() -> None:
    source = (
        "v0 = 413\nv2 = 70\nif v2 >= 70:\n  v0 *= 9\nwhile v2 > 66:\n  v2 -= 1\n  v0 -= 99\nif v0 > 990:\n  v0 -= 999"
    )
    programs = ProgramTable.from_programs([parse(source)])
    for places in (4, 18):
        found = run_automata(_true(statements_of(programs)), programs, places)
        assert found.value.tolist() == [413 * 9 - 4 * 99 - 999] == [execute(parse(source), 10**places).value]


LARGE_FACTORS = replace(EXTENDED, factors=(0, 19))


def test_programs_past_the_papers_language_end_as_they_do_by_the_exact_interpreter() -> None:
    programs = Sampler("full", Lengths.uniform(range(2, 60)), LARGE_FACTORS, seed=4).table(0, 400)
    needed = statements_of(programs)
    assert {None, 0, 19} <= {k for _, k in needed}
    assert {(o, k) for o, k in needed if o == MULTIPLY} == {(MULTIPLY, k) for k in (None, *range(10, 20))}
    assert set(needed) <= {*grammar_automata(LARGE_FACTORS), *((OPERATION_ID["while >"], k) for k in (0, None))}
    found = run_automata(_true(needed), programs, 12, variable=3)
    assert found.value.tolist() == programs.target.tolist()
    source = "v0 = 5\nv12 = 1234567\nv12 += v12\nv0 -= v12\nif v0 > v12:\n  v0 = v12"
    table = ProgramTable.from_programs([parse(source, grammar=replace(LARGE_FACTORS, target_variable=0))])
    assert run_automata(_true(statements_of(table)), table, 12).value.tolist() == [2 * 1234567]


def test_statements() -> None:
    programs = ProgramTable.from_programs([parse("v0 = 413\npass\nv0 += 3\nif v0 % 10 < 3:\n  v0 += 3")])
    assert statements_of(programs) == sorted([(ADD, 3), (ASSIGN, 413), (OPERATION_ID["if < %"], 3)])


def test_bad_input() -> None:
    programs = ProgramTable.from_programs([parse("v0 = 413\nv0 += 3")])
    automata = _true(statements_of(programs))
    with pytest.raises(ValueError, match="1 to 18 digits"):
        run_automata(automata, programs, 19)
    del automata[ADD, 3]
    with pytest.raises(ValueError, match=r"no automaton of `v0 \+= 3`"):
        run_automata(automata, programs, 3)
    with pytest.raises(ValueError, match="masked"):
        run_automata(automata, ProgramTable.from_programs([parse("v0 = 413\n[MASK]")]), 3)


def test_programs_past_the_papers_language_are_walked_as_they_are_run() -> None:
    grammar = replace(LARGE_FACTORS, target_variable=0)
    programs = Sampler("full", Lengths.uniform(range(2, 20)), grammar, seed=9, trace_limit=60).table(0, 40)
    found = run_automata(_true(statements_of(programs)), programs, 12)
    for i, program in enumerate(programs):
        automata = _true(statements_of(ProgramTable.from_programs([program])))
        steps = list(walk_automata(automata, program, 12))
        assert (len(steps), steps[-1].values[0]) == (found.steps[i], programs.target[i])
        assert all(len(step.values) in (10, 20) for step in steps)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("v0 = 1\nv1 = 5\nwhile v1 > v0:\n  v1 += v0\n  v1 -= v0", GIVEN_UP),
        ("v0 = 0\nv1 = 0\nv2 = 0\nwhile v0 % 10 < 1:\n  v0 = v1\n  v1 = v2\n  v2 += 1", 1),  # v0 stays 0 for a while
        ("v0 = 9\nv1 = 0\nwhile v0 > v1:\n  v1 += 1", 9),
    ],
)
def test_loops_whose_variables_depend_on_each_other(source: str, value: int) -> None:
    grammar = replace(LARGE_FACTORS, target_variable=0)
    table = ProgramTable.from_programs([parse(source, grammar=grammar)])
    run = run_automata(_true(statements_of(table)), table, 12)
    assert run.value.tolist() == [value]
    assert run.status.tolist() == [ENDLESS if value == GIVEN_UP else ENDS]
