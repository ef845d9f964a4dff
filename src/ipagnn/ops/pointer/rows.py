"""The rows of a batch: the node-steps that can matter; and their execution in plain torch, for any cell.

docs/specification.md, section 6.

The rows of one step, over all graphs, are one call of the cell. An exit needs no row: its final state is the sum over
everything that ever arrived, divided once. Gradients flow through everything, what is recorded included.
"""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from ipagnn.data.graphs import Graphs, Tensors
from ipagnn.ops._compiled.rows import build_rows
from ipagnn.ops.call import PointerCall, Result
from ipagnn.ops.pointer.equations import branch_decisions, divide, spread


@dataclass(frozen=True, slots=True)
class Rows(Tensors):
    """Node-steps (t, n), ordered by step, then by graph.

    Attributes:
        step_offsets: Step t computes the rows `step_offsets[t] : step_offsets[t + 1]`. Plain integers: the loop over
            steps runs on the host.
        node, graph: int32 [row]
        edges: Which successors of the node are edges; it decides where several are. bool [row, 2 or 3]
        target: Where each edge arrives: a row of the next step, or rows + i for the exit of graph i; -1 where there is
            no edge or the exit is out of reach. int32 [row, 2 or 3]
    """

    step_offsets: tuple[int, ...]
    node: Tensor
    graph: Tensor
    edges: Tensor
    target: Tensor

    def __len__(self) -> int:
        return self.step_offsets[-1]


def plan_rows(graphs: Graphs) -> Rows:
    """The node-steps that can matter to the final state of an exit."""
    fields = (graphs.successors, graphs.offsets, graphs.start, graphs.exits, graphs.steps)
    offsets, *made = build_rows(*(np.ascontiguousarray(x.numpy(force=True)) for x in fields))
    rows = Rows(tuple(offsets.tolist()), *map(torch.from_numpy, made))
    return rows if graphs.device.type == "cpu" else rows.to(graphs.device)


def steps_of_rows(rows: Rows) -> Tensor:
    """The step of each row. int64 [row]"""
    sizes = torch.tensor(rows.step_offsets, device=rows.node.device).diff()
    return torch.repeat_interleave(sizes, output_size=len(rows))


@dataclass(frozen=True, slots=True)
class Arrivals(Tensors):
    """Edges that arrive somewhere, by the row that they leave.

    Attributes:
        code: sides * row + side. int64 [edge]
        target: A row, or a graph whose exit it is. int64 [edge]
        step_offsets: Edges that leave step t.
    """

    code: Tensor
    target: Tensor
    step_offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Departures(Tensors):
    """All edges between rows, and from rows to exits."""

    to_rows: Arrivals
    to_exits: Arrivals


def plan_departures(graphs: Graphs) -> Departures:
    """The edges of the rows of graphs."""
    rows = graphs.plan(plan_rows)
    targets, sides, count = rows.target.flatten(), rows.target.shape[1], len(rows)
    ends = torch.tensor(rows.step_offsets, device=targets.device) * sides

    def arrivals(chosen: Tensor, first: int) -> Arrivals:
        code = chosen.nonzero().squeeze(1)
        return Arrivals(code, (targets[code] - first).long(), tuple(torch.searchsorted(code, ends).tolist()))

    return Departures(arrivals((targets >= 0) & (targets < count), 0), arrivals(targets >= count, count))


@dataclass(frozen=True, slots=True)
class RowValues:
    """What was computed for each row, to be recorded.

    Attributes:
        mass: p. [row]
        shares: Of its successors. [row, 2 or 3]
        states, proposals: h before it executes, and a after it; None where they were not kept. [row, *state]
    """

    mass: Tensor
    shares: Tensor
    states: Tensor | None = None
    proposals: Tensor | None = None


def refuses(call: PointerCall) -> str | None:
    """Pruning, for which rows are found as execution goes."""
    return "it plans all rows beforehand, and pruning finds them as execution goes" if call.prune else None


