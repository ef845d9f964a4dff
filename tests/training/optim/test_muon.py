import math
from typing import Any

import pytest
import torch
from torch import Tensor

from ipagnn.data.splits import training_sampler
from ipagnn.models import MODELS, build_model, model_config
from ipagnn.training import TrainConfig
from ipagnn.training.optim.muon import MOMENTUM, STEP, has_blocks, orthogonalise
from ipagnn.training.optim.update import Update
from ipagnn.training.step import make_step

H = 6
KERNELS = ("cell.input_1", "cell.hidden_1", "cell.input_2", "cell.hidden_2")


def make(name: str = "ipa-gnn", **settings: Any) -> tuple[torch.nn.Module, Update]:
    config = model_config(name, hidden=H)
    model = build_model(config, seed=3)
    return model, Update(model, TrainConfig(model=config).replace(algorithm="muon", learning_rate=0.1, **settings))


def gradients(model: torch.nn.Module, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(x.shape, generator=generator) for name, x in model.named_parameters()}


def apply(model: torch.nn.Module, update: Update, given: dict[str, Tensor]) -> None:
    update.zero_gradients()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        parameter.grad += given[name]
    update()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_orthogonalised_matrices_keep_their_directions_and_lose_their_lengths(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    u, v = (torch.linalg.qr(torch.randn(3, 20, 20, generator=generator))[0] for _ in range(2))
    values = torch.linspace(0.05, 3, 20)
    found = orthogonalise((u * values @ v.mT).to(dtype)).float()
    inside = u.mT @ found @ v  # diagonal, if the singular vectors are the same
    diagonal = torch.diagonal(inside, dim1=1, dim2=2)
    tolerance = 1e-4 if dtype == torch.float32 else 0.05
    assert (inside - torch.diag_embed(diagonal)).abs().max() < tolerance
    assert diagonal.min() > 0.6
    assert diagonal.max() < 1.25


@pytest.mark.parametrize("name", sorted(MODELS))
def test_kernels_take_orthogonal_steps_gate_by_gate_and_the_rest_those_of_adam(name: str) -> None:
    model, update = make(name, max_grad_norm=0.0)
    twin = build_model(name, hidden=H, seed=3)
    adam = torch.optim.Adam(twin.parameters(), lr=0.1)
    before = {key: x.detach().clone() for key, x in model.named_parameters()}
    given = gradients(model, 1)
    apply(model, update, given)
    for key, parameter in twin.named_parameters():
        parameter.grad = given[key].clone()
    adam.step()
    kernels = [key for key, x in before.items() if has_blocks(key, x.shape, H)]
    assert set(kernels) >= ({"values.layer"} if name == "env-ipa-gnn" else set(KERNELS))
    assert not any(key.startswith(("output.", "control.")) or key == "cell.embedding" for key in kernels)
    expected = dict(twin.named_parameters())
    for key, parameter in model.named_parameters():
        if key not in kernels:
            torch.testing.assert_close(parameter, expected[key])
            continue
        step = (before[key] - parameter.detach()).view(-1, H, parameter.shape[-1])
        for block, gradient in zip(
            step.split(H, dim=-1), given[key].view(-1, H, parameter.shape[-1]).split(H, dim=-1), strict=True
        ):
            wanted = orthogonalise(gradient) * 0.1 * STEP * math.sqrt(H)  # the first momentum points as the gradient
            torch.testing.assert_close(block, wanted, rtol=1e-4, atol=1e-6)


def test_the_second_step_by_hand() -> None:
    model, update = make(max_grad_norm=0.0)
    first, second = gradients(model, 1), gradients(model, 2)
    apply(model, update, first)
    before = dict(model.named_parameters())["cell.hidden_2"].detach().clone()
    update.set_rate(0.03)
    apply(model, update, second)
    a, b = first["cell.hidden_2"][None, :, :H], second["cell.hidden_2"][None, :, :H]
    kept = 1 - MOMENTUM
    momentum = kept * MOMENTUM * a + kept * b
    wanted = orthogonalise(kept * b + MOMENTUM * momentum) * 0.03 * STEP * math.sqrt(H)
    found = (before - dict(model.named_parameters())["cell.hidden_2"].detach())[:, :H]
    torch.testing.assert_close(found, wanted[0], rtol=1e-4, atol=1e-6)


def test_torchs_muon_takes_the_same_steps() -> None:
    """Block by block; torch orthogonalises in bfloat16 and scales steps to 0.2 of the rate."""
    model, update = make(max_grad_norm=0.0)
    parameter = dict(model.named_parameters())["cell.hidden_2"]
    blocks = [torch.nn.Parameter(block.detach().clone()) for block in parameter.split(H, dim=-1)]
    oracle = torch.optim.Muon(
        blocks, lr=0.1 * STEP / 0.2, momentum=MOMENTUM, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"
    )
    start = parameter.detach().clone()
    for k in range(4):
        given = gradients(model, k)
        apply(model, update, given)
        for block, gradient in zip(blocks, given["cell.hidden_2"].split(H, dim=-1), strict=True):
            block.grad = gradient.clone()
        oracle.step()
        moved, expected = parameter.detach() - start, torch.cat([x.detach() for x in blocks], dim=-1) - start
        assert (moved - expected).norm() < 0.02 * expected.norm()


def test_clipped_gradients_weigh_less_in_the_momentum() -> None:
    model, update = make(max_grad_norm=1.0)
    given = gradients(model, 1)
    apply(model, update, given)
    norm = math.sqrt(sum(float(x.square().sum()) for x in given.values()))
    assert update.norm == pytest.approx(norm, rel=1e-5)
    whole = torch.cat([given[name].flatten() for name in KERNELS])
    torch.testing.assert_close(update.state_dict()["momentum"], whole * (1 - MOMENTUM) / norm)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 2e6])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_gradient_that_fails_changes_nothing(bad: float, precision: Any) -> None:
    model, update = make(averaging=0.5, precision=precision)
    apply(model, update, gradients(model, 1))
    before = {**update.weights(averaged=False), **update.state_dict()}
    for name in ("cell.hidden_1", "output.bias"):
        given = gradients(model, 2)
        given[name].view(-1)[3] = bad
        apply(model, update, given)
        assert update.failed == 1
        after = {**update.weights(averaged=False), **update.state_dict()}
        assert all(torch.equal(before[key], after[key]) for key in before)
    apply(model, update, gradients(model, 2))
    assert not torch.equal(update.weights(averaged=False)["cell.hidden_1"], before["cell.hidden_1"])


