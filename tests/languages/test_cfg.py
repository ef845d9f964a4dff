"""Control flow graphs: program text and successor lists side by side, worked out by hand."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipagnn.languages.arithmetic import Lengths, Sampler, control_flow_graph, format_program, parse, steps
from ipagnn.languages.arithmetic._compiled.graph import MAX_STEPS, paper_steps

CASES = {
    "straight": ("v0 = 1\nv0 += 2", [0, 1], [1, 2, 2], [1, 2, 2], 3),
    "masked": ("v0 = 1\n[MASK]\nv0 += 1", [0, 1, 2], [1, 2, 3, 3], [1, 2, 3, 3], 4),
    "passes": ("pass\nv0 = 1\npass\npass", [1], [1, 1], [1, 1], 5),
    "if": (
        "v0 = 1\nif v0 % 10 > 3:\n  v0 += 1\nv0 -= 1",
        [0, 1, 2, 3],
        [1, 2, 3, 4, 4],
        [1, 3, 3, 4, 4],
        5,
    ),
    "if else": (
        "v0 = 1\nif v0 % 10 > 3:\n  v0 += 1\nelse:\n  v0 += 2\nv0 -= 1",
        [0, 1, 2, 4, 5],
        [1, 2, 4, 4, 5, 5],
        [1, 3, 4, 4, 5, 5],
        7,
    ),
    "if pass at the end": ("v0 = 1\nif v0 % 10 > 3:\n  pass", [0, 1], [1, 2, 2], [1, 2, 2], 4),
    "pass in both branches": (
        "v0 = 1\nif v0 % 10 > 3:\n  pass\nelse:\n  pass\nv0 = 2",
        [0, 1, 5],
        [1, 2, 3, 3],
        [1, 2, 3, 3],
        7,
    ),
    "loop": (
        "v0 = 1\nv1 = 2\nwhile v1 > 0:\n  v1 -= 1\n  v0 += 1",
        [0, 1, 2, 3, 4],
        [1, 2, 3, 4, 2, 5],
        [1, 2, 5, 4, 2, 5],
        10,
    ),
    "loop on itself": ("v0 = 1\nwhile v0 > 0:\n  pass", [0, 1], [1, 1, 2], [1, 2, 2], 7),
    "break": (
        "v0 = 1\nv1 = 2\nwhile v1 > 0:\n  v1 -= 1\n  if v0 % 10 > 3:\n    break\n  v0 += 1\nv0 -= 1",
        [0, 1, 2, 3, 4, 6, 7],
        [1, 2, 3, 4, 6, 2, 7, 7],
        [1, 2, 6, 4, 5, 2, 7, 7],
        15,
    ),
    "continue": (
        "v0 = 1\nv1 = 2\nwhile v1 > 0:\n  v1 -= 1\n  if v0 % 10 > 3:\n    continue\n  v0 += 1\nv0 -= 1",
        [0, 1, 2, 3, 4, 6, 7],
        [1, 2, 3, 4, 2, 2, 7, 7],
        [1, 2, 6, 4, 5, 2, 7, 7],
        15,
    ),
    "unreachable after break": (
        "v0 = 1\nv1 = 2\nwhile v1 > 0:\n  break\n  v0 += 1\nv0 -= 1",
        [0, 1, 2, 4, 5],
        [1, 2, 4, 2, 5, 5],
        [1, 2, 4, 2, 5, 5],
        11,
    ),
    "nested loops": (
        "v0 = 1\nv1 = 2\nwhile v1 > 0:\n  v1 -= 1\n  v2 = 3\n  while v2 > 0:\n    v2 -= 1\n    v0 *= 2",
        [0, 1, 2, 3, 4, 5, 6, 7],
        [1, 2, 3, 4, 5, 6, 7, 5, 8],
        [1, 2, 8, 4, 5, 2, 7, 5, 8],
        24,
    ),
    "through pass, else and break at once": (
        "v0 = 1\nv1 = 2\nwhile v1 > 0:\n  v1 -= 1\n  if v0 % 10 > 3:\n    pass\n  else:\n    if v0 % 10 < 2:\n"
        "      pass\n  break\nv0 += 1",
        [0, 1, 2, 3, 4, 7, 10],
        [1, 2, 3, 4, 6, 6, 7, 7],
        [1, 2, 6, 4, 5, 6, 7, 7],
        21,
    ),
    "continue in both loops": (
        "v0 = 1\nv1 = 2\nwhile v1 > 0:\n  v1 -= 1\n  v2 = 2\n  while v2 > 0:\n    v2 -= 1\n    continue\n"
        "  continue\n  v0 += 1",
        [0, 1, 2, 3, 4, 5, 6, 9],
        [1, 2, 3, 4, 5, 6, 5, 2, 8],
        [1, 2, 8, 4, 5, 2, 5, 2, 8],
        28,
    ),
    "an inner loop that leaves both": (
        "v0 = 1\nwhile v0 > 0:\n  while v0 > 1:\n    v0 -= 1\n  break\nv0 += 1",
        [0, 1, 2, 3, 5],
        [1, 2, 3, 2, 5, 5],
        [1, 4, 4, 2, 5, 5],
        18,
    ),
}


@pytest.mark.parametrize(("source", "nodes", "true", "false", "budget"), CASES.values(), ids=CASES.keys())
def test_successors(source: str, nodes: list[int], true: list[int], false: list[int], budget: int) -> None:
    program = parse(source)
    graph = control_flow_graph(program)
    assert graph.nodes.tolist() == nodes
    assert graph.true.tolist() == true
    assert graph.false.tolist() == false
    assert graph.exit == len(nodes) == len(graph) - 1
    np.testing.assert_array_equal(graph.node_tokens[:-1], program.line_tokens[nodes])
    assert not graph.node_tokens[-1].any()
    assert steps(program) == budget


def test_arrays_are_of_the_declared_types_and_read_only() -> None:
    graph = control_flow_graph(parse("v0 = 1"))
    for array, dtype in ((graph.nodes, "i4"), (graph.true, "i4"), (graph.false, "i4"), (graph.node_tokens, "i2")):
        assert array.dtype == np.dtype(dtype)
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7


@given(data=st.data())
def test_every_node_reaches_the_exit_or_is_unreachable(sources: st.SearchStrategy[str], data: st.DataObject) -> None:
    program = parse(data.draw(sources))
    graph = control_flow_graph(program)
    forwards = [{int(t), int(f)} for t, f in zip(graph.true, graph.false, strict=True)]
    backwards = [{n for n, successors in enumerate(forwards) if m in successors} for m in range(len(graph))]
    assert _closure(0, forwards) <= _closure(graph.exit, backwards)
    conditions = [program.lines[i].operation.startswith(("if", "while")) for i in graph.nodes]
    for node, condition in enumerate(conditions):
        assert condition or graph.true[node] == graph.false[node]


def _closure(start: int, successors: list[set[int]]) -> set[int]:
    seen, waiting = {start}, [start]
    while waiting:
        new = successors[waiting.pop()] - seen
        seen |= new
        waiting += new
    return seen


def test_steps_are_exact_where_the_compiled_count_saturates() -> None:
    deep = parse("v0 = 1\n" + "\n".join(" " * d + "while v0 > 0:" for d in range(200)) + "\n" + " " * 200 + "pass")
    assert steps(deep) == 2**202 - 1
    assert paper_steps(deep.line_tokens, np.empty(300, np.int64)) == MAX_STEPS
    for program in Sampler("full", Lengths.exact(40), seed=3).table(0, 200):
        assert steps(program) == paper_steps(program.line_tokens, np.empty(100, np.int64))


def test_networkx_has_every_edge_with_its_branch() -> None:
    pytest.importorskip("networkx")
    graph = control_flow_graph(parse("v0 = 1\nwhile v0 > 0:\n  if v0 % 10 > 5:\n    pass\n  v0 -= 1"))
    exported = graph.to_networkx()
    assert dict(exported.nodes(data="label")) == {
        0: "v0 = 1",
        1: "while v0 > 0:",
        2: "if v0 % 10 > 5:",
        3: "v0 -= 1",
        4: "exit",
    }
    assert dict(exported.nodes(data="line")) == {0: 0, 1: 1, 2: 2, 3: 4, 4: None}
    assert sorted(exported.edges(data="branch"), key=str) == sorted(
        [(0, 1, None), (1, 2, True), (1, 4, False), (2, 3, True), (2, 3, False), (3, 1, None)], key=str
    )


def test_dot_names_every_node_and_branch() -> None:
    dot = control_flow_graph(parse("v0 = 1\nwhile v0 > 0:\n  v0 -= 1")).to_dot()
    assert dot.startswith("digraph program {")
    assert dot.endswith("}")
    assert re.findall(r"n(\d) -> n(\d)(?: \[label=\"(\w+)\"\])?;", dot) == [
        ("0", "1", ""),
        ("1", "2", "true"),
        ("1", "3", "false"),
        ("2", "1", ""),
    ]
    assert 'n1 [label="while v0 > 0:"];' in dot


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_python_graphs_builds_the_same_graph() -> None:
    control_flow = pytest.importorskip("python_graphs.control_flow")
    programs = [p for length in (10, 30) for p in Sampler("full", Lengths.exact(length), seed=5).table(0, 1000)]
    programs += [parse(case[0]) for name, case in CASES.items() if name not in ("masked", "loop on itself")]
    for program in programs:
        theirs = {}
        for node in control_flow.get_control_flow_graph(format_program(program) + "\n").get_control_flow_nodes():
            ends = node.branches or dict.fromkeys((True, False), *node.next_from_end)
            lines = {branch: len(program) if end == "<exit>" else _line(end) for branch, end in ends.items()}
            theirs[_line(node)] = (lines[True], lines[False])
        graph = control_flow_graph(program)
        line_of = [*graph.nodes.tolist(), len(program)]
        ours = {line_of[n]: (line_of[graph.true[n]], line_of[graph.false[n]]) for n in range(graph.exit)}
        assert ours == theirs, format_program(program)


def _line(node: object) -> int:
    return int(node.instruction.node.lineno) - 1  # type: ignore[attr-defined]
