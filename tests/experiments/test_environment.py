"""The rows of the ablations of the environment IPA-GNN."""

import importlib
import math
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Literal

import pytest
import torch

from ipagnn.models import build_model
from ipagnn.models.registry import MODELS
from ipagnn.training.presets import preset
from ipagnn.training.sources import make_source
from ipagnn.training.stages import Stage

from ..modules import EXPERIMENTS

LIKELIHOOD = frozenset({"likelihood"})


@pytest.fixture(scope="module", params=["environment"])
def script(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    known = set(MODELS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXPERIMENTS))
        for name in (request.param, f"{request.param}_variants"):  # that they register their models again
            patch.delitem(sys.modules, name, raising=False)
        yield importlib.import_module(request.param)
    for name in set(MODELS) - known:  # its models are not for other tests
        del MODELS[name]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "name"), [("environment", "environment"), ("digits", "numbers")], indirect=["script"]
)
def test_every_row_trains_and_is_measured(script: ModuleType, name: Literal["environment", "numbers"]) -> None:
    for row in script.ROWS.values():
        config = row.change(preset(name))
        model = build_model(config.trained_model, config.seed).train()
        table = make_source(config, None, Stage(length=4, batch_size=16, steps=1)).table(0, 16)
        batch = model.collate_for_training(table)
        loss = model.loss(model(batch, record=LIKELIHOOD), batch).mean()
        loss.backward()
        assert math.isfinite(float(loss.detach())), row.title
        assert any(x.grad is not None and float(x.grad.abs().max()) > 0 for x in model.parameters()), row.title
        found = script.measure(model.eval()) if name == "numbers" else {}
        assert all(value > 0 for value in found.values()), (row.title, found)  # nothing is learned yet


def test_slots_in_every_row_are_the_model_where_addresses_are_given(script: ModuleType) -> None:
    config = preset("environment")
    table = make_source(config, None, Stage(length=6, batch_size=32, steps=1)).table(0, 32)
    model = build_model(config.trained_model, 0).double()
    batch = model.collate(table)
    twin = build_model(preset("environment", "env-conditions-write").trained_model, 0).double()
    twin.load_state_dict(model.state_dict())
    twin.conditions_write = False  # type: ignore[assignment]  # of this instance
    expected, found = (each(batch, record=LIKELIHOOD)["likelihood"] for each in (model, twin))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-30)
    torch.testing.assert_close(twin(batch).logits.exp(), model(batch).logits.exp(), rtol=1e-6, atol=1e-15)
    gradients = _gradients(model, expected)
    for name, gradient in _gradients(twin, found).items():
        torch.testing.assert_close(gradient, gradients[name], rtol=1e-6, atol=1e-9, msg=name)
    twin.conditions_write = True  # type: ignore[assignment]
    assert (twin(batch, record=LIKELIHOOD)["likelihood"] - expected).abs().max() > 1e-5


def _gradients(model: torch.nn.Module, likelihood: torch.Tensor) -> dict[str, torch.Tensor]:
    chosen = {name: x for name, x in model.named_parameters() if name.startswith("values.")}
    found = torch.autograd.grad(likelihood.log().sum(), list(chosen.values()), retain_graph=True)
    return dict(zip(chosen, found, strict=True))
