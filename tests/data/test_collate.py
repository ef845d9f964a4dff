from collections import defaultdict
from dataclasses import fields
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ipagnn.data import Batch, StepBudget, check_batch, collate
from ipagnn.data.collate import STEP_LIMIT
from ipagnn.data.contract import RowKind
from ipagnn.languages.arithmetic import (
    PAPER,
    ControlFlowGraph,
    Lengths,
    Program,
    ProgramTable,
    Sampler,
    control_flow_graph,
    parse,
    steps,
    trace,
    trace_length,
)

BRANCH = "v0 = 7\nif v0 % 10 > 4:\n  v0 += 1\nelse:\n  v0 -= 1\nv0 *= 2"
LOOP = "v0 = 1\nv1 = 2\nwhile v1 > 0:\n  v1 -= 1\n  v0 += 3"


def rows_by_search(graph: ControlFlowGraph, budget: int) -> list[set[int]]:
    """The useful nodes of each step, the exit left out, by walking the graph forwards and backwards."""
    successors = [{int(graph.true[n]), int(graph.false[n])} for n in range(len(graph))]
    distance = {graph.exit: 0}
    for d in range(1, len(graph)):
        for n in range(graph.exit):
            if n not in distance and any(distance.get(m) == d - 1 for m in successors[n]):
                distance[n] = d
    reached = {0}
    useful = []
    for t in range(budget):
        useful.append({n for n in reached if n != graph.exit and distance.get(n, budget + 1) <= budget - t})
        reached = set().union(*(successors[n] for n in reached))
    while useful and not useful[-1]:
        useful.pop()
    return useful


def rows_of(batch: Batch, program: int) -> list[dict[int, tuple[int | str | None, int | str | None]]]:
    """What `rows` say of one program, step by step: where the true and false edges of each node arrive."""
    rows = batch.rows
    assert rows is not None
    first = int(batch.node_offsets[program])
    found: list[dict[int, tuple[int | str | None, int | str | None]]] = []
    step_of = np.repeat(np.arange(len(rows.step_offsets) - 1), np.diff(rows.step_offsets))

    def arrival(row: int, destination: int) -> int | str | None:
        if destination < 0:
            return None
        if destination >= len(rows):
            assert destination == len(rows) + program
            return "exit"
        assert step_of[destination] == step_of[row] + 1
        assert rows.program[destination] == program
        return int(rows.node[destination]) - first

    for t, (start, stop) in enumerate(pairwise(rows.step_offsets)):
        here = {}
        for row in range(start, stop):
            if rows.program[row] == program:
                here[int(rows.node[row]) - first] = (
                    arrival(row, int(rows.true[row])),
                    arrival(row, int(rows.false[row])),
                )
        if here:
            assert len(found) == t
            found.append(here)
    return found


@pytest.mark.parametrize("budget", [StepBudget(), StepBudget(factor=0.4), StepBudget("static", cap=60)])
def test_graph_rows_are_the_useful_node_steps(mixed: ProgramTable, budget: StepBudget) -> None:
    table = mixed.take(np.flatnonzero(mixed.lengths <= 20)[:60])
    batch = collate(table, "graph", budget)
    check_batch(batch)
    for i, program in enumerate(table):
        graph = control_flow_graph(program)
        useful = rows_by_search(graph, int(batch.steps[i]))
        found = rows_of(batch, i)
        assert [set(nodes) for nodes in found] == useful
        for t, nodes in enumerate(found):
            beyond = useful[t + 1] if t + 1 < len(useful) else set()
            for n, edges in nodes.items():
                true, false = int(graph.true[n]), int(graph.false[n])
                expected = ["exit" if m == graph.exit else m if m in beyond else None for m in (true, false)]
                if true == false:
                    expected[1] = None
                assert edges == tuple(expected)


