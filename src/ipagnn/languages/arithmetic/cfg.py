"""The control flow graph of a program, and the number of steps T(x) a model is given for it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ipagnn.languages.arithmetic._compiled.graph import GRAPH_SCRATCH, control_flow
from ipagnn.languages.arithmetic.program import Program, TokenArray
from ipagnn.languages.arithmetic.text import format_line, format_program
from ipagnn.languages.arithmetic.vocabulary import WHILE_OPERATIONS

if TYPE_CHECKING:
    import networkx  # type: ignore[import-untyped]

IndexArray = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False, slots=True)
class ControlFlowGraph:
    """One node per line, but none for `else:`, `pass`, `break` and `continue`; then the exit, its own successor.

    Attributes:
        program: The program the graph is of.
        nodes: int32 [node - 1]; index of the line of each node but the exit, which has none.
        true: int32 [node]; where control goes if the node's condition holds.
        false: int32 [node]; where it goes if not. Equal to `true` for a node that does not branch.
        node_tokens: int16 [node, token]; the tokens of each node's line, zeros for the exit.
    """

    program: Program
    nodes: IndexArray
    true: IndexArray
    false: IndexArray
    node_tokens: TokenArray

    def __len__(self) -> int:
        """Number of nodes, the exit included."""
        return len(self.true)

    @property
    def exit(self) -> int:
        """The exit node, which is the last."""
        return len(self.true) - 1

    @property
    def successors(self) -> IndexArray:
        """`true` and `false` side by side. [node, 2]"""
        return np.stack((self.true, self.false), axis=1)

    @property
    def labels(self) -> list[str]:
        """The text of each node's line without its indentation; `exit` for the exit."""
        lines = self.program.lines
        return [*(format_line(lines[i]) for i in self.nodes.tolist()), "exit"]

    @property
    def edges(self) -> list[tuple[int, int, bool | None]]:
        """Edges as (from, to, branch), in the order of their nodes; branch is None where the node does not branch.

        The exit's edge to itself is left out. A node whose two branches lead to the same place has both edges if its
        line is a condition.
        """
        edges: list[tuple[int, int, bool | None]] = []
        lines = self.program.lines
        for node, line in enumerate(self.nodes.tolist()):
            true, false = int(self.true[node]), int(self.false[node])
            if lines[line].operation.startswith(("if", "while")):
                edges += [(node, true, True), (node, false, False)]
            else:
                edges.append((node, true, None))
        return edges

    def to_networkx(self, target: int | None = None) -> "networkx.MultiDiGraph":
        """The graph with all that models read.

        Nodes have `label`, `line` (None for the exit) and `tokens` (four ids); edges have `branch`: True, False, or
        None where nothing is decided. The graph itself has `source`, `start`, `exit`, `steps` (T(x)) and `target`.

        Args:
            target: v0 at the end of the complete program, if it is known.
        """
        try:
            import networkx
        except ImportError as error:
            raise ImportError("to_networkx needs networkx; install it with `pip install networkx`.") from error
        graph = networkx.MultiDiGraph(
            source=format_program(self.program), start=0, exit=self.exit, steps=steps(self.program), target=target
        )
        rows = zip(self.labels, [*self.nodes.tolist(), None], self.node_tokens.tolist(), strict=True)
        for node, (label, line, tokens) in enumerate(rows):
            graph.add_node(node, label=label, line=line, tokens=tuple(tokens))
        for source, target_node, branch in self.edges:
            graph.add_edge(source, target_node, branch=branch)
        return graph

    def to_dot(self) -> str:
        """The graph in the DOT language of Graphviz."""
        rows = ["digraph program {", '  node [shape=box, fontname="monospace"];']
        for node, label in enumerate(self.labels):
            escaped = label.replace("\\", "\\\\").replace('"', '\\"')
            rows.append(f'  n{node} [label="{escaped}"{", shape=oval" if node == self.exit else ""}];')
        for source, target, branch in self.edges:
            label = "" if branch is None else f' [label="{str(branch).lower()}"]'
            rows.append(f"  n{source} -> n{target}{label};")
        return "\n".join([*rows, "}"])


def control_flow_graph(program: Program) -> ControlFlowGraph:
    """Build the graph of a program."""
    size = len(program) + 1
    node_lines, true, false = np.empty((3, size), np.int32)
    count = control_flow(program.line_tokens, node_lines, true, false, np.empty((GRAPH_SCRATCH, size), np.int32))
    nodes, true, false = node_lines[: count - 1].copy(), true[:count].copy(), false[:count].copy()
    node_tokens = np.zeros((count, program.line_tokens.shape[1]), np.int16)
    node_tokens[:-1] = program.line_tokens[nodes]
    arrays: list[npt.NDArray[Any]] = [nodes, true, false, node_tokens]
    for array in arrays:
        array.setflags(write=False)
    return ControlFlowGraph(program, nodes, true, false, node_tokens)


def steps(program: Program) -> int:
    """T(x), the number of steps the paper gives a model: 1 for the exit, 2^d for every line inside d loops, and
    2^(d+1) more for every `while`.

    Exact at any depth, where the compiled `graph_kernels.paper_steps` stops growing.
    """
    total = 1
    weights: list[int] = []  # by depth: what a line below a line of that depth counts
    for indent, operation in program.line_tokens[:, :2].tolist():
        depth = indent - 1
        weight = weights[depth - 1] if depth else 1
        total += weight
        if operation in WHILE_OPERATIONS:
            weight *= 2
            total += weight
        weights[depth:] = [weight]
    return total
