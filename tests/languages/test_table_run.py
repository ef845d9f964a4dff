"""Running programs over tables: over the truth it is exact execution, at any length and depth of loops."""

from dataclasses import replace
from itertools import islice
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipagnn.languages.arithmetic import (
    PAPER,
    Grammar,
    Lengths,
    Program,
    ProgramTable,
    Sampler,
    control_flow_graph,
    execute,
    interpreter,
    parse,
    trace,
)
from ipagnn.languages.arithmetic._compiled.graph import GRAPH_SCRATCH
from ipagnn.languages.arithmetic._compiled.loops import LOOP_FIELDS, find_loops, live_variables
from ipagnn.languages.arithmetic.holes import ceiling
from ipagnn.languages.arithmetic.loops import find_loops as find_loops_plainly
from ipagnn.languages.arithmetic.table_run import (
    ENDLESS,
    ENDS,
    GAVE_UP,
    TableRun,
    TableStep,
    fillings_of,
    run_tables,
    walk_tables,
)
from ipagnn.languages.arithmetic.tables import ValueTables, program_statements
from ipagnn.languages.arithmetic.vocabulary import MULTIPLY, OPERATION, VARIABLE

EXACT = ValueTables.exact()


def nested(depth: int, rounds: int, body: str = "v0 += 1", start: int = 0) -> str:
    """Loops of so many rounds within each other around one statement."""
    lines = [f"v0 = {start}"]
    for k in range(1, depth + 1):
        indent = "  " * (k - 1)
        lines += [f"{indent}v{k} = {rounds}", f"{indent}while v{k} > 0:", f"{indent}  v{k} -= 1"]
    return "\n".join([*lines, "  " * depth + body])


def run_one(source: str, tables: ValueTables = EXACT) -> TableRun:
    return run_tables(tables, ProgramTable.from_programs([parse(source)]))


@pytest.mark.parametrize(
    ("source", "value"),
    [
        (nested(2, 5), 25),
        (nested(3, 2), 8),
        (nested(3, 9), 729),
        (nested(9, 9), 9**9 % 1000),
        (nested(9, 9, "v0 *= 3", start=7), 7 * pow(3, 9**9, 1000) % 1000),
    ],
)
def test_nested_loops(source: str, value: int) -> None:
    run = run_one(source)
    assert (run.value[0], run.status[0], run.confidence[0]) == (value, ENDS, 1.0)
    assert run.trace_length[0] == execute(parse(source)).trace_length
    assert run.loop_depth[0] == source.count("while")


@pytest.mark.parametrize("grammar", [PAPER, Grammar(modulus=100, counters=3), Grammar(operands=(1, 19), counters=9)])
def test_sampled_programs_are_executed_exactly(grammar: Grammar) -> None:
    table = Sampler("full", Lengths.uniform(range(2, 120)), grammar, seed=4).table(0, 2_000)
    run = run_tables(ValueTables.exact(grammar), table)
    assert np.array_equal(run.value, table.target)
    assert not run.status.any()
    assert (run.stopped == -1).all()
    lengths = [execute(program, grammar.modulus, grammar.condition_modulus).trace_length for program in table]
    assert run.trace_length.tolist() == lengths


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_program_runs_as_step_by_step(sources: st.SearchStrategy[str], data: st.DataObject) -> None:
    program = parse(data.draw(sources))
    table = ProgramTable.from_programs([program])
    tables = ValueTables.exact(PAPER, program_statements(table))
    run = run_tables(tables, table)
    steps, endless = _walk(tables, program, 20_000)
    if endless is None:
        return  # too long to walk
    assert run.status[0] == (ENDLESS if endless else ENDS)
    if not endless:
        assert run.value[0] == (steps[-1].values[0] if steps else 0)
        assert run.trace_length[0] == len(steps)


def _walk(tables: ValueTables, program: Program, limit: int) -> tuple[list[TableStep], bool | None]:
    """The steps of a program and whether it is endless; None for that if the limit came first."""
    steps: list[TableStep] = []
    seen = set()
    for step in islice(walk_tables(tables, program), limit):
        if step in seen:
            return steps, True
        seen.add(step)
        steps.append(step)
    return steps, None if len(steps) == limit else False


