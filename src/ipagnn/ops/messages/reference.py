"""The reference execution of message passing: every node at every step. It never refuses; tests trust it."""

import torch

from ipagnn.data.graphs import edge_mask, node_graph
from ipagnn.ops.call import Result, Series
from ipagnn.ops.messages.call import MessageCall


def refuses(call: MessageCall) -> str | None:
    """Nothing."""
    return None


def run(call: MessageCall) -> Result:
    """T(x) steps; a graph whose steps are over stands still."""
    graphs, record = call.graphs, call.record
    owner, decides = node_graph(graphs), edge_mask(graphs)[:, 1]
    exits = graphs.exits.long()
    h, p = call.start()

    def readable() -> torch.Tensor:
        """The states, those of the exits as the output layer would read them now. [node, state]"""
        return h.index_copy(0, exits, call.final(h, p))

    steps = max(graphs.steps.tolist(), default=0)
    found = {name: Series(steps + (name != "branch")) for name in ("pointer", "branch", "states") if name in record}
    if "pointer" in record:
        found["pointer"].add(p)
    if "states" in record:
        found["states"].add(readable())
    for t in range(steps):
        h_new, arrived, b = call.step(h, p)
        running = (t < graphs.steps)[owner]
        h = torch.where(running[:, None], h_new, h)
        p = torch.where(running, arrived, p)
        if "pointer" in record:
            found["pointer"].add(p)
        if "branch" in record:
            found["branch"].add(torch.where(running & decides, b[:, 0], torch.nan))
        if "states" in record:
            found["states"].add(readable())
    return Result(call.final(h, p), {name: series.stacked(p) for name, series in found.items()})
