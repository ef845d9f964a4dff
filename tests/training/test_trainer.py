"""Runs from beginning to end, in this process."""

import json
import math
import os
import signal
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from ipagnn.data import DataSetError, generate
from ipagnn.languages.arithmetic import Lengths
from ipagnn.models import build_model, load_model
from ipagnn.training import Progress, RunError, RunFolder, TrainConfig, read_config, read_metrics, train
from ipagnn.training.runs.checkpoint import Checkpoint
from ipagnn.training.runs.files import is_locked, locked
from ipagnn.training.step import PlainStep
from ipagnn.training.validation import Validation

Tensors = dict[str, torch.Tensor]
Final = Callable[[Path], Tensors]
Same = Callable[[Tensors, Tensors], bool]
Lines = Callable[[Path], list[dict[str, object]]]


@pytest.fixture
def whole(tiny: TrainConfig, tmp_path: Path) -> Path:
    """A run that nothing interrupted."""
    train(tiny, tmp_path / "whole")
    return tmp_path / "whole"


def test_two_runs_of_one_seed_are_identical_and_another_is_not(
    tiny: TrainConfig, whole: Path, tmp_path: Path, final: Final, same: Same, lines: Lines
) -> None:
    train(tiny.replace(workers=3), tmp_path / "again")
    assert same(final(whole), final(tmp_path / "again"))
    assert lines(whole) == lines(tmp_path / "again")
    train(tiny.replace(seed=1), tmp_path / "other")
    assert not same(final(whole), final(tmp_path / "other"))


def test_the_folder_tells_all(tiny: TrainConfig, whole: Path) -> None:
    folder = RunFolder(whole)
    assert read_config(whole / "config.toml") == tiny
    record = json.loads((whole / "run.json").read_text())
    (start,) = record["starts"]
    assert {"command", "started", "commit", "dirty", "versions", "hardware", "settings"} == set(start)
    assert start["versions"]["torch"] == torch.__version__
    assert "seed 0" in record["data"]
    lines = read_metrics(folder)
    trained = [line for line in lines if line["kind"] == "train"]
    assert [line["step"] for line in trained] == [2, 4, 6, 8, 10, 12]
    assert [line["examples"] for line in trained] == [16, 32, 48, 64, 80, 96]
    assert [line["step"] for line in lines if line["kind"] == "validation"] == [4, 8, 12]
    assert all(line["examples_per_second"] > 0 and line["memory_mb"] > 10 for line in trained)
    assert trained[0]["rate"] == tiny.optimizer.learning_rate  # the last step of the warm-up
    assert list(whole.glob("events.*"))
    assert not is_locked(whole)
    assert not list(whole.rglob("*.part"))


def test_the_model_is_the_best_by_validation_and_its_average(tiny: TrainConfig, whole: Path) -> None:
    result = json.loads((whole / "result.json").read_text())
    validations = [line for line in read_metrics(RunFolder(whole)) if line["kind"] == "validation"]
    scores = {line["step"]: line["accuracy"] for line in validations}
    best = max(validations, key=lambda line: (line["accuracy"], -line["loss"]))["step"]
    assert (result["best_step"], result["accuracy"]) == (best, scores[best])
    model = load_model(whole / "model.safetensors")
    assert model.config == tiny.model
    validation = Validation(tiny, torch.device("cpu"))
    assert validation(model.state_dict()).accuracy == scores[best]
    last = Checkpoint.read(RunFolder(whole).last)
    if best == last.position.step:
        assert any(not torch.equal(last.weights[name], x) for name, x in model.state_dict().items())


def test_validation_is_withheld_and_of_length_c(tiny: TrainConfig) -> None:
    validation = Validation(tiny, torch.device("cpu"))
    (batch,) = validation._batches
    assert batch.line_offsets.diff().unique().tolist() == [tiny.data.length]
    assert len(batch) == tiny.run.validation_count


class Stopped(Exception):
    pass


