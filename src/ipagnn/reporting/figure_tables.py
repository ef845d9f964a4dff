"""The two figures about how programs are read: their representation (figure 1) and the models' paths (figure 2)."""

from itertools import pairwise
from typing import Final

import numpy as np
import torch
from matplotlib.figure import Figure

from ipagnn.languages.arithmetic import Program, control_flow_graph, trace
from ipagnn.models import ProgramModel
from ipagnn.reporting.columns import (
    BRANCHES,
    Edge,
    graph_column,
    graph_edges,
    numbers_column,
    source_column,
    table_figure,
    text_column,
)
from ipagnn.reporting.style import BLUE, style

_SHARES: Final = (0.35, 0.65)
"""Soft branch decision (true, false) that is drawn where no model says another."""
_WIDTH = 0.6


def representation_figure(program: Program) -> Figure:
    """Each line of a program with its four tokens, its place in the control flow graph, N_in and N_out."""
    edges, lines = graph_edges(program)
    count = len(program) + 1
    exit_line = len(program)
    tokens: list[tuple[str, str, str, str]] = []
    for line in program.lines:
        variable = "-" if line.variable is None else f"v{line.variable}"
        tokens.append((str(line.indent), line.operation, variable, "-" if line.operand is None else str(line.operand)))
    tokens.append(("-", "-", "-", "-"))
    out: dict[int, set[int]] = {line: set() for line in lines}
    into: dict[int, set[int]] = {line: set() for line in lines}
    for edge in [*edges, Edge(exit_line, exit_line)]:
        out[edge.source].add(edge.target)
        into[edge.target].add(edge.source)
    titles = ("indent", "operation", "variable", "operand")
    columns = [
        numbers_column(count),
        source_column(program),
        *(text_column(title, [t[k] for t in tokens], align="center") for k, title in enumerate(titles)),
        graph_column("CFG", edges, lines, width=_WIDTH),
        text_column("$N_{in}(n)$", [_set(into.get(row)) for row in range(count)]),
        text_column("$N_{out}(n)$", [_set(out.get(row)) for row in range(count)]),
    ]
    with style():
        return table_figure([[columns]], [[count]], BRANCHES)


def _set(members: set[int] | None) -> str:
    """A set of lines; nothing for a line without a node."""
    if members is None:
        return ""
    return "{" + ", ".join(map(str, sorted(members))) + "}" if members else "∅"


def paths_figure(program: Program, model: ProgramModel | None = None) -> Figure:
    """Along which paths information flows in each model, for one program.

    Pills mark learned branch decisions. The decisions of the Hard IP-RNN are drawn wrong, and those of the IPA-GNN with
    made-up shares, unless `model` says what they are.

    Args:
        program: A complete program.
        model: An IPA-GNN whose decisions are drawn; the Hard IP-RNN takes its likelier branches.
    """
    count, exit_line = len(program) + 1, len(program)
    edges, lines = graph_edges(program)
    decisions = sorted({e.source for e in edges if e.dashed})
    shares = dict.fromkeys(decisions, _SHARES) if model is None else _decisions(model, program, decisions)
    followed = [step.line for step in trace(program)] + [exit_line]
    true_branch = {step.line: step.branch for step in trace(program) if step.branch is not None}

    def takes(edge: Edge) -> bool:
        """Whether the Hard IP-RNN goes this way."""
        if edge.source not in shares:
            return True
        if model is None:
            return edge.dashed == true_branch.get(edge.source, False)
        return edge.dashed == (shares[edge.source][1] > shares[edge.source][0])

    def weigh(edge: Edge) -> Edge:
        if edge.source not in shares:
            return edge
        share = shares[edge.source][int(edge.dashed)]
        return Edge(edge.source, edge.target, edge.dashed, width=0.4 + 1.8 * share, colour=BLUE)

    hard = _reached([edge for edge in edges if takes(edge)])
    pairs = dict.fromkeys(pairwise(followed))
    columns = [
        numbers_column(count),
        source_column(program),
        graph_column("CFG", edges, lines, width=_WIDTH),
        graph_column("Line-by-Line RNN", [Edge(i, i + 1) for i in range(count - 1)], range(count), width=_WIDTH),
        graph_column("Trace RNN", [Edge(a, b) for a, b in pairs], sorted(set(followed)), width=_WIDTH),
        graph_column("Hard IP-RNN", hard, sorted({0} | {e.target for e in hard}), decisions, width=_WIDTH),
        graph_column("IPA-GNN", [weigh(edge) for edge in edges], lines, decisions, width=_WIDTH),
        graph_column("GGNN", [Edge(e.source, e.target, e.dashed, both=True) for e in edges], lines, width=_WIDTH),
    ]
    with style():
        return table_figure([[columns]], [[count]], f"{BRANCHES}; pills: learned branch decisions")


def _reached(edges: list[Edge]) -> list[Edge]:
    """The edges that can be reached from line 0 along the others."""
    seen, waiting = {0}, [0]
    while waiting:
        here = waiting.pop()
        for edge in edges:
            if edge.source == here and edge.target not in seen:
                seen.add(edge.target)
                waiting.append(edge.target)
    return [edge for edge in edges if edge.source in seen]


def _decisions(model: ProgramModel, program: Program, lines: list[int]) -> dict[int, tuple[float, float]]:
    """The shares of the true and the false branch at each line, a step weighing what the pointer gives it."""
    if not {"pointer", "branch"} <= model.records:
        raise ValueError(f"The model {model.name} makes no branch decisions; choose ipa-gnn or hard-ip-rnn.")
    batch = model.collate([program])
    with torch.inference_mode():
        output = model(batch.to(next(model.parameters()).device), record=("pointer", "branch"))
    pointer, branch = (output[name].cpu().numpy().astype(np.float64) for name in ("pointer", "branch"))
    node_of = {line: node for node, line in enumerate(control_flow_graph(program).nodes.tolist())}
    shares = {}
    for line in lines:
        mass = pointer[:-1, node_of[line]]
        true = branch[:, node_of[line]]
        known = ~np.isnan(true) & (mass[: len(true)] > 0)
        part = float(np.average(true[known], weights=mass[: len(true)][known])) if known.any() else 0.5
        shares[line] = (part, 1 - part)
    return shares
