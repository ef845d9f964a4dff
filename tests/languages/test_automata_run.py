"""Programs over automata: the true ones give what the exact interpreter gives, with any number of digits."""

import numpy as np
import pytest

from ipagnn.languages.arithmetic import Lengths, ProgramTable, Sampler, parse
from ipagnn.languages.arithmetic.automata import true_automaton
from ipagnn.languages.arithmetic.automata_run import GIVEN_UP, Statement, run_automata, statements_of
from ipagnn.languages.arithmetic.interpreter import execute
from ipagnn.languages.arithmetic.targets import values_of
from ipagnn.languages.arithmetic.vocabulary import ADD, ASSIGN, OPERATION_ID


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
