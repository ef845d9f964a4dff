"""The packed execution: only the node-steps that can matter, all programs of the batch side by side.

docs/specification.md, section 6.

The rows of one step, over the whole batch, make one matrix product per LSTM layer and token. A row has at most two
successors, among the rows of the next step or the exits; the data side has worked out which (`Rows`). An exit needs no
row: its final state is the sum over everything that ever arrived, divided once. `packed_step` has the arithmetic.
"""

from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ipagnn.data.contract import Rows
from ipagnn.nn.cell import Dense, StatementRNN
from ipagnn.ops.pointer.cpu.parts import Parts


@dataclass(frozen=True, slots=True)
class Packed:
    """What the packed execution computed. Gradients flow through `final` and `trace_loss` only.

    Attributes:
        final: The state of each exit at the end. [program, 4 * hidden]
        trace_loss: See `Output`; None where the rows do not tell what is taken. [program]
        mass: p of each row; None, as all that follow, where it was not to be kept. [row]
        shares: Shares of the true and the false branch; (1, 0) where nothing is decided. [row, 2]
        states: h of each row, before it executes. [row, 4 * hidden]
        proposals: a of each row, after it executed. [row, 4 * hidden]
    """

    final: Tensor
    trace_loss: Tensor | None = None
    mass: Tensor | None = None
    shares: Tensor | None = None
    states: Tensor | None = None
    proposals: Tensor | None = None


def run_packed(
    cell: StatementRNN,
    branch: Dense | None,
    rows: Rows,
    programs: int,
    *,
    hard: bool = False,
    normalise: bool = True,
    keep: bool = True,
) -> Packed:
    """Execute all rows.

    Args:
        cell: Executes a statement.
        branch: From the state after a statement to the logits of (true, false); None where rows decide nothing.
        rows: The plan.
        programs: Number of programs in the batch.
        hard: Decide by arg max.
        normalise: Divide arriving states by the mass that arrived. Rows that decide nothing carry all the mass, so for
            them the plain sum is exact and this should be False.
        keep: Keep what happened to the rows, rather than the final states alone.

    Returns:
        The final states, and what happened on the way.
    """
    if not len(rows):  # no program has steps enough to reach its exit
        nothing = cell.zero_state(0)
        final = cell.zero_state(programs)
        return Packed(final, None, nothing[:, 0], nothing[:, :2], nothing, nothing) if keep else Packed(final)
    used = None
    if rows.tokens.device.type == "cpu":  # a small batch has few of all tokens; a GPU would have to be waited for
        used, places = rows.tokens.unique(return_inverse=True)
        rows = replace(rows, tokens=places.to(rows.tokens.dtype))
    weights = [cell.table(used), cell.hidden_1, cell.input_2, cell.hidden_2, cell.bias_2]
    if branch is not None:
        weights += [branch.weight, branch.bias]
    learns = torch.is_grad_enabled() and any(weight.requires_grad for weight in weights)
    spare = None if keep else _spare.setdefault(cell, [])
    parts = Parts(rows, programs, hard=hard, normalise=normalise, keep=keep or learns, spare=spare)
    final, trace_loss = _Execute.apply(parts, *weights)  # type: ignore[no-untyped-call]
    trace_loss = None if rows.taken is None else trace_loss
    return Packed(final, trace_loss, *parts.told()) if keep else Packed(final, trace_loss)


_spare: WeakKeyDictionary[StatementRNN, list[Tensor]] = WeakKeyDictionary()
"""Memory of training steps that are over, for the next one; it goes when the model goes."""


class _Execute(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parts: Parts, *weights: Tensor) -> tuple[Tensor, Tensor]:
        ctx.parts = parts
        return parts.forward(*weights)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return (None, *ctx.parts.backward(*gradients))
