"""Tables of what statements do: the truth, what differs from it, and counts of facts."""

from dataclasses import replace

import numpy as np
import pytest

from ipagnn.languages.arithmetic import PAPER, Grammar, Lengths, ProgramTable, Sampler, parse
from ipagnn.languages.arithmetic.tables import (
    ValueTables,
    differences,
    fact_counts,
    grammar_statements,
    program_statements,
    statement_text,
)
from ipagnn.languages.arithmetic.vocabulary import ADD, MULTIPLY, OPERATION, OPERATION_ID, WHILE_GREATER

GRAMMARS = [
    PAPER,
    Grammar(modulus=100, counters=3),
    Grammar(operands=(1, 19)),
    Grammar(operands=(3, 4), loop_counts=(2, 19), comparisons=("<",)),
    Grammar(counters=0, arithmetic_operations=("*=",)),
]


def _outcome(tables: ValueTables, operation: int, operand: int, value: int) -> int:
    return int(tables.outcomes[tables.rows[operation - OPERATION, operand], value])


def test_exact_facts() -> None:
    exact = ValueTables.exact()
    assert _outcome(exact, MULTIPLY, 7, 413) == 891
    assert _outcome(exact, OPERATION_ID["-="], 9, 3) == 994
    assert _outcome(exact, OPERATION_ID["if > %"], 3, 413) == 0
    assert _outcome(exact, OPERATION_ID["if > %"], 3, 414) == 1
    assert _outcome(exact, WHILE_GREATER, 0, 0) == 0
    assert _outcome(exact, WHILE_GREATER, 0, 410) == 1
    assert exact.literals.tolist() == list(range(1000))


def test_fact_counts_of_the_paper() -> None:
    assert fact_counts(PAPER) == {"literal": 1000, "arithmetic": 27_000, "condition": 40_000, "loop": 10}


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_grammar_statements_are_those_that_the_sampler_draws(grammar: Grammar) -> None:
    table = Sampler("full", Lengths.uniform(range(10, 40)), grammar, seed=3).table(0, 4_000)
    drawn = {tuple(statement) for statement in program_statements(table).tolist()}
    assert drawn == {tuple(statement) for statement in grammar_statements(grammar).tolist()}


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_the_truth_differs_from_itself_nowhere(grammar: Grammar) -> None:
    assert differences(ValueTables.exact(grammar)) == []


def test_planted_wrong_facts_are_found() -> None:
    exact = ValueTables.exact()
    outcomes, literals = exact.outcomes.copy(), exact.literals.copy()
    literals[7] = 8
    outcomes[exact.rows[MULTIPLY - OPERATION, 7], 413] = 890
    outcomes[exact.rows[OPERATION_ID["if > %"] - OPERATION, 3], 413] = 1
    outcomes[exact.rows[WHILE_GREATER - OPERATION, 0], 9] = 0
    outcomes[exact.rows[WHILE_GREATER - OPERATION, 0], 500] = 0  # no counter of the grammar gets there
    found = differences(replace(exact, outcomes=outcomes, literals=literals))
    assert [str(difference) for difference in found] == [
        "v0 = 7: learned 8, true 7",
        "v0 *= 7 at 413: learned 890, true 891",
        "if v0 % 10 > 3 at 413: learned true, true false",
        "while v1 > 0 at 9: learned false, true true",
    ]
    assert [difference.kind for difference in found] == ["literal", "arithmetic", "condition", "loop"]


def test_statements_outside_the_grammar_are_joined_on_demand() -> None:
    program = parse("v0 = 5\nv3 = 2\nv0 += 999\nv3 += 2\nif v0 > 50:\n  v0 *= 0\nwhile v3 % 10 <= 3:\n  v3 += 7")
    needed = program_statements(ProgramTable.from_programs([program]))
    assert [statement_text(o, k, variable=0) for o, k in needed.tolist()] == [
        *("v0 += 2", "v0 += 7", "v0 += 999", "v0 *= 0", "if v0 > 50", "while v0 % 10 <= 3"),
    ]
    tables = ValueTables.exact()
    missing = tables.missing(needed)
    assert len(missing) == 4
    more = tables.joined(ValueTables.exact(PAPER, missing))
    assert len(more.missing(needed)) == 0
    assert _outcome(more, ADD, 999, 1) == 0
    assert _outcome(more, OPERATION_ID["if >"], 50, 51) == 1
    assert np.array_equal(more.outcomes[: len(tables.outcomes)], tables.outcomes)
    assert len(more.joined(tables).statements) == len(more.statements)


def test_bad_tables_are_refused() -> None:
    exact = ValueTables.exact()
    with pytest.raises(ValueError, match=r"outcomes has shape \(68, 999\); tables of this grammar have \(68, 1000\)"):
        replace(exact, outcomes=exact.outcomes[:, 1:])
    every = np.array([(ADD + i % 3, i // 3 % 1000) for i in range(14_000)], np.int16)
    with pytest.raises(ValueError, match="choose a smaller modulus, or fewer operands"):
        ValueTables.exact(Grammar(modulus=10_000, operands=(0, 999), arithmetic_operations=("+=",)), every)
    with pytest.raises(ValueError, match=r"The learned tables lack `v0 \+= 1`"):
        differences(ValueTables.exact(PAPER, grammar_statements()[1:]))


def test_languages_without_tables_are_refused() -> None:
    with pytest.raises(ValueError, match="The modulus is 100,000; tables have an entry for each value"):
        ValueTables.exact(Grammar(modulus=100_000))
    for grammar in (Grammar(operand_variable=1, variables=3), Grammar(operands=(1, 5000))):
        with pytest.raises(ValueError, match="this grammar goes past that"):
            ValueTables.exact(grammar)
        table = Sampler("full", Lengths.exact(30), grammar, seed=1).table(0, 20)
        with pytest.raises(ValueError, match="Some statement is of no language that has tables"):
            program_statements(table)
