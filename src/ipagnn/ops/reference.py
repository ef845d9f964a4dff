"""The reference execution: the paper's equations over all nodes at every step. It never refuses; tests trust it."""

import torch
from torch import Tensor

from ipagnn.data.graphs import edge_mask, node_graph
from ipagnn.ops.call import PointerCall, Result, Series
from ipagnn.ops.pointer.equations import branch_decisions, divide, spread
from ipagnn.ops.pointer.streaming.plan import steps_to_exit


def refuses(call: PointerCall) -> str | None:
    """Nothing."""
    return None


def run(call: PointerCall) -> Result:
    """Equations 3 to 6, T(x) times; a graph whose steps are over stands still.

    The exit is not executed. It keeps the sum of what arrives, which is divided once, at the end.
    """
    graphs = call.graphs
    owner, edges = node_graph(graphs), edge_mask(graphs)
    exits, last = graphs.exits.long(), graphs.steps[owner] - steps_to_exit(graphs)
    is_exit = torch.zeros_like(edges[:, 0]).index_fill(0, exits, True)
    nodes = torch.arange(graphs.nodes, device=graphs.device)
    source = torch.cat([nodes[edges[:, side]] for side in range(edges.shape[1])])  # [edge]
    target = torch.cat([graphs.successors[edges[:, side], side] for side in range(edges.shape[1])])
    side = torch.repeat_interleave(edges.sum(dim=0))

    h = call.initial.new_zeros(graphs.nodes, *call.initial.shape[1:])
    h = h.index_copy(0, graphs.start.long(), call.initial)
    p = h.new_zeros(graphs.nodes).index_fill(0, graphs.start.long(), 1.0)
    dropped = p.new_zeros(len(graphs))
    steps = max(graphs.steps.tolist(), default=0)
    kept = call.record & {"pointer", "branch", "states"}
    series = {name: Series(steps + (name != "branch")) for name in kept}
    if "pointer" in call.record:
        series["pointer"].add(p)
    if "states" in call.record:
        series["states"].add(_readable(h, p, call))
    decided = edges[:, 1:].any(dim=1)
    for t in range(steps):
        running = (t < graphs.steps)[owner]
        a = torch.where(spread(is_exit, h), h, call.execute(h, nodes))  # equation 3
        logits = p.new_zeros(edges.shape) if call.decide is None else call.decide(a, nodes)
        b = branch_decisions(logits, edges, hard=call.hard)  # equation 4
        weight = p[source] * b[source, side]  # p_{t-1,n'} · b_{t,n',n}
        arrived = torch.zeros_like(p).index_add(0, target, weight)  # equation 6
        weight = torch.where(is_exit[source], 0.0, weight)  # what an exit keeps is no message
        total = torch.zeros_like(a).index_add(0, target, spread(weight, a) * a[source])  # equation 5
        arriving = divide(total, arrived) if call.normalise else total
        if call.prune:
            small = ~is_exit & (arrived < call.prune)
            dropped = dropped.index_add(0, owner, torch.where(small & (t + 1 <= last), arrived, 0.0))
            arriving, arrived = torch.where(spread(small, h), 0.0, arriving), torch.where(small, 0.0, arrived)
        h = torch.where(spread(running, h), torch.where(spread(is_exit, h), a + total, arriving), h)
        p = torch.where(running, arrived, p)
        if "pointer" in call.record:
            series["pointer"].add(p)
        if "branch" in call.record:
            series["branch"].add(torch.where(running & decided, b[:, 0], torch.nan))
        if "states" in call.record:
            series["states"].add(_readable(h, p, call))
    recorded = {name: each.stacked(p) for name, each in series.items()}
    if "dropped" in call.record:
        recorded["dropped"] = dropped
    return Result(_readable(h, p, call)[exits], recorded)


def _readable(h: Tensor, p: Tensor, call: PointerCall) -> Tensor:
    """The states, those of the exits divided by the mass there. [node, *state]"""
    exits = call.graphs.exits.long()
    return h.index_copy(0, exits, divide(h[exits], p[exits])) if call.normalise else h