def test_graph_rows_of_a_branch_by_hand() -> None:
    batch = collate([parse(BRANCH)], "graph")
    assert rows_of(batch, 0) == [{0: (1, None)}, {1: (2, 3)}, {2: (4, None), 3: (4, None)}, {4: ("exit", None)}]
    assert batch.rows is not None
    assert batch.rows.branches.tolist() == [False, True, False, False, False]
    assert batch.rows.arrival_offsets.tolist() == [0, 0, 1, 2, 3, 5, 6]
    assert batch.rows.arrivals.tolist() == [0, 2, 3, 4, 6, 8]


def test_graph_rows_of_a_loop_by_hand() -> None:
    # T = 1 + 3 + 2 + 2 * 2 = 10: the loop, three edges around, can be walked twice and left in time.
    batch = collate([parse(LOOP)], "graph")
    assert batch.steps.tolist() == [10]
    nodes = [list(step) for step in rows_of(batch, 0)]
    assert nodes == [[0], [1], [2], [3], [4], [2], [3], [4], [2]]
    assert rows_of(batch, 0)[8] == {2: (None, "exit")}


def test_fewer_steps_than_the_exit_needs_leave_no_rows() -> None:
    batch = collate([parse(LOOP), parse(BRANCH)], "graph", StepBudget(factor=0.2))
    check_batch(batch)
    assert batch.rows is not None
    assert len(batch.rows) == 0
    assert batch.rows.step_offsets == (0,)


@pytest.mark.parametrize("rows", ["graph", "trace", "lines"])
def test_arrivals_are_the_edges_turned_round(mixed: ProgramTable, rows: Any) -> None:
    batch = collate(mixed.slice(0, 50), rows, trace_limit=500)
    check_batch(batch)
    packed = batch.rows
    assert packed is not None
    expected = defaultdict(list)
    for row in range(len(packed)):
        for branch, field in enumerate((packed.true, packed.false)):
            if field[row] >= 0:
                expected[int(field[row])].append(2 * row + branch)
    offsets = packed.arrival_offsets.tolist()
    assert offsets[-1] == len(packed.arrivals)
    for destination, (start, stop) in enumerate(pairwise(offsets)):
        assert packed.arrivals[start:stop].tolist() == expected[destination]


def test_rows_are_ordered_by_step_then_program(mixed: ProgramTable) -> None:
    rows = collate(mixed, "graph").rows
    assert rows is not None
    for start, stop in pairwise(rows.step_offsets):
        assert stop > start
        assert (rows.program[start:stop].diff() >= 0).all()


def test_trace_rows_follow_the_interpreter(mixed: ProgramTable) -> None:
    batch = collate(mixed, "trace", trace_limit=10_000)
    rows = batch.rows
    assert rows is not None
    node = rows.node.numpy()
    line_of = batch.node_line.numpy()[node]
    by_program: dict[int, list[int]] = defaultdict(list)
    for program, line in zip(rows.program.tolist(), line_of.tolist(), strict=True):
        by_program[program].append(line)  # rows of a program come in the order of the steps
    for i, program in enumerate(mixed):
        assert by_program[i] == [step.line for step in trace(program, limit=10_000)]
    assert np.array_equal(rows.tokens.numpy(), batch.node_tokens.numpy()[node])


