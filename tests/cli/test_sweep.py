import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ipagnn.cli import sweep as sweep_commands
from ipagnn.training import train
from ipagnn.training.sweep.grid import Trial
from ipagnn.training.sweep.run import TrialResult

MODULE = importlib.import_module("ipagnn.training.sweep.run")
SMALL = ("--preset", "smoke", "--model", "line-rnn", "--set", "model.hidden=4", "--set", "data.examples=320")


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    file = tmp_path / "grid.toml"
    file.write_text("rate = [1e-2, 1e-3]\n")
    return file


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Trials run in this process, in place of Ray's; those of rate 1e-3 fail while their name is in the list."""
    broken: list[str] = []

    def run(directory: Path, trials: list[Trial], *, report: Any, command: list[str], **_: Any) -> list[TrialResult]:
        board = MODULE._Board(Path(directory), trials, report)
        Path(directory).mkdir(exist_ok=True)
        for i, trial in enumerate(trials):
            error = "It is broken." if trial.name in broken else None
            if error is None:
                train(trial.config, Path(directory) / trial.name, command=command)
            board.ended(i, error)
        results: list[TrialResult] = board.results()
        return results

    monkeypatch.setattr(MODULE, "sweep", run)
    return broken


def test_sweep_prints_a_table_and_names_the_selected_run(run: Any, tmp_path: Path, grid: Path, here: list[str]) -> None:
    code, out, err = run("sweep", tmp_path / "s", *SMALL, "--grid", grid)
    assert code == 0
    assert [line.split(":")[0] for line in err.splitlines()] == ["learning_rate=0.01", "learning_rate=0.001"]
    code, found, _ = run("sweep", tmp_path / "s", *SMALL, "--grid", grid, "--json")
    rows = [json.loads(line) for line in found.splitlines()]
    assert [row["values"] for row in rows] == [{"optimizer.learning_rate": 1e-2}, {"optimizer.learning_rate": 1e-3}]
    best = max(rows, key=lambda row: row["accuracy"])
    assert best["selected"]
    assert f"{tmp_path / 's' / best['run']} is selected: {best['accuracy']:.1%}" in out
    assert all(f"{row['accuracy']:.1%}" in out and "10/10" in out for row in rows)


def test_sweep_says_what_failed(run: Any, tmp_path: Path, grid: Path, here: list[str]) -> None:
    here.append("learning_rate=0.001")
    code, out, err = run("sweep", tmp_path / "s", *SMALL, "--grid", grid)
    assert code == 1
    assert "learning_rate=0.01 is selected" in out
    assert err.splitlines()[-1] == (
        "Error: 1 of 2 trials have not ended, the first learning_rate=0.001: It is broken. The same command "
        "resumes them."
    )


def test_sweep_of_the_paper_has_its_grid(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def listen(directory: Path, trials: list[Trial], **options: Any) -> list[TrialResult]:
        seen.update(options, trials=trials)
        return [TrialResult(trial.name, trial.values, "finished", 1, 1, 0.5, i == 0) for i, trial in enumerate(trials)]

    monkeypatch.setattr(MODULE, "sweep", listen)
    options = ("--asha", "--parallel", 2, "--address", "auto", "--task", "partial", "--model", "ggnn")
    assert run("sweep", tmp_path / "s", "--preset", "paper", *options, "--set", "seed=3").code == 0
    assert len(seen["trials"]) == 8
    assert {trial.config.model.name for trial in seen["trials"]} == {"ggnn"}
    assert {(trial.config.task, trial.config.seed) for trial in seen["trials"]} == {("partial", 3)}
    assert (seen["asha"], seen["parallel"], seen["address"]) == (True, 2, "auto")
    run("sweep", tmp_path / "s", "--samples", 3)
    assert len(seen["trials"]) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "quick"], "name a file with --grid"),
        (["--grid", "/nowhere/at/all.toml"], "/nowhere/at/all.toml: No such file"),
        (["--set", "optimizer.learning_rate=0.1"], "learning_rate is set to one value and is also in the grid"),
        (["--set", "hiden=3"], "Did you mean 'model.hidden'?"),
        (["--model", "ipa-gn"], "Did you mean 'ipa-gnn'?"),
        (["--samples", "0"], "greater than or equal to 1"),
        (["--parallel", "0"], "greater than or equal to 1"),
    ],
)
def test_sweep_refuses_before_it_writes(
    tmp_path: Path, refused: Callable[..., str], arguments: list[str], message: str
) -> None:
    assert message in refused("sweep", tmp_path / "s", *arguments)
    assert not (tmp_path / "s").exists()


def test_states_are_printed_as_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    sweep_commands._print_state(
        TrialResult("learning_rate=1", {"optimizer.learning_rate": 1.0}, "ended early", 1234, 5000, 0.25)
    )
    sweep_commands._print_state(
        TrialResult("learning_rate=2", {"optimizer.learning_rate": 2.0}, "failed", 0, 5000, None)
    )
    assert capsys.readouterr().err.splitlines() == [
        "learning_rate=1: ended early after 1,234 steps, 25.0%",
        "learning_rate=2: failed after 0 steps",
    ]
