import copy
from typing import Any

import pytest
import torch
from torch import nn

from ipagnn.training import TrainConfig
from ipagnn.training.optim.update import Update


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor([1.0, -2.0]))
        self.b = nn.Parameter(torch.tensor([[3.0], [0.5]]))


def set_gradients(model: nn.Module, *values: list[float]) -> None:
    for parameter, value in zip(model.parameters(), values, strict=True):
        assert parameter.grad is not None
        parameter.grad.copy_(torch.tensor(value).view(parameter.shape))


def apply(update: Update, model: nn.Module, *values: list[float]) -> None:
    update.zero_gradients()
    set_gradients(model, *values)
    update()


@pytest.mark.parametrize("name", ["adam", "sgd"])
@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_equals_torch_with_clipping(name: Any, clip: float) -> None:
    ours, theirs = Two(), Two()
    update = Update(ours, TrainConfig().replace(algorithm=name, max_grad_norm=clip, learning_rate=0.1))
    kind = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[name]
    optimizer = kind(theirs.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(0)
    for i in range(20):
        gradients = [torch.randn(2, generator=generator).tolist() for _ in range(2)]
        apply(update, ours, *gradients)
        for parameter, value in zip(theirs.parameters(), gradients, strict=True):
            parameter.grad = torch.tensor(value).view(parameter.shape)
        norm = nn.utils.clip_grad_norm_(theirs.parameters(), clip or 1e9)
        assert update.norm == pytest.approx(float(norm), rel=1e-5)
        optimizer.step()
        if i == 9:
            update.set_rate(0.03)
            optimizer.param_groups[0]["lr"] = 0.03
    for mine, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, expected)


def test_clipping_by_hand() -> None:
    model = Two()
    update = Update(model, TrainConfig().replace(algorithm="sgd", max_grad_norm=2.5, learning_rate=1.0))
    apply(update, model, [3.0, 0.0], [0.0, 4.0])  # norm 5, so halved
    assert model.a.tolist() == [-0.5, -2.0]
    assert model.b.flatten().tolist() == [3.0, -1.5]


@pytest.mark.parametrize("name", ["adam", "sgd"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 2e6])
def test_a_gradient_that_fails_changes_nothing(name: Any, bad: float) -> None:
    model = Two()
    update = Update(model, TrainConfig().replace(algorithm=name, averaging=0.5))
    apply(update, model, [1.0, 2.0], [3.0, 4.0])
    before = {**update.weights(averaged=False), **update.state_dict()}
    apply(update, model, [1.0, bad], [3.0, 4.0])
    after = {**update.weights(averaged=False), **update.state_dict()}
    assert update.failed == 1
    assert all(torch.equal(before[key], after[key]) for key in before)
    apply(update, model, [1.0, 2.0], [3.0, 4.0])
    assert update.failed == 0
    assert not torch.equal(update.weights(averaged=False)["a"], before["a"])


def test_average_by_hand() -> None:
    model = Two()
    update = Update(model, TrainConfig().replace(algorithm="sgd", max_grad_norm=0.0, learning_rate=1.0, averaging=0.3))
    apply(update, model, [-1.0, 0.0], [0.0, 0.0])  # a[0] is 2; the decay is (1 + 1) / (10 + 1)
    first = 1 * 2 / 11 + 2 * 9 / 11
    assert update.weights(averaged=True)["a"][0] == pytest.approx(first)
    apply(update, model, [-1.0, 0.0], [0.0, 0.0])  # a[0] is 3; 3 / 12
    second = first * 0.25 + 3 * 0.75
    assert update.weights(averaged=True)["a"][0] == pytest.approx(second)
    apply(update, model, [-1.0, 0.0], [0.0, 0.0])  # a[0] is 4; 4 / 13 is above 0.3
    assert update.weights(averaged=True)["a"][0] == pytest.approx(second * 0.3 + 4 * 0.7)
    assert update.weights(averaged=True)["a"][1] == pytest.approx(-2)
    assert update.weights(averaged=False)["a"].tolist() == [4.0, -2.0]


def test_goes_on_from_its_state() -> None:
    config = TrainConfig().replace(averaging=0.9)
    model = Two()
    update = Update(model, config)
    for _ in range(3):
        apply(update, model, [1.0, 2.0], [3.0, 4.0])
    weights, state = copy.deepcopy((update.weights(averaged=False), update.state_dict()))
    twin = Two()
    other = Update(twin, config)
    other.load(weights, state)
    for _ in range(3):
        apply(update, model, [0.5, 2.0], [-3.0, 4.0])
        apply(other, twin, [0.5, 2.0], [-3.0, 4.0])
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))
    assert all(torch.equal(x, other.state_dict()[key]) for key, x in update.state_dict().items())