def test_trace_rows_of_any_program_that_ends(sources: Any) -> None:
    @settings(max_examples=60, deadline=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        program = parse(data.draw(sources))
        try:
            batch = collate([program], "trace", trace_limit=300)
        except ValueError as error:
            assume("2**40" not in str(error))  # refused, and rightly so; the next test has the reason
            raise
        assert batch.rows is not None
        lines = batch.node_line[batch.rows.node.long()].tolist()
        assert lines == [step.line for step in trace(program, limit=300)]

    check()


def test_traces_that_need_exact_large_numbers_are_refused() -> None:
    # A plain comparison needs v1 as it is, which compiled code holds up to 2**40; a remainder needs no such thing.
    text = "v0 = 1\nv1 = 999\nv1 *= 999\nv1 *= 999\nv1 *= 999\nv1 *= 999\nif v1{} > 5:\n  v0 += 1"
    with pytest.raises(ValueError, match=r"Program 0 of the batch compares a value beyond 2\*\*40"):
        collate([parse(text.format(""))], "trace")
    assert collate([parse(text.format(" % 10"))], "trace").rows is not None


def test_traces_are_cut_at_the_limit() -> None:
    endless = parse("v0 = 1\nv1 = 1\nwhile v1 > 0:\n  v0 += 1")
    rows = collate([endless, parse(LOOP)], "trace", trace_limit=100).rows
    assert rows is not None
    assert len(rows.step_offsets) - 1 == 100
    assert (rows.program == 0).sum() == 100
    assert (rows.program == 1).sum() == 3 + 2 * 3  # head again, then out


def test_traces_of_masked_programs_are_refused() -> None:
    with pytest.raises(ValueError, match="Program 1 of the batch has a masked line"):
        collate([parse(LOOP), parse("v0 = 1\n_")], "trace")


def test_line_rows_walk_the_text(mixed: ProgramTable) -> None:
    batch = collate(mixed, "lines")
    rows = batch.rows
    assert rows is not None
    assert len(rows) == len(mixed.line_tokens)
    for t, (start, stop) in enumerate(pairwise(rows.step_offsets)):
        programs = np.flatnonzero(mixed.lengths > t)
        assert rows.program[start:stop].tolist() == programs.tolist()
        assert rows.node[start:stop].tolist() == (mixed.line_offsets[programs] + t).tolist()
    assert np.array_equal(rows.tokens.numpy(), mixed.line_tokens[rows.node.numpy()])
    assert not rows.branches.any()
    assert (rows.false == -1).all()


def test_batch_holds_the_graphs_of_its_programs(reference_records: list[dict[str, Any]]) -> None:
    programs = [Program(np.array(record["line_tokens"], np.int16)) for record in reference_records]
    table = ProgramTable.from_programs(programs, [record["target"] for record in reference_records])
    batch = collate(table, "graph")
    check_batch(batch)
    for i, record in enumerate(reference_records):
        first, end = batch.node_offsets[i : i + 2].tolist()
        assert batch.node_tokens[first:end].tolist() == record["node_tokens"]
        assert (batch.true[first:end] - first).tolist() == record["true_branch"]
        assert (batch.false[first:end] - first).tolist() == record["false_branch"]
        assert batch.node_line[first : end - 1].tolist() == record["node_lines"]
        assert batch.node_program[first:end].unique().tolist() == [i]
        assert (batch.steps[i], batch.target[i]) == (record["steps"], record["target"])
    assert batch.node_line[batch.exits.long()].unique().tolist() == [-1]
    assert (batch.starts == batch.node_offsets[:-1]).all()


def test_a_program_is_the_same_in_any_company(mixed: ProgramTable) -> None:
    batch = collate(mixed.slice(0, 30), "graph")
    for i in range(30):
        assert rows_of(batch, i) == rows_of(collate([mixed[i]], "graph"), 0)


def test_steps_are_those_of_the_paper_times_the_factor(mixed: ProgramTable) -> None:
    counted = [steps(program) for program in mixed]
    assert collate(mixed).steps.tolist() == counted
    assert collate(mixed, budget=StepBudget(factor=1.5)).steps.tolist() == [-(-3 * n // 2) for n in counted]


def test_static_budget_covers_the_true_trace(mixed: ProgramTable) -> None:
    batch = collate(mixed, budget=StepBudget("static", cap=STEP_LIMIT))
    lengths = np.array([trace_length(program) for program in mixed])
    assert lengths.max() > collate(mixed).steps.max()  # the paper's budget would not
    assert (batch.steps.numpy() >= np.minimum(lengths, STEP_LIMIT)).all()


def test_static_budget_is_capped() -> None:
    deep = "v0 = 1" + "".join(f"\n{'  ' * k}v{k + 1} = 9\n{'  ' * k}while v{k + 1} > 0:" for k in range(9))
    program = parse(deep + f"\n{'  ' * 9}v0 += 1")
    assert collate([program], budget=StepBudget("static")).steps.tolist() == [10_000]
    with pytest.raises(ValueError, match=r"Program 0 .* at most 1,000,000"):
        collate([program], budget=StepBudget(factor=1e4))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"kind": "paperr"}, "choose 'paper', 'static' or 'trace'"),
        ({"factor": 0.0}, "positive number"),
        ({"factor": float("nan")}, "positive number"),
        ({"cap": 0}, "cap lies in"),
    ],
)
def test_bad_budgets_are_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        StepBudget(**fields)


