"""What may be refused is refused before a run folder holds anything; finished runs can be repaired."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ipagnn.models import load_model
from ipagnn.training import RunError, TrainConfig, list_runs, train
from ipagnn.training import trainer as trainer_module
from ipagnn.training.memory import least_memory
from ipagnn.training.runs.files import claimed, locked
from ipagnn.training.runs.folder import RunFolder


@pytest.mark.parametrize(
    "setting",
    [
        "init_from=nope",
        "model.hidden=60000",
        "model.hidden=100000",
        "optimizer.learning_rate=inf",
        "optimizer.learning_rate=1e300",
        "optimizer.learning_rate=nan",
        "run.device=7",
        "run.device=cuda:999",
        "run.device=cuda:99",
        "data.source=nowhere",
        "data.batch_size=1000000000000",
        "model.budget.factor=1e300",
        "optimizer.max_grad_norm=inf",
    ],
)
def test_a_typo_leaves_the_folder_free(
    run: Callable[..., Any], is_sentence: Callable[[str], bool], tmp_path: Path, setting: str
) -> None:
    settings = ("data.examples=16", "data.batch_size=8", "run.validation_count=4", "model.name=line-rnn")
    small = [word for each in settings for word in ("--set", each)]
    folder = tmp_path / "runs" / "a"
    done = run("train", folder, "--preset", "smoke", *small, "--set", setting)
    assert done.code == 2
    assert is_sentence(done.err), done.err
    assert not folder.parent.exists()
    assert run("train", folder, "--preset", "smoke", *small).code == 0


def test_memory_is_counted_from_below() -> None:
    config = TrainConfig()
    assert 2 * 10**6 < least_memory(config) < 50 * 10**6
    assert least_memory(config.replace(model=config.model.replace(hidden=60_000))) > 10**11


def test_the_folder_is_checked_again_under_the_lock(
    tiny: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process begins a run in the folder after it was checked and before it is locked."""
    folder = tmp_path / "r"

    def late(directory: Path) -> Any:
        monkeypatch.setattr(trainer_module, "claimed", claimed)
        train(tiny, folder)
        return claimed(directory)

    monkeypatch.setattr(trainer_module, "claimed", late)
    with pytest.raises(RunError, match="holds a run with other settings: its seed is 0, not 1"):
        train(tiny.replace(seed=1), folder)
    assert RunFolder(folder).config() == tiny


def test_a_folder_in_use_is_left_alone(tiny: TrainConfig, tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    with locked(tmp_path / "r"), pytest.raises(RunError, match="Another process is training"):
        train(tiny, tmp_path / "r")
    assert not list((tmp_path / "r").iterdir())


def test_a_finished_run_writes_its_model_again(tiny: TrainConfig, tmp_path: Path) -> None:
    folder = tmp_path / "r"
    first = train(tiny, folder)
    path = folder / "model.safetensors"
    digest, mode = hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mode
    assert mode == (folder / "result.json").stat().st_mode
    path.unlink()
    assert [found.state for found in list_runs(folder)] == ["stopped"]
    assert train(tiny, folder) == first
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
    assert path.stat().st_mode == mode
    assert [found.state for found in list_runs(folder)] == ["finished"]
    load_model(folder)
    assert not [x for x in folder.rglob("*") if "part" in x.name]
    path.unlink()
    (folder / "checkpoints" / "best.safetensors").unlink()
    with pytest.raises(RunError, match=r"neither model\.safetensors nor checkpoints"):
        train(tiny, folder)


def test_two_runs_of_one_config_end_with_the_same_file(tiny: TrainConfig, tmp_path: Path) -> None:
    for name in "ab":
        train(tiny, tmp_path / name)
    a, b = (hashlib.sha256((tmp_path / name / "model.safetensors").read_bytes()).digest() for name in "ab")
    assert a == b


def test_a_damaged_record_is_told(tiny: TrainConfig, tmp_path: Path) -> None:
    folder = tmp_path / "r"
    train(tiny, folder)
    for name, content in (("result.json", "[]"), ("result.json", '{"state": "finished"}'), ("result.json", "[" * 9999)):
        before = (folder / name).read_bytes()
        (folder / name).write_text(content)
        with pytest.raises(RunError, match=r"result\.json cannot be read"):
            train(tiny, folder)
        (folder / name).write_bytes(before)
    (folder / "result.json").unlink()
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(record | {"starts": 3}))
    with pytest.raises(RunError, match=r"run\.json cannot be read: it\.starts is 3; it must be a list\.$"):
        train(tiny, folder)


@pytest.mark.parametrize(
    "model",
    [{"name": []}, {"name": 7}, {"grammar": {"comparisons": [[1]]}}, {"grammar": []}, {"budget": {"factor": 1e300}}],
)
def test_settings_of_a_wrong_type_are_told(model: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be|at most"):
        TrainConfig.from_dict({"model": model})