def test_steps_are_those_of_the_interpreter() -> None:
    for program in Sampler("full", Lengths.uniform((10, 40)), seed=9).table(0, 200):
        steps = list(islice(walk_tables(EXACT, program), 500))
        assert [(step.line, step.values[0], step.branch) for step in steps] == [*map(tuple, trace(program, 500))]
        assert all(step.probability == 1 for step in steps)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_loops_depend_on_what_the_interpreter_says(sources: st.SearchStrategy[str], data: st.DataObject) -> None:
    program = parse(data.draw(sources))
    graph = control_flow_graph(program)
    size = len(program) + 1
    lines = np.append(graph.nodes, np.int32(len(program)))
    live, loops = np.empty(size, np.int32), np.empty((size, LOOP_FIELDS), np.int32)
    scratch = np.empty((GRAPH_SCRATCH, size), np.int32)
    live_variables(program.line_tokens, lines, graph.true, graph.false, graph.exit, live)
    count = find_loops(program.line_tokens, lines, graph.true, graph.false, graph.exit, live, loops, scratch)
    plain = find_loops_plainly(interpreter._compile(program, 1000, 10, False, 0))
    assert loops[:count, :4].tolist() == [
        [loop.head, loop.end, sum(1 << k for k in loop.inputs), sum(1 << k for k in loop.outputs)]
        for loop in sorted(plain.values(), key=lambda loop: loop.head)
    ]


def test_a_wrong_fact_changes_answers() -> None:
    outcomes = EXACT.outcomes.copy()
    outcomes[EXACT.rows[MULTIPLY - OPERATION, 7], 413] = 890
    wrong = replace(EXACT, outcomes=outcomes)
    assert run_one("v0 = 413\nv0 *= 7\nv0 += 1", wrong).value[0] == 891
    assert run_one("v0 = 412\nv0 *= 7\nv0 += 1", wrong).value[0] == 885


def test_endless_programs_are_reported() -> None:
    run = run_one("v0 = 3\nv1 = 1\nif v0 % 10 > 2:\n  while v1 > 0:\n    v0 += 2\n    v1 = 4")
    assert (run.value[0], run.status[0], run.stopped[0], run.trace_length[0]) == (-1, ENDLESS, 3, -1)
    assert run.probability[0] == 0
    assert np.allclose(run.probabilities, 1 / 1000)


def test_a_program_is_given_up_after_the_allowed_steps() -> None:
    table = ProgramTable.from_programs([parse(nested(1, 9)), parse("v0 = 5")])
    run = run_tables(EXACT, table, max_steps=10)
    assert run.status.tolist() == [GAVE_UP, ENDS]
    assert run.value.tolist() == [-1, 5]


def test_many_remembered_results_are_kept() -> None:
    """A loop whose state takes 100,000 values before it ends, so that room for results has to grow."""
    source = (
        "v0 = 1\nv1 = 100\nwhile v1 > 0:\n  v1 -= 1\n  v2 = 999\n  while v2 > 0:\n    v2 -= 1\n    v0 *= 3\n    v0 += 1"
    )
    table = ProgramTable.from_programs([parse(source)])
    tables = ValueTables.exact(PAPER, program_statements(table))
    run = run_tables(tables, table)
    expected = execute(parse(source))
    assert (run.value[0], run.trace_length[0]) == (expected.value, expected.trace_length)


def test_a_statement_counts_once_in_the_confidence_with_the_least_sure_of_its_facts() -> None:
    probabilities = EXACT.probabilities.copy()
    row = EXACT.rows[0, 1]  # v0 += 1
    probabilities[row] = 0.9
    unsure = replace(EXACT, probabilities=probabilities)
    run = run_one(nested(2, 3), unsure)
    assert run.value[0] == 9
    assert run.confidence[0] == pytest.approx(0.9)
    assert run.probabilities[0].sum() == pytest.approx(1)
    assert run.probabilities[0, 9] == pytest.approx(0.9 + 0.1 / 1000)
    probabilities[row, 4], probabilities[row, 700] = 0.6, 0.5
    assert run_one(nested(2, 3), unsure).confidence[0] == pytest.approx(0.6)  # 700 is not met
    assert run_one(nested(3, 9), unsure).confidence[0] == pytest.approx(0.5)  # 729 rounds
    probabilities[row] = 1e-9  # not even this makes another value the likeliest
    long = run_one(nested(3, 9), unsure)
    assert (long.value[0], long.probabilities[0].argmax()) == (729, 729)