def test_training_programs_need_a_sixth_of_the_dense_node_steps() -> None:
    batch = collate(Sampler(seed=11).table(0, 20_000), "graph")
    assert batch.rows is not None
    dense = (batch.node_offsets.diff() * batch.steps).double().mean().item()
    assert len(batch.rows) / len(batch) == pytest.approx(23.3, abs=0.5)
    assert dense == pytest.approx(142, abs=3)


def test_length_100_needs_four_fifths_of_the_dense_node_steps() -> None:
    batch = collate(Sampler(lengths=Lengths.exact(100), seed=11).table(0, 300), "graph")
    assert batch.rows is not None
    dense = (batch.node_offsets.diff() * batch.steps).sum().item()
    assert len(batch.rows) / dense == pytest.approx(0.8, abs=0.05)


def test_an_empty_batch_and_programs_without_targets() -> None:
    for rows in (None, "graph", "trace", "lines"):
        check_batch(collate([], rows))  # type: ignore[arg-type]
    assert collate([parse(LOOP)]).target.tolist() == [-1]


def test_other_languages_have_other_traces() -> None:
    program = parse("v0 = 7\nif v0 % 4 > 4:\n  v0 += 1\nv0 *= 2", condition_modulus=4)
    rows = [collate([program], "trace", modulus=PAPER.modulus, condition_modulus=m).rows for m in (4, 10)]
    assert [r.node.tolist() for r in rows if r is not None] == [[0, 1, 3], [0, 1, 2, 3]]


def test_moving_a_batch_keeps_it() -> None:
    batch = collate([parse(LOOP)], "graph")
    moved = batch.to("meta")
    assert moved.rows is not None
    assert moved.rows.tokens.device == torch.device("meta")
    assert moved.rows.step_offsets == batch.rows.step_offsets  # type: ignore[union-attr]
    assert batch.to("cpu").line_tokens.equal(batch.line_tokens)


@pytest.mark.parametrize("rows", [None, "graph", "trace", "lines"])
def test_without_indentation_only_the_first_tokens_differ(rows: RowKind | None) -> None:
    table = Sampler(lengths=Lengths.exact(20), seed=5).table(0, 20)
    given, plain = collate(table, rows), collate(table, rows, indent=False)
    check_batch(plain)
    for with_indent, without in ((given, plain), (given.rows, plain.rows)):
        if with_indent is None:
            continue
        for field in fields(with_indent):
            one, other = getattr(with_indent, field.name), getattr(without, field.name)
            if field.name.endswith("tokens"):
                assert torch.equal(one[:, 1:], other[:, 1:])
                assert set(other[:, 0].tolist()) <= {0, 1}  # 0 is the exit's
                assert torch.equal(one[:, 0] == 0, other[:, 0] == 0)
                assert one[:, 0].max() > 2
            elif isinstance(one, torch.Tensor):
                assert torch.equal(one, other), field.name
    assert (table.line_tokens[:, 0] > 2).any()  # the programs themselves stay as they are


def test_trace_budget_is_what_the_trace_has_and_two_more(mixed: ProgramTable) -> None:
    wanted = [min(int(np.ceil(1.5 * (trace_length(program) + 2))), 40) for program in mixed]
    assert collate(mixed, budget=StepBudget("trace", 1.5, cap=40)).steps.tolist() == wanted
    masked = parse("v0 = 1\n_ = 0")
    with pytest.raises(ValueError, match="has a masked line, so its trace cannot be followed"):
        collate([masked], budget=StepBudget("trace"))