@pytest.mark.parametrize("step", [2, 4, 6, 10, 12])
def test_goes_on_after_any_failure_to_the_same_weights(
    tiny: TrainConfig, whole: Path, tmp_path: Path, final: Final, same: Same, lines: Lines, step: int
) -> None:
    def fail(now: Progress) -> None:
        if now.step == step:
            raise Stopped

    with pytest.raises(Stopped):
        train(tiny, tmp_path / "r", report=fail)
    assert not (tmp_path / "r" / "result.json").exists()
    assert not is_locked(tmp_path / "r")
    seen: list[int] = []
    result = train(tiny, tmp_path / "r", report=lambda now: seen.append(now.step))
    assert seen[0] == 4 * ((step - 1) // 4) + 2  # from the last checkpoint, not from the beginning
    assert same(final(whole), final(tmp_path / "r"))
    assert lines(whole) == lines(tmp_path / "r")
    ours, theirs = (load_model(run / "model.safetensors").state_dict() for run in (tmp_path / "r", whole))
    assert same(ours, theirs)
    assert result.step == 12
    assert len(json.loads((tmp_path / "r" / "run.json").read_text())["starts"]) == 2


FILES = 12
"""Written by a tiny run: config, run; best twice, metrics and last thrice, after steps 4, 8 and 12; model, result."""


def test_goes_on_after_a_full_disk_at_any_file(
    tiny: TrainConfig,
    whole: Path,
    tmp_path: Path,
    final: Final,
    same: Same,
    lines: Lines,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fsync = os.fsync
    failures, failed = 0, True
    while failed:  # until all files of a run could be written
        left, failed = failures, False

        def full(handle: int) -> None:
            nonlocal left, failed
            left -= 1
            if left == -1:
                failed = True
                raise OSError(28, "No space left on device")
            fsync(handle)

        run = tmp_path / str(failures)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(RunError, match="the disk is full") if failures < FILES else nullcontext():
                train(tiny, run)
        failures += 1
        train(tiny, run)
        assert same(final(whole), final(run))
        assert lines(whole) == lines(run)
    assert failures == FILES + 1


def test_goes_on_with_other_threads_and_cadence_but_nothing_else(tiny: TrainConfig, tmp_path: Path) -> None:
    train(tiny, tmp_path / "r", time_limit=1e-3)
    with pytest.raises(RunError) as caught:
        train(tiny.replace(learning_rate=0.5, model=tiny.model.replace(hidden=8)), tmp_path / "r")
    assert "model.hidden is 4, not 8" in str(caught.value)
    assert "optimizer.learning_rate is 0.01, not 0.5" in str(caught.value)
    assert train(tiny.replace(workers=2, checkpoint_steps=2, device="cpu"), tmp_path / "r").state == "finished"


def test_a_checkpoint_of_another_config_is_refused(tiny: TrainConfig, tmp_path: Path) -> None:
    train(tiny, tmp_path / "a", time_limit=1e-3)
    train(tiny.replace(seed=4), tmp_path / "b", time_limit=1e-3)
    RunFolder(tmp_path / "b").last.write_bytes(RunFolder(tmp_path / "a").last.read_bytes())
    with pytest.raises(RunError, match="seed is 0, not 4"):
        train(tiny.replace(seed=4), tmp_path / "b")


@pytest.mark.parametrize("damage", ["cut", "foreign"])
def test_a_damaged_checkpoint_is_named(tiny: TrainConfig, tmp_path: Path, damage: str) -> None:
    train(tiny, tmp_path / "r", time_limit=1e-3)
    last = RunFolder(tmp_path / "r").last
    last.write_bytes(last.read_bytes()[:-50] if damage == "cut" else b"something else")
    with pytest.raises(RunError, match=r"last\.safetensors is not a checkpoint"):
        train(tiny, tmp_path / "r")


def test_the_time_limit_stops_in_good_order(
    tiny: TrainConfig, whole: Path, tmp_path: Path, final: Final, same: Same
) -> None:
    states = []
    while not states or states[-1] != "finished":
        result = train(tiny, tmp_path / "r", time_limit=1e-3)
        states.append(result.state)
    assert states == ["stopped"] * 11 + ["finished"]  # each start comes one step further
    assert same(final(whole), final(tmp_path / "r"))
    validated = [[x for x in read_metrics(RunFolder(r)) if x["kind"] == "validation"] for r in (whole, tmp_path / "r")]
    assert [x["step"] for x in validated[0]] == [x["step"] for x in validated[1]] == [4, 8, 12]


def test_a_finished_run_is_not_trained_again(tiny: TrainConfig, whole: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    result = train(tiny, whole)
    assert result.state == "finished"
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == before


def test_folders_of_others_are_refused(tiny: TrainConfig, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(RunError, match=r"thesis\.tex"):
        train(tiny, tmp_path)
    with pytest.raises(RunError, match="is a file"):
        train(tiny, tmp_path / "thesis.tex")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_two_processes_cannot_train_in_one_folder(tiny: TrainConfig, tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    with locked(tmp_path / "r"), pytest.raises(RunError, match="Another process"):
        train(tiny, tmp_path / "r")


def test_interrupt_writes_a_checkpoint_first(
    tiny: TrainConfig, whole: Path, tmp_path: Path, final: Final, same: Same
) -> None:
    def interrupt(now: Progress) -> None:
        if now.step == 6:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(tiny, tmp_path / "r", report=interrupt)
    assert signal.getsignal(signal.SIGINT) is before
    assert Checkpoint.read(RunFolder(tmp_path / "r").last).position.step == 6
    train(tiny, tmp_path / "r")
    assert same(final(whole), final(tmp_path / "r"))


def test_trains_in_another_thread(tiny: TrainConfig, tmp_path: Path) -> None:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(train(tiny, tmp_path / "r")))
    thread.start()
    thread.join()
    assert results[0].state == "finished"


class Poisoned(PlainStep):
    """Makes the gradient of step 5 (counted from 0) not a number."""

    count = 0

    def __call__(self, prepared: Any) -> None:
        parameter = next(self._model.parameters())
        handle = parameter.register_hook(lambda gradient: gradient * math.nan) if Poisoned.count == 5 else None
        super().__call__(prepared)
        Poisoned.count += 1
        if handle:
            handle.remove()


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    Poisoned.count = 0
    monkeypatch.setattr("ipagnn.training.loop.make_step", Poisoned)


@pytest.mark.usefixtures("poison")
def test_not_a_number_stops_with_step_and_checkpoint(tiny: TrainConfig, tmp_path: Path) -> None:
    with pytest.raises(RunError) as caught:
        train(tiny, tmp_path / "r")
    assert "step 5" in str(caught.value)
    assert str(RunFolder(tmp_path / "r").last) in str(caught.value)
    assert "after step 4" in str(caught.value)
    last = Checkpoint.read(RunFolder(tmp_path / "r").last)
    assert last.position.step == 4
    assert all(x.isfinite().all() for x in last.weights.values())


@pytest.mark.usefixtures("poison")
def test_not_a_number_is_skipped_when_told_to(tiny: TrainConfig, tmp_path: Path) -> None:
    result = train(tiny.replace(on_nan="skip"), tmp_path / "r")
    assert (result.state, result.skipped) == ("finished", 1)
    assert [line["skipped"] for line in read_metrics(RunFolder(tmp_path / "r")) if line["kind"] == "train"] == [
        *(0, 0, 1, 0, 0, 0)
    ]
    last = Checkpoint.read(RunFolder(tmp_path / "r").last)
    assert last.state["applied"] == 11
    assert all(x.isfinite().all() for x in last.weights.values())


def test_an_exploding_norm_stops(tiny: TrainConfig, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"step 0 .*norm_limit, 1e-06.*checkpoint is none yet"):
        train(tiny.replace(norm_limit=1e-6), tmp_path / "r")
    result = train(tiny.replace(norm_limit=1e-6, on_nan="skip"), tmp_path / "r")
    assert result.skipped == 12
    first = build_model(tiny.model, tiny.seed).state_dict()
    last = Checkpoint.read(RunFolder(tmp_path / "r").last).weights
    assert all(torch.equal(first[name], last[name]) for name in first)
    assert {line["loss"] for line in read_metrics(RunFolder(tmp_path / "r")) if line["kind"] == "train"} == {None}


def test_a_run_that_skips_nearly_everything_is_given_up(tiny: TrainConfig, tmp_path: Path) -> None:
    hopeless = tiny.replace(norm_limit=1e-6, on_nan="skip", log_every=1, examples=100 * tiny.data.batch_size)
    with pytest.raises(RunError, match=r"last 20 intervals, up to step 20, .* smaller optimizer.learning_rate"):
        train(hopeless, tmp_path / "r")


def test_windows_change_the_order_and_resume_exactly(
    tiny: TrainConfig, tmp_path: Path, final: Final, same: Same
) -> None:
    config = tiny.replace(bucket_batches=3)
    train(config, tmp_path / "whole")
    while train(config, tmp_path / "r", time_limit=1e-3).state != "finished":
        pass
    train(tiny, tmp_path / "without")
    assert same(final(tmp_path / "whole"), final(tmp_path / "r"))
    assert not same(final(tmp_path / "whole"), final(tmp_path / "without"))


@pytest.fixture
def on_disk(tiny: TrainConfig, tmp_path: Path) -> TrainConfig:
    grammar, lengths = tiny.model.grammar, Lengths.training(tiny.data.length)
    generate(tmp_path / "d", "full", "train", 60, 0, lengths, grammar, shard_size=12, threads=1)
    return tiny.replace(source=str(tmp_path / "d"))


def test_trains_on_a_data_set_for_more_than_an_epoch(
    on_disk: TrainConfig, tmp_path: Path, final: Final, same: Same
) -> None:
    assert train(on_disk, tmp_path / "whole").examples == 96
    while train(on_disk, tmp_path / "r", time_limit=1e-3).state != "finished":
        pass
    assert same(final(tmp_path / "whole"), final(tmp_path / "r"))


def test_a_changed_shard_under_a_run_stops_it(on_disk: TrainConfig, tmp_path: Path) -> None:
    def damage(now: Progress) -> None:
        if now.step == 2:  # before most shards are read for the first time
            for shard in (tmp_path / "d").glob("*.parquet"):
                data = bytearray(shard.read_bytes())
                data[len(data) // 2] ^= 1
                shard.write_bytes(data)

    with pytest.raises(DataSetError, match="damaged or foreign"):
        train(on_disk.replace(batch_size=4, log_every=1), tmp_path / "r", report=damage)
    with pytest.raises(DataSetError, match="damaged or foreign"):
        train(on_disk.replace(batch_size=4, log_every=1), tmp_path / "r")


def test_another_data_set_under_a_run_stops_it(on_disk: TrainConfig, tmp_path: Path) -> None:
    train(on_disk, tmp_path / "r", time_limit=1e-3)
    for path in (tmp_path / "d").iterdir():
        path.unlink()
    grammar, lengths = on_disk.model.grammar, Lengths.training(on_disk.data.length)
    generate(tmp_path / "d", "full", "train", 60, 1, lengths, grammar, shard_size=12, threads=1)
    with pytest.raises(RunError, match="has changed since it began"):
        train(on_disk, tmp_path / "r")
