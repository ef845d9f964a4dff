"""Runs that begin with the weights of others."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ipagnn.models import ModelFileError, build_model, load_model, model_config, save_model
from ipagnn.training import TrainConfig, train
from ipagnn.training.step import first_model

Tensors = dict[str, torch.Tensor]


@pytest.fixture
def weights(tiny: TrainConfig, tmp_path: Path) -> Path:
    """Weights that no seed in use here makes, of the model that `tiny` trains."""
    save_model(build_model(tiny.model, 99), tmp_path / "first.safetensors")
    return tmp_path / "first.safetensors"


def test_begins_with_the_weights_named_and_the_steps_of_training(tiny: TrainConfig, weights: Path) -> None:
    config = tiny.replace(init_from=str(weights), budget="static", budget_cap=7)
    model = first_model(config)
    expected = load_model(weights).state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in model.state_dict().items())
    assert model.config == config.trained_model
    fresh = first_model(tiny).state_dict()
    assert any(not torch.equal(tensor, fresh[name]) for name, tensor in expected.items())


def test_goes_on_from_a_checkpoint_when_the_weights_are_gone(
    tiny: TrainConfig,
    weights: Path,
    tmp_path: Path,
    final: Callable[[Path], Tensors],
    same: Callable[[Tensors, Tensors], bool],
) -> None:
    config = tiny.replace(init_from=str(weights))
    train(config, tmp_path / "whole")
    assert train(config, tmp_path / "halves", time_limit=0).state == "stopped"
    weights.unlink()
    assert train(config, tmp_path / "halves").state == "finished"
    assert same(final(tmp_path / "whole"), final(tmp_path / "halves"))
    train(tiny, tmp_path / "fresh")
    assert not same(final(tmp_path / "whole"), final(tmp_path / "fresh"))


def test_weights_of_other_models_are_refused(tiny: TrainConfig, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no file and no model 'nowhere'"):
        train(tiny.replace(init_from="nowhere"), tmp_path / "a")
    save_model(build_model(tiny.model.replace(hidden=24)), tmp_path / "wide.safetensors")
    with pytest.raises(ModelFileError, match="not those of"):
        train(tiny.replace(init_from=str(tmp_path / "wide.safetensors")), tmp_path / "b")
    save_model(build_model(model_config("ggnn", tiny.model)), tmp_path / "ggnn.safetensors")
    with pytest.raises(ModelFileError, match="unknown in the model"):
        train(tiny.replace(init_from=str(tmp_path / "ggnn.safetensors")), tmp_path / "c")
