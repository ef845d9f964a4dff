import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ipagnn.training import RunError, RunFolder, TrainConfig, read_metrics, train
from ipagnn.training.sweep.grid import Trial
from ipagnn.training.sweep.run import SWEEP, TrialResult, select, sweep

MODULE = importlib.import_module("ipagnn.training.sweep.run")


@pytest.fixture
def trials(tiny: TrainConfig) -> list[Trial]:
    return [Trial(f"seed={seed}", {"seed": seed}, tiny.replace(seed=seed)) for seed in (0, 1, 2)]


def result(run: str, state: Any, accuracy: float | None) -> TrialResult:
    return TrialResult(run, {}, state, 1, 2, accuracy)


def test_the_best_finished_trial_is_selected() -> None:
    results = [
        result("a", "finished", 0.25),
        result("b", "finished", 0.5),
        result("c", "finished", 0.5),
        result("d", "ended early", 0.9),
        result("e", "failed", 0.9),
        result("f", "waiting", None),
    ]
    assert select(results) == results[1]
    assert select(results[3:]) is None
    assert select([result("a", "finished", 0.0)]) == result("a", "finished", 0.0)


def without_ray(*_: object) -> None:
    raise AssertionError("Ray was started")


def test_finished_trials_need_no_ray(trials: list[Trial], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for trial in trials:
        train(trial.config, tmp_path / trial.name)
    monkeypatch.setattr(MODULE, "_ray", without_ray)
    results = sweep(tmp_path, trials)
    assert [(r.run, r.state, r.step, r.steps) for r in results] == [(t.name, "finished", 12, 12) for t in trials]
    found = [RunFolder(tmp_path / trial.name).result() for trial in trials]
    scores = [result.accuracy for result in found if result is not None]
    assert [r.accuracy for r in results] == scores
    assert [r.selected for r in results] == [i == scores.index(max(scores)) for i in range(3)]


def test_trials_ended_early_go_on_only_without_asha(
    trials: list[Trial], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(trials[0].config, tmp_path / trials[0].name)
    train(trials[1].config, tmp_path / trials[1].name, time_limit=0)
    board = MODULE._Board(tmp_path, trials[:2])
    board.ended(1, None)
    monkeypatch.setattr(MODULE, "_ray", without_ray)
    results = sweep(tmp_path, trials[:2], asha=True)
    assert [(r.state, r.selected) for r in results] == [("finished", True), ("ended early", False)]
    assert json.loads((tmp_path / SWEEP).read_text())["trials"] == [r.to_dict() for r in results]
    with pytest.raises(AssertionError, match="Ray was started"):
        sweep(tmp_path, trials[:2])
    with pytest.raises(AssertionError, match="Ray was started"):  # the third is still waiting
        sweep(tmp_path, trials, asha=True)


@pytest.mark.parametrize("content", ["[]", "{}", '{"trials": [3]}', "[" * 50_000])
def test_a_damaged_table_is_told(trials: list[Trial], tmp_path: Path, content: str) -> None:
    (tmp_path / SWEEP).write_text(content)
    with pytest.raises(RunError, match=r"sweep\.json cannot be read: it"):
        sweep(tmp_path, trials)


def test_a_folder_of_other_settings_is_refused_before_ray_starts(
    trials: list[Trial], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(trials[0].config.replace(learning_rate=0.5), tmp_path / trials[0].name)
    monkeypatch.setattr(MODULE, "_ray", without_ray)
    with pytest.raises(RunError, match=r"learning_rate is 0.5, not 0.01"):
        sweep(tmp_path, trials)


def test_without_ray_a_sentence_says_what_to_install(
    trials: list[Trial], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    before = dict(os.environ)
    with pytest.raises(RunError, match=r"needs Ray; install it with `pip install 'ipagnn\[ray\]'`"):
        sweep(tmp_path / "s", trials)
    assert not (tmp_path / "s").exists()
    assert dict(os.environ) == before


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What a trial tells Tune, with a Tune that only listens."""
    heard: list[dict[str, Any]] = []
    monkeypatch.setitem(sys.modules, "ray.tune", SimpleNamespace(report=heard.append))  # type: ignore[arg-type]
    return heard


def test_a_trial_tells_every_validation_once_and_again_after_its_worker_died(
    trials: list[Trial], tmp_path: Path, found: list[dict[str, Any]]
) -> None:
    def start(over: frozenset[int] = frozenset()) -> None:
        MODULE._trial({"trial": 0}, root=tmp_path, trials=trials, asha=True, command=["typed"], over=over)

    start()
    folder = RunFolder(tmp_path / "seed=0")
    scores = [
        {"accuracy": line["accuracy"], "examples": line["examples"]}
        for line in read_metrics(folder)
        if line["kind"] == "validation"
    ]
    best = {"accuracy": max(score["accuracy"] for score in scores), "examples": 96}
    assert [score["examples"] for score in scores] == [32, 64, 96]
    assert found == [*scores[:2], best]  # the last validation is the end
    found.clear()
    start()
    assert found == [*scores, best]
    found.clear()
    start(frozenset({0}))
    assert found == scores
    assert json.loads((folder.path / "run.json").read_text())["starts"][0]["command"] == ["typed"]


def test_a_trial_that_cannot_be_trained_tells_why(
    trials: list[Trial], tmp_path: Path, found: list[dict[str, Any]]
) -> None:
    (tmp_path / "seed=0").write_text("in the way")
    MODULE._trial({"trial": 0}, root=tmp_path, trials=trials, asha=False, command=[], over=set())
    assert len(found) == 1
    assert "seed=0 is a file" in found[0]["error"]
    board = MODULE._Board(tmp_path, trials)
    board.ended(0, found[0]["error"])
    assert board.results()[0].state == "failed"
    assert board.results()[0].error == found[0]["error"]


@pytest.mark.parametrize(
    ("nodes", "changes", "parallel", "resources"),
    [
        ([{"CPU": 8.0, "GPU": 2.0}], {}, None, {"cpu": 1, "gpu": 1}),
        ([{"CPU": 8.0, "GPU": 2.0}], {"device": "cpu", "threads": 1}, None, {"cpu": 1}),
        ([{"CPU": 8.0}, {"CPU": 4.0}], {"threads": 0}, None, {"cpu": 4}),
        ([{"CPU": 8.0}], {"threads": 0}, 3, {"cpu": 2}),
        ([{"CPU": 2.0}], {"threads": 0}, 3, {"cpu": 1}),
        ([{"CPU": 2.0}], {"threads": 16}, None, {"cpu": 2}),
    ],
)
def test_trials_ask_for_what_they_use(
    tiny: TrainConfig, nodes: list[dict[str, float]], changes: Any, parallel: int | None, resources: dict[str, float]
) -> None:
    ray = SimpleNamespace(nodes=lambda: [{"Alive": True, "Resources": node} for node in nodes])
    assert MODULE._resources(ray, [tiny.replace(**changes)] * 2, parallel) == resources


def writer(path: Path) -> int | None:
    """The process that has a file open."""
    for handle in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if handle.readlink() == path:
                return int(handle.parts[2])
        except OSError:
            continue
    return None


def start(directory: Path, grid: Path, *more: str) -> "subprocess.Popen[str]":
    fixed = (
        "model.name=line-rnn",
        "data.batch_size=8",
        "data.examples=16000",
        "run.log_every=5",
        "run.checkpoint_steps=50",
    )
    settings = [word for setting in fixed for word in ("--set", setting)]
    command = [sys.executable, "-m", "ipagnn", "sweep", str(directory), "--preset", "smoke", "--grid", str(grid)]
    return subprocess.Popen([*command, *settings, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_lines(process: "subprocess.Popen[str]", run: Path, lines: int) -> None:
    path, until = run / "metrics.jsonl", time.monotonic() + 240
    while not path.exists() or path.read_bytes().count(b"\n") < lines:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the worker in /proc")
def test_it_survives_a_dead_worker_and_an_interrupt_and_ends_with_the_same_weights(
    tmp_path: Path,
    final: Callable[[Path], dict[str, torch.Tensor]],
    same: Callable[[dict[str, torch.Tensor], dict[str, torch.Tensor]], bool],
) -> None:
    pytest.importorskip("ray")
    grid, root = tmp_path / "grid.toml", tmp_path / "s"
    grid.write_text("seed = [0, 1]\nmodel.hidden = [4]\n")
    first, second = root / "seed=0,hidden=4", root / "seed=1,hidden=4"
    process = start(root, grid, "--parallel", "1")
    wait_for_lines(process, first, 30)
    worker = writer(first / "metrics.jsonl")
    assert worker not in (None, process.pid)
    os.kill(worker, signal.SIGKILL)  # type: ignore[arg-type]
    wait_for_lines(process, second, 10)  # the first trial has ended by now
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, (out, err)
    assert err.splitlines()[-1] == "Error: Interrupted."
    assert [t["state"] for t in json.loads((root / SWEEP).read_text())["trials"]] == ["finished", "stopped"]
    process = start(root, grid, "--parallel", "1", "--json")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["state"] for row in rows] == ["finished", "finished"]
    assert sum(row["selected"] for row in rows) == 1
    assert sorted(path.name for path in root.iterdir()) == [first.name, second.name, SWEEP]
    for run, starts in ((first, 2), (second, 2)):
        assert len(json.loads((run / "run.json").read_text())["starts"]) == starts
        train(RunFolder(run).config(), tmp_path / f"again-{run.name}")
        assert same(final(run), final(tmp_path / f"again-{run.name}"))


@pytest.mark.slow
def test_asha_ends_trials_that_are_behind(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    grid, root = tmp_path / "grid.toml", tmp_path / "s"
    grid.write_text("rate = [1e-2, 1e-9]\nseed = [0, 1]\nmodel.hidden = [4]\nvalidation_every = [800]\n")
    process = start(root, grid, "--asha", "--parallel", "1", "--json")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    rows = [json.loads(line) for line in out.splitlines()]
    early = [row for row in rows if row["state"] == "ended early"]
    assert early
    assert all(row["step"] < row["steps"] for row in early)
    assert all(row["values"]["optimizer.learning_rate"] == 1e-9 or row["values"]["seed"] == 1 for row in early)
    selected = [row for row in rows if row["selected"]]
    assert [row["values"]["optimizer.learning_rate"] for row in selected] == [1e-2]
    process = start(root, grid, "--asha", "--parallel", "1", "--json")
    assert process.communicate(timeout=60)[0] == out
