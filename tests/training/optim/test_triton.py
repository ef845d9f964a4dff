"""The kernels around a captured step must do what torch's operations do. Needs a CUDA GPU; skipped elsewhere."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from ipagnn.training import TrainConfig
from ipagnn.training.optim.update import Update
from ipagnn.training.step import Tally

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
GPU = torch.device("cuda")


class Weights(nn.Module):
    def __init__(self, device: torch.device) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        self.a = nn.Parameter(torch.randn(5000, generator=draw).to(device))
        self.b = nn.Parameter(torch.randn(3, 7, generator=draw).to(device))


@pytest.mark.parametrize("clip", [0.0, 2.0])
def test_updates_equal_those_on_a_cpu(clip: float) -> None:
    config = TrainConfig().replace(max_grad_norm=clip, learning_rate=0.1, averaging=0.9, norm_limit=1e3)
    models = [Weights(torch.device("cpu")), Weights(GPU)]
    updates = [Update(model, config) for model in models]
    draw = torch.Generator().manual_seed(1)
    for i in range(12):
        gradients = [torch.randn(parameter.shape, generator=draw) for parameter in models[0].parameters()]
        if i == 3:
            gradients[0][7] = torch.nan
        if i == 7:
            gradients[0] *= 1e3  # beyond the limit
        for model, update in zip(models, updates, strict=True):
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                assert parameter.grad is not None
                parameter.grad.copy_(gradient)
            update()
            if i == 9:
                update.set_rate(0.03)
        assert updates[1].norm.item() == pytest.approx(updates[0].norm.item(), rel=1e-5, nan_ok=True)
        assert updates[1].failed.item() == updates[0].failed.item() == (i in {3, 7})
    for averaged in (False, True):
        expected, found = (update.weights(averaged=averaged) for update in updates)
        for name, weight in expected.items():
            torch.testing.assert_close(found[name].cpu(), weight, rtol=1e-5, atol=1e-5)
    expected, found = (update.state_dict() for update in updates)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name].cpu(), value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_losses_and_their_gradient(kind: torch.dtype) -> None:
    from ipagnn.training.optim.triton import losses  # needs Triton, which comes with CUDA builds of torch

    draw = torch.Generator(device=GPU).manual_seed(0)
    logits = (4 * torch.randn(50, 1000, device=GPU, generator=draw)).to(kind)
    bias = torch.randn(1000, device=GPU, generator=draw)
    target = torch.randint(1000, (50,), device=GPU, generator=draw)
    target[:20] = (logits + bias)[:20].argmax(dim=1)
    wanted = (logits.float() + bias).requires_grad_()
    cross_entropy(wanted, target).backward()
    loss, correct, gradient = losses(logits, target.int(), bias, torch.float32)
    torch.testing.assert_close(loss, cross_entropy(wanted, target, reduction="none"))
    torch.testing.assert_close(gradient, wanted.grad)
    assert torch.equal(correct > 0, wanted.argmax(dim=1) == target)
    assert losses(logits, target)[2].dtype == kind


def test_the_tally_counts_as_in_plain_torch() -> None:
    from ipagnn.training.optim.triton import tally

    plain, fused = Tally(GPU), Tally(GPU)
    draw = torch.Generator(device=GPU).manual_seed(0)
    for programs, failed in ((300, 0.0), (5, 1.0), (700, 0.0), (700, 1.0)):
        loss = torch.rand(programs, device=GPU, generator=draw)
        if failed:
            loss[1] = torch.nan
        correct = (loss > 0.5).float()
        norm = loss.sum()
        bad = torch.tensor(failed, device=GPU)
        plain.add(loss, correct, norm, bad)
        tally(fused.flat, loss, correct, norm, bad)
    torch.testing.assert_close(fused.flat, plain.flat, rtol=1e-5, atol=0.0)
    assert (fused.read().skipped, fused.read().steps) == (2, 0)
