"""Training on a CUDA GPU by the kernels of `launcher.py`, or of `hopper/`, as backends with gradients.

A training step that is captured (`training.graph_step`) launches the same kernels without autograd.
"""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from ipagnn.ops.call import PointerCall, Result, StatementLSTM
from ipagnn.ops.pointer import rows
from ipagnn.ops.pointer.rows import plan_rows


def refuses_triton(call: PointerCall) -> str | None:
    """What these kernels do not compute, and machines that have none."""
    lstm = call.lstm
    if lstm is None:
        return "the cell is not the statement LSTM, starting from zeros and deciding between two by a Dense layer"
    if call.prune:
        return "it plans all rows beforehand, and pruning finds them as execution goes"
    if call.record:
        return "it computes final states alone"
    if lstm.embedding.device.type != "cuda":
        return f"the weights are on {lstm.embedding.device.type}"
    if lstm.embedding.dtype != torch.float32:
        return f"the weights are {str(lstm.embedding.dtype).removeprefix('torch.')}, not float32"
    return None if find_spec("triton") else "Triton is not installed"


def refuses_hopper(call: PointerCall) -> str | None:
    """The same, other GPUs than Hopper's, and products that are not in bf16."""
    if (why := refuses_triton(call)) is not None:
        return why
    assert call.lstm is not None
    device = call.lstm.embedding.device
    if torch.cuda.get_device_capability(device) != (9, 0):
        return "the GPU is not of the Hopper generation"
    if not torch.is_autocast_enabled("cuda") or torch.get_autocast_dtype("cuda") != torch.bfloat16:
        return "products are not in bf16; call it within torch.autocast"
    return None if call.lstm.hidden < 256 else f"it has room for up to 255 hidden units, not {call.lstm.hidden}"


def run_triton(call: PointerCall) -> Result:
    """Run it with one group of programs."""
    return _run(call, hopper=False)


def run_hopper(call: PointerCall) -> Result:
    """Run it with a group of programs for each cluster of the GPU."""
    return _run(call, hopper=True)


def _run(call: PointerCall, *, hopper: bool) -> Result:
    lstm = call.lstm
    assert lstm is not None
    if not len(call.graphs.plan(plan_rows)):  # no program has steps enough to reach its exit
        return rows.run(call)
    launcher = _launcher(call, lstm, hopper=hopper)
    decides = lstm.branch_weight is not None and lstm.branch_bias is not None
    branch = (lstm.branch_weight, lstm.branch_bias) if decides else _no_branch(lstm)
    with torch.autocast("cuda", enabled=False):
        weights = (lstm.table(), lstm.hidden_1, lstm.input_2, lstm.hidden_2, lstm.bias_2, *branch)
        final: Tensor = _Walk.apply(launcher, *weights)  # type: ignore[no-untyped-call]
    return Result(final, {})


def _no_branch(lstm: StatementLSTM) -> tuple[Tensor, Tensor]:
    return lstm.bias_2.new_zeros(4 * lstm.hidden, 2), lstm.bias_2.new_zeros(2)


def _launcher(call: PointerCall, lstm: StatementLSTM, *, hopper: bool) -> Any:
    """What launches the kernels over the plan of the call."""
    from ipagnn.ops.pointer.triton.buffers import Buffers, KernelWeights
    from ipagnn.ops.pointer.triton.plan import Plan

    device = lstm.embedding.device
    half = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16
    weights = KernelWeights(lstm.hidden, torch.bfloat16 if half else torch.float32, device)
    options = {"hard": call.hard, "normalise": call.normalise, "exact": not torch.backends.cuda.matmul.allow_tf32}
    groups = 1
    if hopper:
        from ipagnn.ops.pointer.hopper import launcher as kernels

        groups = kernels.groups(weights, len(call.graphs))
        make: Any = kernels.HopperLauncher
    else:
        from ipagnn.ops.pointer.triton.launcher import Launcher as make
    made = Plan.build(call.graphs.to("cpu"), lstm.tokens.cpu(), groups=groups)
    plan = Plan.empty(made.capacity, device)
    plan.flat.copy_(made.flat)
    buffers = Buffers(weights, made.capacity.rows, made.capacity.programs)
    return make(weights, buffers, plan, **options)


class _Walk(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, launcher: Any, *weights: Tensor) -> Tensor:
        from ipagnn.ops.pointer.triton.launcher import Parameters

        ctx.launcher = launcher
        ctx.shapes = [weight.shape for weight in weights]
        launcher.load(Parameters(*(weight.detach().contiguous() for weight in weights)))
        launcher.forward()
        final: Tensor = launcher.buffers.final[:, :, : launcher.weights.hidden].flatten(1).clone()
        return final

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        from ipagnn.ops.pointer.triton.launcher import Parameters

        if ctx.launcher is None:
            raise RuntimeError("These kernels can go backwards once only; call the model again for a second time.")
        (d_final,) = gradients
        found = Parameters(*(torch.empty(shape, device=d_final.device) for shape in ctx.shapes))
        side = torch.cuda.Stream(d_final.device)
        ctx.launcher.backward(d_final.contiguous(), found, side)
        torch.cuda.current_stream(d_final.device).wait_stream(side)
        ctx.launcher = None  # where the gates were are gradients now
        return (None, *found.all())
