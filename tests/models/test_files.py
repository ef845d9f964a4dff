import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from ipagnn.languages.arithmetic.grammar import Grammar
from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.models import MODELS, ModelConfig, ModelFileError, available_models, build_model, load_model, save_model


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_model(build_model(ModelConfig(hidden=4), seed=5), tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_saved_model_comes_back_the_same(tmp_path: Path, short: ProgramTable, name: str) -> None:
    model = build_model(ModelConfig(name, hidden=4, grammar=Grammar(modulus=100)), seed=5)
    save_model(model, tmp_path / "model.safetensors")
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]
    loaded = load_model(tmp_path / "model.safetensors")
    assert loaded.config == model.config
    assert not loaded.training
    batch = model.collate(short)
    assert torch.equal(loaded(batch).logits, model(batch).logits)


def test_options_change_how_weights_are_run(saved: Path) -> None:
    assert load_model(saved, prune=1e-3).config.prune == 1e-3
    hard, soft = load_model(saved, name="hard-ip-rnn"), load_model(str(saved))
    assert hard.config.name == "hard-ip-rnn"
    assert all(torch.equal(value, soft.state_dict()[key]) for key, value in hard.state_dict().items())


def with_metadata(change: Callable[[dict[str, str]], object]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with safe_open(path, framework="pt") as file:
            metadata, tensors = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        change(metadata)
        save_file(tensors, path, metadata)

    return write


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def cut_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


def other_kind(path: Path) -> None:
    path.write_bytes(b"\x80\x04this is a pickle, of sorts" * 10)


def drop_tensor(path: Path) -> None:
    with safe_open(path, framework="pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys() if key != "cell.bias_2"}  # noqa: SIM118
        metadata = file.metadata()
    save_file(tensors, path, metadata)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (truncate, "is not a readable safetensors file"),
        (cut_header, "is not a readable safetensors file"),
        (other_kind, "is not a readable safetensors file"),
        (lambda path: path.write_bytes(b""), "is not a readable safetensors file"),
        (lambda path: save_file({"x": torch.zeros(2)}, path), "was not written by save_model"),
        (with_metadata(lambda m: m.update(format_version="2")), "has format version 2; this version of ipagnn reads 1"),
        (with_metadata(lambda m: m.update(vocabulary_version="7")), "has vocabulary version 7"),
        (with_metadata(lambda m: m.pop("vocabulary_version")), "has vocabulary version None"),
        (with_metadata(lambda m: m.pop("config")), "The configuration in .* cannot be read"),
        (with_metadata(lambda m: m.update(config="{")), "The configuration in .* cannot be read"),
        (with_metadata(lambda m: m.update(config='{"hidden": 1000000000}')), "cell.embedding has shape"),
        (with_metadata(lambda m: m.update(config='{"hidden": 4, "name": "ggnn"}')), "are not those of a 'ggnn' of 4"),
        (drop_tensor, "cell.bias_2"),
    ],
)
def test_files_that_are_not_whole_or_not_ours_are_refused(
    saved: Path, damage: Callable[[Path], None], sentence: str
) -> None:
    damage(saved)
    with pytest.raises(ModelFileError, match=sentence):
        load_model(saved)


def test_an_unknown_name_is_answered_with_what_there_is() -> None:
    with pytest.raises(FileNotFoundError, match="There is no file and no model 'no-such'") as caught:
        load_model("no-such")
    for name in available_models():
        assert name in str(caught.value)


def test_a_failed_save_leaves_the_old_file_alone(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def fail(_: int) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        save_model(build_model(ModelConfig(hidden=4)), saved)
    assert saved.read_bytes() == before
    assert [file.name for file in saved.parent.iterdir()] == [saved.name]
