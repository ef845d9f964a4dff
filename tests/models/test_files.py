import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from ipagnn.languages.arithmetic.grammar import Grammar
from ipagnn.languages.arithmetic.sampler import Sampler
from ipagnn.languages.arithmetic.vocabulary import VOCABULARY_SIZE
from ipagnn.models import (
    MODELS,
    ModelConfig,
    ModelFileError,
    ProgramModel,
    available_models,
    build_model,
    find_model_file,
    load_model,
    model_config,
    save_model,
)

from ..conftest import memory_taken


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_model(build_model("ipa-gnn", hidden=4, seed=5), tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_saved_model_comes_back_the_same(tmp_path: Path, name: str) -> None:
    grammar = Grammar(modulus=100, initial_values=(0, 99))
    model = build_model(name, hidden=4, grammar=grammar, seed=5)
    save_model(model, tmp_path / "model.safetensors")
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]
    loaded = load_model(tmp_path / "model.safetensors")
    assert loaded.config == model.config
    assert not loaded.training
    batch = model.collate(Sampler(grammar=grammar, seed=7).table(0, 24))
    assert torch.equal(loaded(batch).logits, model(batch).logits)


def test_options_change_how_weights_are_run(saved: Path) -> None:
    assert load_model(saved, indent=False).config.indent is False
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

    def fail(handle: int) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("os.fsync", fail)  # after the bytes were written aside
    with pytest.raises(OSError, match="No space"):
        save_model(build_model("ipa-gnn", hidden=4), saved)
    assert saved.read_bytes() == before
    assert [file.name for file in saved.parent.iterdir()] == [saved.name]


def test_a_file_has_the_mode_of_other_files(saved: Path) -> None:
    other = saved.with_name("other")
    other.touch()
    assert saved.stat().st_mode == other.stat().st_mode


def test_the_same_model_gives_the_same_bytes_in_another_process(saved: Path) -> None:
    again = saved.with_name("again.safetensors")
    code = (
        "from ipagnn.models import build_model, save_model\n"
        f"save_model(build_model('ipa-gnn', hidden=4, seed=5), {str(again)!r}, task='full', record='r')"
    )
    save_model(build_model("ipa-gnn", hidden=4, seed=5), saved, task="full", record="r")
    for _ in range(3):  # there are 5,040 orders of the metadata
        subprocess.run([sys.executable, "-c", code], check=True)
        assert again.read_bytes() == saved.read_bytes()


def test_the_file_names_the_task(saved: Path) -> None:
    assert (load_model(saved).task, find_model_file(saved).task) == (None, None)
    model = build_model("ipa-gnn", hidden=4)
    save_model(model, saved, task="partial", record="some-run")
    loaded = load_model(saved)
    assert (loaded.task, loaded.with_config(indent=False).task) == ("partial", "partial")
    found = find_model_file(saved)
    assert (found.name, found.path, found.run, found.task, found.record) == (
        *(str(saved), saved, None, "partial", "some-run"),
    )
    save_model(loaded, saved)  # what was known of it is kept
    assert load_model(saved).task == "partial"


def test_a_run_folder_tells_the_task_of_an_older_file(saved: Path) -> None:
    folder = saved.parent
    (folder / "config.toml").write_text('task = "partial"\n')
    assert find_model_file(folder).run == folder
    assert find_model_file(folder).task == load_model(folder).task == find_model_file(saved).task == "partial"
    save_model(load_model(folder), saved, task="full")
    assert find_model_file(folder).task == "full"
    saved.unlink()
    with pytest.raises(ValueError, match=r"holds no model\.safetensors; give a run that has ended"):
        load_model(folder)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_loading_draws_no_weights(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(config: ModelConfig) -> ProgramModel:
        generator = torch.Generator().manual_seed(3)
        before = generator.get_state()
        model = MODELS[name](config, generator=generator)
        drawn.append(not torch.equal(generator.get_state(), before))
        return model

    drawn: list[bool] = []
    model = build(model_config(name, hidden=4))
    save_model(model, tmp_path / "model.safetensors")
    monkeypatch.setattr("ipagnn.models.files.build_model", build)
    loaded = load_model(tmp_path)
    assert drawn == [True, False]
    for key, weight in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], weight)


@pytest.mark.parametrize("size", [2**28, 2**30 + 1])
def test_a_sparse_file_takes_no_memory_before_it_is_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "sparse.safetensors"
    save_model(build_model("ipa-gnn", hidden=4), path)
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    hidden = (size - 4096) // 4 // VOCABULARY_SIZE
    metadata["config"] = json.dumps({"name": "ipa-gnn", "hidden": hidden})
    shape = [VOCABULARY_SIZE, hidden]
    weights = {"dtype": "F32", "shape": shape, "data_offsets": [0, 4 * VOCABULARY_SIZE * hidden]}
    header = json.dumps({"__metadata__": metadata, "cell.embedding": weights}).encode()
    with path.open("wb") as written:
        written.write(len(header).to_bytes(8, "little") + header)
        written.truncate(8 + len(header) + 4 * VOCABULARY_SIZE * hidden)
    save_model(build_model("ipa-gnn", hidden=4), tmp_path / "small.safetensors")
    prepare = "from ipagnn.models import ModelFileError, load_model; load_model(sys.argv[1])"
    refused = "try:\n    load_model(sys.argv[2])\n    sys.exit('it was read')\nexcept ModelFileError:\n    pass"
    assert memory_taken(prepare, refused, tmp_path / "small.safetensors", path) < 200 * 2**20  # modules of torch: 150


def test_weights_of_masked_lines_begin_anew_in_another_grammar(tmp_path: Path) -> None:
    model = build_model("env-ipa-gnn", hidden=4, width=4, grammar=Grammar(operands=(1, 3)))
    with torch.no_grad():
        model.get_parameter("mask_weights").copy_(torch.arange(9.0))
    save_model(model, tmp_path / "model.safetensors", task="full")
    same = load_model(tmp_path / "model.safetensors", grammar=Grammar(operands=(1, 3), counters=2))
    assert same.get_parameter("mask_weights").tolist() == list(range(9))
    other = load_model(tmp_path / "model.safetensors", grammar=Grammar(operands=(1, 5)))
    assert other.get_parameter("mask_weights").tolist() == [0.0] * 15
    assert torch.equal(other.get_parameter("values.embedding"), model.get_parameter("values.embedding"))
    with pytest.raises(ModelFileError, match=r"values\.output_bias"):
        load_model(tmp_path / "model.safetensors", grammar=Grammar(modulus=10))
