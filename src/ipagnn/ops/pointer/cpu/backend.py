"""The compiled execution on a CPU: rows of the statement LSTM, forwards and backwards by hand."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from ipagnn.ops.call import PointerCall, Result
from ipagnn.ops.pointer import rows as any_cell
from ipagnn.ops.pointer.cpu.math import product
from ipagnn.ops.pointer.rows import plan_rows, record_rows

if TYPE_CHECKING:
    from ipagnn.ops.pointer.cpu.parts import Parts

OF_ROWS = frozenset({"pointer", "branch", "states"})
"""What is recorded of each row, without gradients."""


def refuses(call: PointerCall) -> str | None:
    """Other cells and devices, pruning, types without a compiled product, and gradients of what is recorded."""
    if call.lstm is None:
        return "the cell is not the statement LSTM, starting from zeros and deciding between two by a Dense layer"
    if call.graphs.device.type != "cpu":
        return f"the graphs are on {call.graphs.device.type}"
    if call.prune:
        return "it plans all rows beforehand, and pruning finds them as execution goes"
    if call.grad and call.record & OF_ROWS:
        return "gradients do not flow through what it records"
    kind = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else call.lstm.hidden_1.dtype
    if kind != call.lstm.bias_2.dtype or product(kind) is None:
        return f"it has no compiled matrix product in {str(kind).removeprefix('torch.')}"
    return None


def run(call: PointerCall) -> Result:
    """Run all rows."""
    from ipagnn.ops.pointer.cpu.parts import Parts

    rows, lstm = call.graphs.plan(plan_rows), call.lstm
    assert lstm is not None
    if not len(rows):  # no program has steps enough to reach its exit
        return any_cell.run(call)
    used, places = lstm.tokens[rows.node].unique(return_inverse=True)  # a small batch has few of all tokens
    weights = [lstm.table(used), lstm.hidden_1, lstm.input_2, lstm.hidden_2, lstm.bias_2]
    if lstm.branch_weight is not None and lstm.branch_bias is not None:
        weights += [lstm.branch_weight, lstm.branch_bias]
    learns = torch.is_grad_enabled() and any(weight.requires_grad for weight in weights)
    kept = bool(call.record & OF_ROWS)
    spare = None if kept else _spare.setdefault(lstm.hidden_1, [])
    parts = Parts(
        rows,
        places.to(torch.int32),
        len(call.graphs),
        hard=call.hard,
        normalise=call.normalise,
        keep=kept or learns,
        spare=spare,
    )
    final: Tensor = _Execute.apply(parts, *weights)  # type: ignore[no-untyped-call]
    recorded: dict[str, Tensor] = {}
    if kept:
        recorded = record_rows(call.graphs, parts.values(), call.record, normalise=call.normalise)
    if "dropped" in call.record:
        recorded["dropped"] = final.new_zeros(len(final))
    return Result(final, recorded)


_spare: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
"""Memory of training steps that are over, for the next one, by the weights they had; it goes when these go."""


class _Execute(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parts: "Parts", *weights: Tensor) -> Tensor:
        ctx.parts = parts
        return parts.forward(*weights)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return (None, *ctx.parts.backward(*gradients))
