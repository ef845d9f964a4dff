"""The reference execution of message passing: every node at every step. It never refuses; tests trust it."""

import torch

from ipagnn.data.graphs import edge_mask, node_graph
from ipagnn.ops.call import Result
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

    found = {"pointer": [p], "branch": [], "states": [readable()] if "states" in record else []}
    for t in range(max(graphs.steps.tolist(), default=0)):
        h_new, arrived, b = call.step(h, p)
        running = (t < graphs.steps)[owner]
        h = torch.where(running[:, None], h_new, h)
        p = torch.where(running, arrived, p)
        if "pointer" in record:
            found["pointer"].append(p)
        if "branch" in record:
            found["branch"].append(torch.where(running & decides, b[:, 0], torch.nan))
        if "states" in record:
            found["states"].append(readable())
    recorded = {
        name: torch.stack(found[name]) if found[name] else p.new_empty(0, len(p)) for name in record & found.keys()
    }
    return Result(call.final(h, p), recorded)
