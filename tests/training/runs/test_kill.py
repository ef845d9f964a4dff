"""Runs that are killed, as processes of their own, or asked to stop."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ipagnn._common.toml import to_toml
from ipagnn.training import RunFolder, TrainConfig, loop, read_metrics, train
from ipagnn.training.resolve import resolve
from ipagnn.training.runs.checkpoint import Checkpoint
from ipagnn.training.runs.files import is_locked
from ipagnn.training.runs.listing import list_runs

Tensors = dict[str, torch.Tensor]


def start(run: Path, config: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "ipagnn", "train", str(run), "--config", str(config)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for(process: "subprocess.Popen[bytes]", run: Path, lines: int) -> None:
    """Until the run has written that many lines of metrics."""
    path = run / "metrics.jsonl"
    while process.poll() is None and (not path.exists() or path.read_bytes().count(b"\n") < lines):
        time.sleep(0.002)


@pytest.fixture
def longer(tiny: TrainConfig) -> TrainConfig:
    """300 steps in about a second."""
    return tiny.replace(examples=2_400, validation_every=640, checkpoint_steps=30, log_every=3)


@pytest.mark.parametrize("kills", [1, pytest.param(6, marks=pytest.mark.slow)])
def test_killed_at_random_points_it_ends_with_the_same_weights(
    longer: TrainConfig,
    tmp_path: Path,
    kills: int,
    final: Callable[[Path], Tensors],
    same: Callable[[Tensors, Tensors], bool],
    lines: Callable[[Path], list[dict[str, object]]],
) -> None:
    train(longer, tmp_path / "whole")
    file, run = tmp_path / "config.toml", tmp_path / "r"
    file.write_text(to_toml(longer.to_dict()))
    chance = random.Random(kills)
    total = len(lines(tmp_path / "whole"))
    for k in range(kills):
        process = start(run, file)
        part = 0.8 * total / kills  # the rest is for the time that a signal takes
        wait_for(process, run, 1 + int(part * (k + chance.random())))
        assert process.poll() is None, process.communicate()
        time.sleep(chance.random() * 0.01)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert [summary.state for summary in list_runs(run)] == ["stopped"]
    assert 0 < len(read_metrics(RunFolder(run))) < total
    assert resolve(run) == longer
    train(resolve(run), run)
    assert same(final(tmp_path / "whole"), final(run))
    assert lines(tmp_path / "whole") == lines(run)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_says_so_and_goes_on(longer: TrainConfig, tmp_path: Path, number: signal.Signals) -> None:
    file, run = tmp_path / "config.toml", tmp_path / "r"
    file.write_text(to_toml(longer.replace(examples=480_000, checkpoint_steps=0).to_dict()))
    process = start(run, file)
    wait_for(process, run, 10)
    assert is_locked(run)
    assert [summary.state for summary in list_runs(run)] == ["running"]
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == b"Error: Interrupted.\n"
    checkpoint = RunFolder(run).read_last()
    assert checkpoint is not None
    assert checkpoint.position.step == read_metrics(RunFolder(run))[-1]["step"]


def test_a_stop_waits_for_no_look(tiny: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unseen = tiny.replace(examples=160_000, log_every=20_000)  # one look, at the end
    assert train(unseen, tmp_path / "late", time_limit=0.5).state == "stopped"

    def rate(config: TrainConfig, step: int) -> float:
        if step == 5:
            monkeypatch.undo()  # the second signal would not wait for a checkpoint
            os.kill(os.getpid(), signal.SIGTERM)
        return 1e-3

    monkeypatch.setattr(loop, "rate_at", rate)
    with pytest.raises(KeyboardInterrupt):
        train(unseen, tmp_path / "asked")
    assert Checkpoint.read(RunFolder(tmp_path / "asked").last).position.step == 6
