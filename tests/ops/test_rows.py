"""The rows that executions compute: the node-steps that can matter."""

from itertools import pairwise

import numpy as np
import pytest

from ipagnn.data import Batch, StepBudget, check_batch, collate
from ipagnn.languages.arithmetic import (
    ControlFlowGraph,
    Lengths,
    ProgramTable,
    Sampler,
    control_flow_graph,
    parse,
)
from ipagnn.ops.pointer.rows import plan_rows

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
    rows = batch.graphs.plan(plan_rows)
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
        assert rows.graph[destination] == program
        return int(rows.node[destination]) - first

    for t, (start, stop) in enumerate(pairwise(rows.step_offsets)):
        here = {}
        for row in range(start, stop):
            if rows.graph[row] == program:
                here[int(rows.node[row]) - first] = (
                    arrival(row, int(rows.target[row, 0])),
                    arrival(row, int(rows.target[row, 1])),
                )
        if here:
            assert len(found) == t
            found.append(here)
    return found


@pytest.mark.parametrize("budget", [StepBudget(), StepBudget(factor=0.4), StepBudget("static", cap=60)])
def test_graph_rows_are_the_useful_node_steps(mixed: ProgramTable, budget: StepBudget) -> None:
    table = mixed.take(np.flatnonzero(mixed.lengths <= 20)[:60])
    batch = collate(table, budget)
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
    batch = collate([parse(BRANCH)])
    assert rows_of(batch, 0) == [{0: (1, None)}, {1: (2, 3)}, {2: (4, None), 3: (4, None)}, {4: ("exit", None)}]
    rows = batch.graphs.plan(plan_rows)
    assert rows.edges[:, 1].tolist() == [False, True, False, False, False]
    assert rows.target.tolist() == [[1, -1], [2, 3], [4, -1], [4, -1], [5, -1]]


def test_graph_rows_of_a_loop_by_hand() -> None:
    # T = 1 + 3 + 2 + 2 * 2 = 10: the loop, three edges around, can be walked twice and left in time.
    batch = collate([parse(LOOP)])
    assert batch.steps.tolist() == [10]
    nodes = [list(step) for step in rows_of(batch, 0)]
    assert nodes == [[0], [1], [2], [3], [4], [2], [3], [4], [2]]
    assert rows_of(batch, 0)[8] == {2: (None, "exit")}


def test_fewer_steps_than_the_exit_needs_leave_no_rows() -> None:
    batch = collate([parse(LOOP), parse(BRANCH)], StepBudget(factor=0.2))
    check_batch(batch)
    rows = batch.graphs.plan(plan_rows)
    assert len(rows) == 0
    assert rows.step_offsets == (0,)


def test_rows_are_ordered_by_step_then_program(mixed: ProgramTable) -> None:
    rows = collate(mixed).graphs.plan(plan_rows)
    for start, stop in pairwise(rows.step_offsets):
        assert stop > start
        assert (rows.graph[start:stop].diff() >= 0).all()


def test_a_program_is_the_same_in_any_company(mixed: ProgramTable) -> None:
    batch = collate(mixed)
    for i in range(len(mixed)):
        assert rows_of(batch, i) == rows_of(collate([mixed[i]]), 0)


def test_training_programs_need_a_sixth_of_the_dense_node_steps() -> None:
    batch = collate(Sampler(seed=11).table(0, 20_000))
    rows = batch.graphs.plan(plan_rows)
    dense = (batch.node_offsets.diff() * batch.steps).double().mean().item()
    assert len(rows) / len(batch) == pytest.approx(23.3, abs=0.5)
    assert dense == pytest.approx(142, abs=3)


def test_length_100_needs_four_fifths_of_the_dense_node_steps() -> None:
    batch = collate(Sampler(lengths=Lengths.exact(100), seed=11).table(0, 300))
    rows = batch.graphs.plan(plan_rows)
    dense = (batch.node_offsets.diff() * batch.steps).sum().item()
    assert len(rows) / dense == pytest.approx(0.8, abs=0.05)