@pytest.mark.parametrize("task", ["full", "partial"])
def test_confidence_is_that_of_a_run_step_by_step(task: Literal["full", "partial"]) -> None:
    """Loops that are remembered, within a run and under other fillings, change nothing about it."""
    rng = np.random.default_rng(3)
    unsure = replace(
        EXACT,
        probabilities=rng.uniform(0.9, 1, EXACT.probabilities.shape).astype(np.float32),
        literal_probabilities=rng.uniform(0.9, 1, 1000).astype(np.float32),
        weights=rng.dirichlet(np.ones(27)),
    )
    grammar = replace(PAPER, stmt_repeat=20)
    table = Sampler(task, Lengths.uniform((10, 20, 30)), grammar, seed=8).table(0, 60)
    run = run_tables(unsure, table)
    for i, program in enumerate(table):
        sure = np.zeros((2, 1000))
        for filled, weight in fillings_of(unsure, program):
            least: dict[tuple[int, int], float] = {}
            value = 0
            for step in islice(walk_tables(unsure, filled), 200_000):
                _, operation, _, number = filled.line_tokens[step.line].tolist()
                statement = operation, number
                least[statement] = min(least.get(statement, 1.0), step.probability)
                value = step.values[0]
            sure[:, value] += weight, weight * np.prod([*least.values()])
        assert run.probability[i] == pytest.approx(sure[0].max())
        assert run.confidence[i] * run.probability[i] == pytest.approx(sure[1, run.value[i]])


def test_one_mask_gives_the_exact_distribution() -> None:
    table = Sampler("partial", Lengths.uniform(range(10, 80)), seed=5).table(0, 400)
    run, exact = run_tables(EXACT, table), ceiling(table)
    assert np.array_equal(run.value, exact.guess)
    assert np.allclose(run.probability, exact.probability)
    assert not run.error.any()


def test_weights_of_statements_decide() -> None:
    weights = np.zeros(27)
    weights[[0, 26]] = 0.25, 0.75  # += 1, *= 9
    run = run_tables(
        replace(EXACT, weights=weights), ProgramTable.from_programs([_masked("v0 = 5\nv0 = 6", 1), parse("v0 = 6")])
    )
    assert run.value.tolist() == [45, 6]
    assert run.probability.tolist() == [0.75, 1.0]
    assert np.flatnonzero(run.results[0]).tolist() == [6, 45]


def test_two_masks_are_exact_and_more_are_sampled() -> None:
    program = _masked(nested(1, 2) + "\nv0 *= 2\nv0 += 1\nv0 += 3", 4, 5)
    run = run_tables(EXACT, ProgramTable.from_programs([program]))
    choices = [tuple(choice) for choice in EXACT.choices.tolist()]
    expected = np.zeros(1000)
    for first in choices:
        for second in choices:
            tokens = program.line_tokens.copy()
            for line, (operation, operand) in ((4, first), (5, second)):
                tokens[line, 1:] = operation, VARIABLE, 1 + operand
            expected[execute(Program(tokens)).value] += 1 / 27**2
    assert np.allclose(run.results[0], expected)
    assert run.error[0] == 0

    three = _masked("v0 = 1\nv0 += 1\nv0 += 1\nv0 += 1", 1, 2, 3)
    table = ProgramTable.from_programs([three])
    exact = np.zeros(1000)
    exact[1] = 1
    for _ in range(3):
        exact = sum(
            np.bincount(EXACT.outcomes[EXACT.rows[o - OPERATION, k]], weights=exact, minlength=1000) / 27
            for o, k in choices
        )
    sampled = run_tables(EXACT, table, samples=20_000)
    assert 0 < sampled.error[0] < 0.002
    assert abs(sampled.results[0] - exact).max() < 5 * sampled.error[0]
    assert np.array_equal(run_tables(EXACT, table, seed=1).results, run_tables(EXACT, table, seed=1).results)


def _masked(source: str, *lines: int) -> Program:
    tokens = parse(source).line_tokens.copy()
    tokens[list(lines), 1:] = 1047, 1047, 1
    return Program(tokens)


def test_threads_change_nothing() -> None:
    table = ProgramTable.concatenate(
        [Sampler(task, Lengths.exact(40), seed=6).table(0, 150) for task in ("full", "partial")]
    )
    one, two = run_tables(EXACT, table), run_tables(EXACT, table, threads=2)
    for name in TableRun.__dataclass_fields__:
        assert np.array_equal(getattr(one, name), getattr(two, name))
    assert len(run_tables(EXACT, table.slice(0, 0))) == 0


def test_statements_that_are_not_tabulated_are_refused() -> None:
    with pytest.raises(ValueError, match=r"The tables lack `v0 \+= 0`, which the programs have; tabulate"):
        run_one("v0 = 3\nv0 += 0")
    with pytest.raises(ValueError, match="Line 2 is masked, so the program has no steps"):
        next(walk_tables(EXACT, _masked("v0 = 3\nv0 += 1", 1)))
