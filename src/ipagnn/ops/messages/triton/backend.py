"""Training on a CUDA GPU by the kernels of message passing, as a backend with gradients.

A training step that is captured (`training.message_step`) launches the same kernels over plans made beforehand.
"""

from importlib.util import find_spec

import torch

from ipagnn.ops.call import Result
from ipagnn.ops.messages.call import MessageCall


def refuses(call: MessageCall) -> str | None:
    """What the kernels do not compute, and machines that have none."""
    if call.messages is None:
        return "its kernels are for messages through Dense layers and an update by a GRU, as in the GGNN and NoExecute"
    if call.record:
        return "it computes final states alone"
    if not call.grad:
        return "it keeps the states of all steps, which only gradients need"
    weight = call.messages.embedding
    if weight.device.type != "cuda":
        return f"the weights are on {weight.device.type}"
    if weight.dtype != torch.float32:
        return f"the weights are {str(weight.dtype).removeprefix('torch.')}, not float32"
    return None if find_spec("triton") else "Triton is not installed"


def run(call: MessageCall) -> Result:
    """Plan the batch on the CPU, and run the kernels over the plan."""
    from ipagnn.ops.messages.triton.gated import GatedLauncher
    from ipagnn.ops.messages.triton.launcher import run_messages
    from ipagnn.ops.messages.triton.plan import MessagePlan
    from ipagnn.ops.pointer.triton.buffers import KernelWeights

    messages = call.messages
    assert messages is not None
    device = call.graphs.device
    made = MessagePlan.build(call.graphs.to("cpu"), call.tokens.cpu(), messages.kind)
    plan = MessagePlan.empty(made.capacity, device)
    plan.flat.copy_(made.flat)
    half = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16
    weights = KernelWeights(messages.embedding.shape[1], torch.bfloat16 if half else torch.float32, device)
    memory = torch.empty(GatedLauncher.bytes(weights, plan.capacity), dtype=torch.uint8, device=device)
    exact = not torch.backends.cuda.matmul.allow_tf32
    with torch.autocast("cuda", enabled=False):
        final = run_messages(GatedLauncher(messages, weights, plan, memory, exact=exact), messages.weights())
    return Result(final, {})
