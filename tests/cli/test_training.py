import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ipagnn.cli import training as training_commands
from ipagnn.training import Progress, RunFolder, preset, read_config, read_metrics

SMALL = ("--preset", "smoke", "--model", "line-rnn", "--set", "model.hidden=4", "--set", "data.examples=640")


def test_train_writes_a_run_and_says_where(run: Any, tmp_path: Path) -> None:
    code, out, err = run(
        "train", tmp_path / "r", *SMALL, "--task", "partial", "--seed", 3, "--set", "optimizer.learning_rate=3e-4"
    )
    assert (code, err) == (0, "")
    assert out.count("\n") == 1
    assert "finished after 20 steps" in out
    assert str(tmp_path / "r" / "model.safetensors") in out
    config = read_config(tmp_path / "r" / "config.toml")
    assert (config.model.name, config.model.hidden, config.task, config.seed) == ("line-rnn", 4, "partial", 3)
    assert (config.optimizer.learning_rate, config.data.examples) == (3e-4, 640)
    assert config.data.batch_size == preset("smoke").data.batch_size


def test_train_goes_on_with_the_same_command_and_with_none(run: Any, tmp_path: Path) -> None:
    code, out, _ = run("train", tmp_path / "r", *SMALL, "--time-limit", "0.001s")
    assert code == 0
    assert "stopped by the time limit after 1 of 20 steps" in out
    code, out, _ = run("train", tmp_path / "r", "--time-limit", "1h")
    assert code == 0
    assert "finished after 20 steps" in out
    assert run("train", tmp_path / "r", *SMALL).out == out
    assert len(json.loads((tmp_path / "r" / "run.json").read_text())["starts"]) == 2


def test_train_on_a_data_set(run: Any, tmp_path: Path) -> None:
    assert run("generate", tmp_path / "d", "--split", "train", "--count", 200, "--length", 4).code == 0
    arguments = ("--model", "line-rnn", "--data", tmp_path / "d", "--set", "data.examples=96", "--set", "data.length=4")
    few = (
        "--set",
        "model.hidden=4",
        "--set",
        "run.validation_count=20",
        "--set",
        "run.log_every=1",
        "--set",
        "run.threads=1",
    )
    assert run("train", tmp_path / "r", *arguments, *few).code == 0
    record = json.loads((tmp_path / "r" / "run.json").read_text())
    assert len(record["data"]) == 64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "small"], "'paper', 'environment', 'numbers', 'extended', 'quick', 'smoke'"),
        (["--model", "ipa-gn"], "Did you mean 'ipa-gnn'?"),
        (["--set", "hiden=3"], "Did you mean 'model.hidden'?"),
        (["--set", "rate"], "key=value"),
        (["--set", "optimizer.learning_rate=fast"], "it must be a number"),
        (["--set", "rate=1e-3"], "Did you mean 'optimizer.learning_rate'?"),
        (["--model", "trace-rnn", "--task", "partial"], "cannot be trained on the partial task"),
        (["--config", "/nowhere/at/all.toml"], "/nowhere/at/all.toml: No such file"),
        (["--data", "/nowhere/at/all"], "no finished data set"),
        (["--time-limit", "soon"], "90s, 10m or 2h"),
        (["--time-limit", "-1m"], "above 0"),
        (["--device", "gpu"], "auto, cpu, cuda"),
        (["--seed", "-1"], "seed is -1"),
    ],
)
def test_train_refuses_before_it_writes(
    tmp_path: Path, refused: Callable[..., str], arguments: list[str], message: str
) -> None:
    assert message in refused("train", tmp_path / "r", *arguments)
    assert not (tmp_path / "r").exists()


def test_train_refuses_a_run_with_other_settings(run: Any, tmp_path: Path, refused: Callable[..., str]) -> None:
    run("train", tmp_path / "r", *SMALL, "--time-limit", "0.001s")
    assert "seed is 0, not 7" in refused("train", tmp_path / "r", *SMALL, "--seed", 7)


def test_train_shows_rate_loss_accuracy_and_time_left_on_a_terminal(
    tmp_path: Path, run_terminal: Callable[..., str]
) -> None:
    shown = run_terminal("train", tmp_path / "r", *SMALL)
    for part in ("20/20", "examples/s", "loss", "accuracy", "0 s left", "finished"):
        assert part in shown


def test_train_tells_a_line_a_minute_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 0.0
    monkeypatch.setattr(training_commands.time, "monotonic", lambda: clock)
    with training_commands.watch(100) as report:
        for step in range(1, 101):
            clock += 7.0
            report(Progress(step, 100, 8 * step, 2.5, 0.125, 1234.5, 7.0 * (100 - step), 0.25))
    found = capsys.readouterr().err.splitlines()
    assert len(found) == 11  # in 700 seconds, every ninth report
    assert found[0] == "step 9/100  1,234 examples/s  loss 2.500  accuracy 12.5%  validation 25.0%  11 min left"


def test_runs_lists_and_plots(run: Any, tmp_path: Path) -> None:
    run("train", tmp_path / "runs" / "a", *SMALL)
    run("train", tmp_path / "runs" / "deeper" / "b", *SMALL, "--task", "partial", "--time-limit", "0.001s")
    code, out, err = run("runs", tmp_path / "runs", "--json", "--compare", tmp_path / "c.svg")
    assert (code, err) == (0, "")
    a, b = map(json.loads, out.splitlines())
    assert (a["run"], a["model"], a["task"], a["step"], a["steps"]) == ("a", "line-rnn", "full", 20, 20)
    assert (b["run"], b["task"], b["step"], b["state"]) == (os.path.join("deeper", "b"), "partial", 1, "stopped")
    lines = read_metrics(RunFolder(tmp_path / "runs" / "a"))
    assert a["accuracy"] == max(line["accuracy"] for line in lines if line["kind"] == "validation")
    assert a["state"] == "finished"
    assert b["accuracy"] is None
    assert (tmp_path / "c.svg").read_text().startswith("<?xml")
    code, out, _ = run("runs", tmp_path / "runs")
    assert code == 0
    assert all(word in out for word in ("line-rnn", "20/20", "1/20", "finished", "stopped", f"{a['accuracy']:.1%}"))


def test_runs_refuses_bad_input(run: Any, tmp_path: Path, refused: Callable[..., str]) -> None:
    run("train", tmp_path / "r", *SMALL, "--time-limit", "0.001s")
    (tmp_path / "empty").mkdir()
    for arguments, message in (
        ([tmp_path / "nowhere"], "no directory"),
        ([tmp_path / "empty"], "no run"),
        ([tmp_path, "--compare", tmp_path / "c.docx"], "c.docx; its name must end in .svg"),
        ([tmp_path, "--compare", tmp_path / "gone" / "c.svg"], "there is no folder"),
    ):
        assert message in refused("runs", *arguments)
