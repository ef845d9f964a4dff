"""The kernels of message passing against the dense form, on a GPU or, with TRITON_INTERPRET=1, in Triton's interpreter.

The interpreter wants Triton on a machine without a GPU, and half a minute a case.
"""

import os
from importlib.util import find_spec

import pytest
import torch

from ipagnn.languages.arithmetic.grammar import Lengths
from ipagnn.languages.arithmetic.sampler import Sampler
from ipagnn.models import build_model
from ipagnn.models.message_passing import MessagePassing
from ipagnn.ops.messages.triton.plan import MessagePlan

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = pytest.mark.skipif(
    find_spec("triton") is None or not (torch.cuda.is_available() or INTERPRETED),
    reason="needs Triton, and a CUDA GPU or TRITON_INTERPRET=1",
)

CASES = [
    ("ggnn", {}),
    ("no-execute", {}),
    ("no-execute", {"normalise": False}),
    ("no-execute", {"absorbing_exit": True}),
    ("no-execute", {"absorbing_exit": True, "normalise": False}),
]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    if not INTERPRETED:
        return torch.device("cuda")
    from ipagnn.ops.messages.triton import launcher as message_cuda

    monkeypatch.setattr(message_cuda, "multiprocessors", lambda device: 1)
    monkeypatch.setattr(message_cuda, "EXACT_TILE", message_cuda.Tile(16, 64, 64, 4, 2))
    return torch.device("cpu")


@pytest.mark.parametrize(("name", "options"), CASES)
def test_kernels_compute_the_dense_form(name: str, options: dict, device: torch.device) -> None:
    from ipagnn.ops.messages.triton.gated import GatedLauncher
    from ipagnn.ops.messages.triton.launcher import run_messages
    from ipagnn.ops.pointer.triton.buffers import KernelWeights

    model = build_model(name, hidden=20, **options)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "bias" in key:
                parameter.normal_(std=0.3, generator=generator)
            if "branch.weight" in key:
                parameter *= 4
    count = 3 if INTERPRETED else 200
    batch = model.collate(Sampler(lengths=Lengths.exact(8), seed=5).table(0, count))
    assert isinstance(model, MessagePassing)
    how = model.kernels
    assert how is not None
    made = MessagePlan.build(batch.graphs, batch.node_tokens, how.kind)
    model = model.to(device)
    plan = MessagePlan.empty(made.capacity, device)
    plan.flat.copy_(made.flat)
    weights = KernelWeights(20, torch.float32, device)
    size = GatedLauncher.bytes(weights, plan.capacity)
    memory = torch.full((size // 4,), torch.nan, device=device).view(torch.uint8)  # nothing may be read unwritten
    logits = model.output(run_messages(GatedLauncher(how, weights, plan, memory, exact=True), how.weights()))
    direction = torch.randn(logits.shape, generator=generator).to(device)
    parameters = dict(model.named_parameters())
    ours = torch.autograd.grad((logits * direction).sum(), list(parameters.values()))
    dense = model(batch.to(device)).logits
    theirs = torch.autograd.grad((dense * direction).sum(), list(parameters.values()))
    torch.testing.assert_close(logits, dense, rtol=1e-4, atol=1e-4)
    for key, one, other in zip(parameters, ours, theirs, strict=True):
        assert other.abs().max() > 1e-6
        torch.testing.assert_close(one, other, rtol=1e-3, atol=2e-5 * float(other.abs().max()), msg=key)
