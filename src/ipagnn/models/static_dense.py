"""Inference over all nodes at every step, without the host between steps: a CUDA graph of one step, replayed.

Programs that have ended stand still. They come last, and when half the nodes belong to them the graph is captured anew
without them.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from ipagnn.data.contract import Batch
from ipagnn.models.base import ProgramModel
from ipagnn.models.message_passing import Edges, MessagePassing
from ipagnn.models.output import Output, recorded
from ipagnn.models.r_gat import RGAT
from ipagnn.ops.pointer.streaming.plan import by_steps, first_programs

Step = Callable[[], None]


@torch.no_grad()
def run_all_nodes(model: ProgramModel, batch: Batch, *, record: Iterable[str] = ()) -> Output:
    """What `model` says about a batch with its dense execution; a GPU or not, the same but for rounding.

    Args:
        model: One that runs over all nodes: of the paper's table of message passing, or the R-GAT.
        batch: The programs, on the model's device.
        record: Any of `pointer` and `branch`, if the model has a pointer.
    """
    ordered, order, origin = by_steps(batch)
    steps: list[int] = ordered.steps.tolist()
    clock = torch.zeros(1, dtype=torch.int64, device=origin.device)
    if isinstance(model, RGAT):
        state = [model.start(ordered).clone()]
        pointer = branch = None
    elif isinstance(model, MessagePassing):
        state = list(model.start(ordered))
        told = bool(record) and model.control.has_pointer
        size = steps[0] if steps and told else 0
        pointer = state[1].new_zeros(size + 1, len(origin)) if told else None
        branch = state[1].new_full((size, len(origin)), torch.nan) if told else None
        if pointer is not None:
            pointer[0] = state[1]
    else:
        raise ValueError(f"The model {model.name!r} does not run over all nodes; call it instead.")

    t, programs = 0, len(steps)
    while t < max(steps, default=0):
        part = first_programs(ordered, programs)
        # On with these until at most half of their nodes are left.
        half = int(torch.searchsorted(ordered.node_offsets, len(part.true) // 2, right=True)) - 1
        until = steps[half]
        _replay(_step(model, part, clock, state, pointer, branch), until - t, clock)
        t = until
        programs = sum(1 for each in steps[:programs] if each > t)

    if isinstance(model, RGAT):
        final = state[0][ordered.exits]
    else:
        assert isinstance(model, MessagePassing)
        final = model.control.final(state[0], state[1], ordered)
    backwards = order.argsort()
    if pointer is not None and branch is not None:
        over = torch.arange(len(pointer), device=origin.device)[:, None] > ordered.steps[ordered.node_program]
        columns = origin.argsort()
        pointer, branch = torch.where(over, state[1], pointer)[:, columns], branch[:, columns]
        found = {"pointer": pointer, "branch": branch}
    else:
        found = {}
    return Output({"value": model.output(final)[backwards]}, recorded(found, record))


def _step(
    model: ProgramModel, batch: Batch, clock: Tensor, state: list[Tensor], pointer: Tensor | None, branch: Tensor | None
) -> Step:
    """One step of the programs of `batch`, whose nodes come first in `state` and in the trace."""
    state = [part[: len(batch.true)] for part in state]
    steps = batch.steps[batch.node_program]
    if isinstance(model, RGAT):
        all_edges = Edges.both_ways(batch)

        def attend() -> None:
            new = model.step(state[0], all_edges)
            state[0].copy_(torch.where((clock < steps)[:, None], new, state[0]))
            clock.add_(1)

        return attend
    assert isinstance(model, MessagePassing)
    table, edges, decides = model.cell.table(), model.control.edges(batch), batch.true != batch.false

    def step() -> None:
        h, p = state
        new, arrived, b = model.step(h, p, table, batch, edges)
        running = clock < steps
        h.copy_(torch.where(running[:, None], new, h))
        p.copy_(torch.where(running, arrived, p))
        if pointer is not None and branch is not None:
            pointer[:, : len(p)].index_copy_(0, clock + 1, p[None])
            branch[:, : len(p)].index_copy_(0, clock, torch.where(running & decides, b[:, 0], torch.nan)[None])
        clock.add_(1)

    return step


def _replay(step: Step, times: int, clock: Tensor) -> None:
    """Take a step so many times; on a GPU the first time as it is, and then as a graph."""
    if clock.device.type != "cuda" or times < 4:
        for _ in range(times):
            step()
        return
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for _ in range(times - 1):
        graph.replay()