def run(call: PointerCall) -> Result:
    """Execute all rows, with any cell and any state."""
    graphs = call.graphs
    rows, departures = graphs.plan(plan_rows), graphs.plan(plan_departures)
    sides = rows.target.shape[1]
    at_exit = graphs.start == graphs.exits  # nothing to execute
    final, absorbed = torch.where(spread(at_exit, call.initial), call.initial, 0.0), at_exit.to(call.initial.dtype)
    values: list[tuple[Tensor, ...]] = []
    first_step = rows.graph[: rows.step_offsets[1]].long() if len(rows) else rows.graph.long()
    state, mass = call.initial[first_step], final.new_ones(len(first_step))
    for t, (first, end) in enumerate(pairwise(rows.step_offsets)):
        node = rows.node[first:end].long()
        a = call.execute(state, node)  # equation 3
        logits = a.new_zeros(len(node), sides) if call.decide is None else call.decide(a, node)
        shares = branch_decisions(logits, rows.edges[first:end], hard=call.hard)  # equation 4
        if call.record:
            values.append((mass, shares, state, a))
        weights = (mass[:, None] * shares).flatten()

        def arriving(
            edges: Arrivals, to: int, size: int, t: int = t, first: int = first, a: Tensor = a, w: Tensor = weights
        ) -> tuple[Tensor, Tensor]:
            """The sums of p·b·a and of p·b at destinations counted from `to`."""
            here = slice(edges.step_offsets[t], edges.step_offsets[t + 1])
            code, target = edges.code[here] - sides * first, edges.target[here] - to
            message = spread(w[code], a) * a[code // sides]
            total = message.new_zeros(size, *a.shape[1:]).index_add(0, target, message)  # equation 5
            return total, w.new_zeros(size).index_add(0, target, w[code])  # equation 6

        total, more = arriving(departures.to_exits, 0, len(graphs))
        final, absorbed = final + total, absorbed + more
        if end < len(rows):
            state, mass = arriving(departures.to_rows, end, rows.step_offsets[t + 2] - end)
            state = divide(state, mass) if call.normalise else state
    final = divide(final, absorbed) if call.normalise else final
    if not values:
        nothing = final.new_zeros(0, sides)
        values = [(nothing[:, 0], nothing, call.initial[:0], call.initial[:0])]
    found = RowValues(*(torch.cat(parts) for parts in zip(*values, strict=True)))
    recorded = record_rows(graphs, found, call.record, normalise=call.normalise, initial=call.initial)
    if "dropped" in call.record:
        recorded["dropped"] = final.new_zeros(len(graphs))
    return Result(final, recorded)


def record_rows(
    graphs: Graphs,
    values: RowValues,
    record: Collection[str],
    *,
    normalise: bool = True,
    initial: Tensor | None = None,
) -> dict[str, Tensor]:
    """From rows back to the axes of the paper, [step, node].

    Steps are those of the graph with the most; node-steps without a row are 0, or NaN for branch decisions.

    Args:
        graphs: The graphs.
        values: Of their rows.
        record: Any of `pointer`, `branch` and `states`; others are left out.
        normalise: Divide the states of exits by the mass that has arrived.
        initial: The state at the start of each graph; zeros if None. [graph, *state]
    """
    rows = graphs.plan(plan_rows)
    found: dict[str, Tensor] = {}
    if not {"pointer", "branch", "states"} & set(record):
        return found
    exits, node, step = graphs.exits.long(), rows.node.long(), steps_of_rows(rows)
    last = max(graphs.steps.tolist(), default=0)
    edge = (rows.target.flatten() >= len(rows)).nonzero().squeeze(1)  # to exits
    source, graph = edge // rows.target.shape[1], rows.target.flatten()[edge] - len(rows)
    weight = (values.mass[:, None] * values.shares).flatten()[edge]

    def place(what: Tensor, steps: int, background: float) -> Tensor:
        return what.new_full((steps, graphs.nodes, *what.shape[1:]), background).index_put((step, node), what)

    def absorbed(what: Tensor) -> Tensor:
        """What has arrived at each exit by each step. [step + 1, graph, ...]"""
        grid = what.new_zeros(last + 1, len(graphs), *what.shape[1:])
        return grid.index_put((step[source] + 1, graph.long()), what, accumulate=True).cumsum(dim=0)

    mass = absorbed(weight) + (graphs.start == graphs.exits)
    if "pointer" in record:
        found["pointer"] = place(values.mass, last + 1, 0.0).index_copy(1, exits, mass)
    if "branch" in record:
        decided = torch.where(rows.edges[:, 1:].any(dim=1), values.shares[:, 0], torch.nan)
        found["branch"] = place(decided, last, torch.nan)
    if "states" in record:
        assert values.states is not None
        assert values.proposals is not None
        total = absorbed(spread(weight, values.proposals) * values.proposals[source])
        if initial is not None:
            total = total + torch.where(spread(graphs.start == graphs.exits, initial), initial, 0.0)
        final = divide(total, mass) if normalise else total
        found["states"] = place(values.states, last + 1, 0.0).index_copy(1, exits, final)
    return found
