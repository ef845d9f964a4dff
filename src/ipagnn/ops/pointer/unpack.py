"""From packed rows back to the axes of the paper, [step, node], for those who ask for a trace."""

from collections.abc import Collection

import torch
from torch import Tensor

from ipagnn.data.contract import Batch, Rows
from ipagnn.ops.pointer.equations import divide
from ipagnn.ops.pointer.packed import Packed


def unpack(packed: Packed, rows: Rows, batch: Batch, record: Collection[str], *, normalise: bool) -> dict[str, Tensor]:
    """Pointer, branch decisions and states, as far as `record` asks for them.

    Steps are those of the longest program; node-steps without a row are 0, or NaN for branch decisions.
    """
    if not {"pointer", "branch", "states"} & set(record):
        return {}
    assert packed.mass is not None
    assert packed.shares is not None
    assert packed.states is not None
    assert packed.proposals is not None
    device, nodes = rows.node.device, len(batch.node_line)
    last = len(rows.step_offsets) - 1 if rows.kind == "trace" else max(batch.steps.tolist(), default=0)
    sizes = torch.tensor(rows.step_offsets, device=device).diff()
    step = torch.repeat_interleave(torch.arange(len(sizes), device=device), sizes)  # of each row

    def place(values: Tensor, steps: int, background: float) -> Tensor:
        grid = values.new_full((steps, nodes, *values.shape[1:]), background)
        return grid.index_put((step, rows.node), values)

    # What arrived at each exit by each step: [step + 1, program, ...]
    edges = slice(int(rows.arrival_offsets[len(rows)]), None)
    arrivals = rows.arrivals[edges]
    program = torch.repeat_interleave(rows.arrival_offsets.diff())[edges] - len(rows)
    weight = (packed.mass[:, None] * packed.shares).flatten()[arrivals]

    def absorb(values: Tensor) -> Tensor:
        grid = values.new_zeros(last + 1, len(batch), *values.shape[1:])
        return grid.index_put((step[arrivals // 2] + 1, program), values, accumulate=True).cumsum(dim=0)

    absorbed = absorb(weight)
    exits = batch.exits.long()
    pointer = place(packed.mass, last + 1, 0.0).index_copy(1, exits, absorbed)
    decided = torch.where(rows.branches, packed.shares[:, 0], torch.nan)
    found = {"pointer": pointer, "branch": place(decided, last, torch.nan)}
    if "states" in record:
        total = absorb(weight[:, None] * packed.proposals[arrivals // 2])
        final = divide(total, absorbed) if normalise else total
        found["states"] = place(packed.states, last + 1, 0.0).index_copy(1, exits, final)
    return found
