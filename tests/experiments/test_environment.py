"""The rows of the ablation of the environment IPA-GNN that have an execution of their own."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from ipagnn.models import build_model
from ipagnn.models.registry import MODELS
from ipagnn.training.presets import preset
from ipagnn.training.sources import make_source
from ipagnn.training.stages import Stage

LIKELIHOOD = frozenset({"likelihood"})


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    known = dict(MODELS)
    path = Path(__file__).parents[2] / "experiments" / "environment.py"
    spec = importlib.util.spec_from_file_location("environment_script", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    MODELS.clear()  # its models are not for other tests
    MODELS.update(known)


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
