"""Basic blocks and the authors' labels: python_graphs as the oracle, cases by hand, and the programs of the sampler."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from ipagnn.languages.arithmetic import (
    AUTHORS,
    PAPER,
    ExecutionError,
    Grammar,
    Lengths,
    Program,
    ProgramKind,
    Sampler,
    control_flow_graph,
    format_program,
    parse,
    target,
    trace,
)
from ipagnn.languages.arithmetic._compiled.blocks import block_starts, exceeds_blocks


def starts(program: Program) -> list[int]:
    """Lines that begin a block."""
    graph = control_flow_graph(program)
    lines = np.append(graph.nodes, np.int32(len(program)))
    return [int(line) for line in graph.nodes[block_starts(program.line_tokens, lines, graph.true, graph.false)]]


def exceeds(program: Program, limit: int) -> bool:
    graph = control_flow_graph(program)
    lines = np.append(graph.nodes, np.int32(len(program)))
    firsts = block_starts(program.line_tokens, lines, graph.true, graph.false)
    return bool(exceeds_blocks(program.line_tokens, lines, graph.true, graph.false, firsts, 1000, 10, limit))


LOOP = "v0 = 1\nv1 = {}\nwhile v1 > 0:\n  v1 -= 1\n  v0 += 1"
CASES = {
    "straight": ("v0 = 1\nv0 += 2\npass\nv0 -= 1", [0], 1),
    "if": ("v0 = 5\nif v0 % 10 > 3:\n  v0 += 1\nv0 -= 1", [0, 2, 3], 3),
    "if not": ("v0 = 1\nif v0 % 10 > 3:\n  v0 += 1\nv0 -= 1", [0, 2, 3], 2),
    "an if of nothing does not branch": ("v0 = 5\nif v0 % 10 > 3:\n  pass\nv0 -= 1", [0], 1),
    "if else": ("v0 = 5\nif v0 % 10 > 3:\n  v0 += 1\nelse:\n  v0 += 2\nv0 -= 1", [0, 2, 4, 5], 3),
    "two rounds": (LOOP.format(2), [0, 2, 3], 1 + 3 + 2),
    "break goes on where the loop would": (
        "v0 = 5\nv1 = 2\nwhile v1 > 0:\n  v1 -= 1\n  if v0 % 10 > 3:\n    break\n  v0 += 1\nv0 -= 1",
        [0, 2, 3, 6, 7],
        4,
    ),
    "lines that are never reached make a block": (
        "v0 = 5\nv1 = 2\nwhile v1 > 0:\n  v1 -= 1\n  if v0 % 10 > 3:\n    break\n  else:\n    continue\n  v0 += 1",
        [0, 2, 3, 8],
        3,
    ),
}


@pytest.mark.parametrize(("source", "lines", "blocks"), CASES.values(), ids=CASES.keys())
def test_blocks_by_hand(source: str, lines: list[int], blocks: int) -> None:
    program = parse(source)
    assert starts(program) == lines
    assert exceeds(program, blocks - 1)
    assert not exceeds(program, blocks)


@pytest.mark.parametrize(("rounds", "rest", "expected"), [(99, "", 100), (99, "\nv0 += 1", 1), (100, "", 1)])
def test_just_below_and_just_above_the_authors_limit(rounds: int, rest: str, expected: int) -> None:
    # 1 block before the loop, its condition once more often than its body, and the rest.
    program = parse(LOOP.format(rounds) + rest)
    assert target(program, AUTHORS) == expected
    assert exceeds(program, AUTHORS.block_limit) == (expected == 1)
    assert target(program) == 1 + rounds + len(rest) // 8


def test_the_label_is_taken_modulo_the_modulus() -> None:
    assert target(parse(LOOP.format(9)), Grammar(modulus=1, condition_modulus=1, block_limit=3)) == 0
    table = Sampler(grammar=Grammar(modulus=1, condition_modulus=1, block_limit=1)).table(0, 50)
    assert not table.target.any()


def test_programs_that_have_no_target() -> None:
    with pytest.raises(ExecutionError, match="never ends"):
        target(parse("v0 = 1\nwhile v0 > 0:\n  pass"), AUTHORS)
    with pytest.raises(ExecutionError, match="masked"):
        target(parse("v0 = 1\n_"), AUTHORS)


# --- python_graphs
def oracle(program: Program) -> tuple[list[int], Iterator[int]]:
    """The first lines of python_graphs' blocks, and the lines of those that are walked through with the true decisions.

    The empty block at the exit is walked through last, as line `len(program)`.
    """
    control_flow = pytest.importorskip("python_graphs.control_flow")
    graph = control_flow.get_control_flow_graph(format_program(program) + "\n")

    def line(node: object) -> int:
        return int(node.instruction.node.lineno) - 1  # type: ignore[attr-defined]

    def walk() -> Iterator[int]:
        steps = trace(program, None)
        block = graph.start_block
        while block.control_flow_nodes:
            yield line(block.control_flow_nodes[0])
            branch = None
            for node in block.control_flow_nodes:
                step = next(steps)
                assert step.line == line(node)
                branch = step.branch
            exits = block.exits_from_end
            block = next(iter(exits)) if len(exits) == 1 else block.branches[branch]
        yield len(program)
        assert not block.exits_from_end

    return sorted(line(block.control_flow_nodes[0]) for block in graph.blocks if block.control_flow_nodes), walk()


def oracle_gives_up(walked: Iterator[int], limit: int) -> bool:
    """As the authors count: before each block, the exit among them, they give up if more than `limit` have run."""
    return any(run > limit for run, _ in enumerate(walked))


def compare_with_the_oracle(length: int, count: int, limits: tuple[int, ...]) -> int:
    """Holds labels and blocks together; returns how many of the programs have a block that merging passed over."""
    odd = 0
    drawn = {limit: Sampler("full", Lengths.exact(length), replace(PAPER, block_limit=limit), 5) for limit in limits}
    tables = {limit: sampler.table(0, count) for limit, sampler in drawn.items()}
    truth = Sampler("full", Lengths.exact(length), PAPER, 5).table(0, count)
    given_up = 0
    for i, program in enumerate(truth):
        theirs, _ = oracle(program)
        assert starts(program) == theirs, format_program(program)
        odd += theirs != maximal_runs(program)
        for limit, table in tables.items():
            stopped = oracle_gives_up(oracle(program)[1], limit)
            expected = 1 if stopped else int(truth.target[i])
            assert table.target[i] == expected, (limit, format_program(program))
            assert target(program, drawn[limit].grammar) == expected
            given_up += stopped
    assert 0 < given_up < count * len(limits)
    return odd


def maximal_runs(program: Program) -> list[int]:
    """What the blocks would be if all were merged that can be."""
    graph = control_flow_graph(program)
    before: list[set[int]] = [set() for _ in range(len(graph))]
    for node in range(graph.exit):
        before[graph.true[node]].add(node)
        before[graph.false[node]].add(node)

    def begins(node: int) -> bool:
        return node == 0 or len(before[node]) != 1 or any(graph.true[b] != graph.false[b] for b in before[node])

    return [int(graph.nodes[node]) for node in range(graph.exit) if begins(node)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_blocks_and_labels_are_those_of_python_graphs() -> None:
    compare_with_the_oracle(15, 60, (4, 12))
    compare_with_the_oracle(50, 20, (20, 200))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_blocks_and_labels_of_many_programs_are_those_of_python_graphs() -> None:
    odd = [compare_with_the_oracle(n, 200, (7, 60, 200)) for n in (10, 20, 50, 100)]
    assert odd[-1] > 0  # or python_graphs now merges all it can


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_block_that_python_graphs_forgets_to_merge_counts() -> None:
    program = next(p for p in Sampler(lengths=Lengths.exact(50), seed=5).table(0, 300) if starts(p) != maximal_runs(p))
    assert starts(program) == oracle(program)[0]
    assert set(maximal_runs(program)) < set(starts(program))


# --- The sampler
@pytest.mark.parametrize("task", ["full", "partial"])
def test_the_limit_changes_labels_of_long_programs_and_nothing_else(task: ProgramKind) -> None:
    true = Sampler(task, Lengths.uniform((10, 40)), seed=8).table(0, 2_000)
    limited = Sampler(task, Lengths.uniform((10, 40)), AUTHORS, seed=8).table(0, 2_000, threads=2)
    complete = Sampler("full", Lengths.uniform((10, 40)), seed=8).table(0, 2_000)
    assert np.array_equal(limited.line_offsets, true.line_offsets)
    assert np.array_equal(limited.line_tokens, true.line_tokens)
    changed = limited.target != true.target
    assert 20 < changed.sum() < 400
    assert set(limited.target[changed].tolist()) == {1}
    compared = 0
    for i in np.flatnonzero(changed | (np.arange(2_000) % 50 == 0)).tolist():
        holes = list(true[i].masked_lines)
        if np.array_equal(*(np.delete(p.line_tokens, holes, 0) for p in (true[i], complete[i]))):
            assert limited.target[i] == target(complete[i], AUTHORS)  # the limit holds before a line is masked
            compared += 1
    assert compared > 50


def test_a_limit_that_no_program_reaches_changes_nothing() -> None:
    grammars = (PAPER, Grammar(block_limit=10**6))
    true, limited = (Sampler(lengths=Lengths.exact(8), grammar=grammar).table(0, 5_000) for grammar in grammars)
    assert np.array_equal(true.target, limited.target)
