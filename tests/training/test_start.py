"""Runs that begin with the weights of others."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ipagnn.models import ModelFileError, build_model, load_model, model_config, save_model
from ipagnn.models.files import hash_weights
from ipagnn.training import RunFolder, TrainConfig, train
from ipagnn.training.runs.files import RunError
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


def test_the_record_of_a_run_names_the_weights_it_started_from(tiny: TrainConfig, tmp_path: Path) -> None:
    save_model(build_model(tiny.model, 99), tmp_path / "a.safetensors", record="of-a-run")
    train(tiny.replace(init_from=str(tmp_path / "a.safetensors")), tmp_path / "run")
    found = RunFolder(tmp_path / "run").record().init_from
    assert found is not None
    assert (found.weights, found.record) == (hash_weights(tmp_path / "a.safetensors"), "of-a-run")
    save_model(build_model(tiny.model, 99), tmp_path / "b.safetensors", task="partial")
    assert hash_weights(tmp_path / "b.safetensors") == found.weights, "what else a header says makes no difference"
    save_model(build_model(tiny.model, 98), tmp_path / "b.safetensors")
    assert hash_weights(tmp_path / "b.safetensors") != found.weights
    train(tiny, tmp_path / "fresh")
    assert RunFolder(tmp_path / "fresh").record().init_from is None


def test_other_weights_under_the_same_name_are_refused(tiny: TrainConfig, weights: Path, tmp_path: Path) -> None:
    config = tiny.replace(init_from=str(weights))
    assert train(config, tmp_path / "run", time_limit=0).state == "stopped"
    save_model(build_model(tiny.model, 98), weights)
    before = sorted((path, path.read_bytes()) for path in (tmp_path / "run").rglob("*") if path.is_file())
    with pytest.raises(RunError, match=r"started from other weights than init_from, .*first\.safetensors', names now"):
        train(config, tmp_path / "run")
    assert sorted((path, path.read_bytes()) for path in (tmp_path / "run").rglob("*") if path.is_file()) == before
    save_model(build_model(tiny.model, 99), weights)
    assert train(config, tmp_path / "run").state == "finished"
