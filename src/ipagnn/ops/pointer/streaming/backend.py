"""Inference on a CUDA GPU without unrolled rows, as a backend; `launcher.py` has what runs, and needs Triton."""

from importlib.util import find_spec

import torch
from torch import Tensor

from ipagnn.ops.call import PointerCall, Result


def refuses(call: PointerCall) -> str | None:
    """Training, other devices and cells, and what is known of rows alone."""
    if call.lstm is None:
        return "the cell is not the statement LSTM, starting from zeros and deciding between two by a Dense layer"
    if call.grad:
        return "it has no gradients"
    known = frozenset() if call.decide is None else {"pointer", "branch", "dropped"}
    if kept := sorted(call.record - known):
        return f"it does not record {kept[0]}"
    return missing(call.lstm.embedding)


def missing(weight: Tensor) -> str | None:
    """What it needs for weights like this one and has not, as a clause."""
    if weight.device.type != "cuda":
        return f"the weights are on {weight.device.type}"
    if weight.dtype != torch.float32 or torch.is_autocast_enabled("cuda"):
        return "it computes in float32 alone"
    return None if find_spec("triton") else "Triton is not installed"


def run(call: PointerCall) -> Result:
    """Run it."""
    from ipagnn.ops.pointer.streaming.launcher import run_streaming

    return run_streaming(call)
