"""Triton kernels that a GPU runs, in Triton's interpreter: those of the packed rows, the loss, the metrics and Adam.

The interpreter must be asked for before Triton is imported, so each test is a process of its own.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed; the extra `test-all` brings it"),
]

WITHOUT_A_GPU = """
import contextlib, sys, types, torch

class Stream:
    def __init__(self, *_): pass
    def wait_stream(self, _): pass

torch.cuda.get_device_properties = lambda _: types.SimpleNamespace(multi_processor_count=1)
torch.cuda.current_stream = torch.cuda.Stream = Stream
torch.cuda.stream = lambda _: contextlib.nullcontext()
"""

COMPARED = """
from ipagnn.languages.arithmetic import Lengths, Sampler

model = build_model(sys.argv[1], hidden=8, seed=3)
for key, parameter in model.named_parameters():
    parameter.data *= 4 if "branch.weight" in key else 1
batch = model.collate(Sampler("full", Lengths.uniform((2, 4)), seed=5).table(0, 2))
found = []
for execution in (plain, "triton"):
    logits = model(batch, execution=execution).logits
    loss = torch.nn.functional.cross_entropy(logits, batch.target)
    found.append([logits, *torch.autograd.grad(loss, list(model.parameters()))])
for wanted, ours in zip(*found, strict=True):
    assert wanted.norm() > 0
    assert (ours - wanted).norm() < tolerance * wanted.norm()
"""

ROWS = (
    """
from ipagnn import ops
from ipagnn.models import build_model

ops.BACKENDS = tuple(
    ops.Backend(x.name, (lambda _: None) if x.name == "triton" else x.refuses, x.run) for x in ops.BACKENDS
)
plain, tolerance = "rows", 1e-4
"""
    + COMPARED
)

MESSAGES = (
    """
from ipagnn import ops
from ipagnn.models import build_model
from ipagnn.ops.messages.triton import launcher

ops.MESSAGE_BACKENDS = tuple(ops.Backend(x.name, lambda _: None, x.run) for x in ops.MESSAGE_BACKENDS)
torch.backends.cuda.matmul.allow_tf32 = False
launcher.EXACT_TILE = launcher.Tile(16, 64, 64, 4, 2)
plain, tolerance = "reference", 1e-3
"""
    + COMPARED
)

LOSS = """
from torch.nn.functional import cross_entropy
from ipagnn.training.optim.triton import losses, tally
from ipagnn.training.step import Tally

draw = torch.Generator().manual_seed(0)
logits, bias = 4 * torch.randn(9, 70, generator=draw), torch.randn(70, generator=draw)
target = torch.randint(70, (9,), generator=draw)
target[:4] = (logits + bias)[:4].argmax(dim=1)
wanted = (logits + bias).requires_grad_()
cross_entropy(wanted, target).backward()
loss, correct, gradient = losses(logits, target.int(), bias, torch.float32)
torch.testing.assert_close(loss, cross_entropy(wanted, target, reduction="none"))
torch.testing.assert_close(gradient, wanted.grad)
assert torch.equal(correct > 0, wanted.argmax(dim=1) == target)
plain, fused = Tally(torch.device("cpu")), Tally(torch.device("cpu"))
for failed in (0.0, 1.0, 0.0):
    bad = torch.tensor(failed)
    plain.add(loss, correct, loss.sum(), bad)
    tally(fused.flat, loss, correct, loss.sum(), bad)
torch.testing.assert_close(fused.flat, plain.flat, rtol=1e-5, atol=0.0)
"""

ADAM = """
from ipagnn.training.optim.triton import FusedAdam

draw = torch.Generator().manual_seed(0)
weights, rate = torch.randn(700, generator=draw), 0.1
theirs = torch.nn.Parameter(weights.clone())
adam = torch.optim.Adam([theirs], lr=rate)
ours = FusedAdam({"betas": (0.9, 0.999), "eps": 1e-8}, 10.0, torch.device("cpu"))
state = {"step": torch.zeros(()), "exp_avg": torch.zeros(700), "exp_avg_sq": torch.zeros(700)}
applied = torch.zeros((), dtype=torch.float64)
for i in range(5):
    gradient = torch.randn(700, generator=draw)
    if i == 2:
        gradient[3] = torch.nan
    ours(weights, gradient, state, applied, torch.tensor(rate), limit=1e6, clip=5.0, average=None, decay=0.0)
    assert ours.failed == (i == 2)
    if i != 2:
        theirs.grad = gradient / max(float(gradient.norm()) / 5.0, 1.0)
        adam.step()
torch.testing.assert_close(weights, theirs.data, rtol=1e-5, atol=1e-6)
"""


@pytest.mark.parametrize(
    ("code", "argument"),
    [
        (ROWS, "ipa-gnn"),
        (ROWS, "hard-ip-rnn"),
        (ROWS, "trace-rnn"),
        (MESSAGES, "ggnn"),
        (MESSAGES, "no-execute"),
        (LOSS, ""),
        (ADAM, ""),
    ],
    ids=["ipa-gnn", "hard-ip-rnn", "trace-rnn", "ggnn", "no-execute", "loss and metrics", "Adam"],
)
def test_kernels_compute_what_torch_does(code: str, argument: str) -> None:
    command = [sys.executable, "-c", WITHOUT_A_GPU + code, argument]
    done = subprocess.run(
        command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_message_kernels_compute_what_torch_does() -> None:
    """The tests of `test_message_triton.py`, which need a GPU otherwise."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, str(Path(__file__).with_name("test_message_triton.py"))],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert " passed" in done.stdout