def test_goes_on_from_its_state() -> None:
    model, update = make(averaging=0.9)
    for k in range(3):
        apply(model, update, gradients(model, k))
    twin, other = make(averaging=0.9)
    other.load(update.weights(averaged=False), update.state_dict())
    for k in range(3, 6):
        apply(model, update, gradients(model, k))
        apply(twin, other, gradients(model, k))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))
    assert all(torch.equal(x, other.state_dict()[key]) for key, x in update.state_dict().items())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ["ipa-gnn", "no-execute", "no-control"])
def test_captured_steps_have_the_length_of_the_rate(name: str, precision: Any) -> None:
    model = model_config(name, hidden=40)
    settings = TrainConfig(model=model).replace(algorithm="muon", batch_size=24, device="cuda", precision=precision)
    step = make_step(build_model(settings.model, 0), settings, torch.device("cuda"))
    plan = step.prepare(training_sampler("full", 10, 1).table(0, 24))
    for rate in (0.0, 1e-2, 1e-3):
        before = step.weights()["cell.hidden_2"]
        step.set_rate(rate)
        step(plan)
        moved = (step.weights()["cell.hidden_2"] - before).square().mean().sqrt()
        assert float(moved) == pytest.approx(STEP * rate, rel=0.4)
    assert step.metrics().skipped == 0
