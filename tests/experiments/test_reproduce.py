"""The script that makes the records' runs."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ipagnn._common.options import merge
from ipagnn.training import TrainConfig
from ipagnn.training.runs.folder import RunFolder

ROOT = Path(__file__).parents[2]
TABLE = """
[common]
batch_size = 8
examples = 80
log_every = 5
validation_count = 8
validation_every = 40
threads = 1
model.hidden = 4
model.name = "line-rnn"

[runs.one]

[runs.wrong]
model.hidden = -1

[runs.other]
seed = 3

[runs.further]
after = "other"
seed = 4

[runs.never]
after = "wrong"
"""


def reproduce(folder: Path, *options: str, table: str = TABLE) -> "subprocess.CompletedProcess[str]":
    (folder / "table.toml").write_text(table)
    return subprocess.run(
        [sys.executable, "experiments/reproduce.py", folder / "table.toml", folder / "runs", *options],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        text=True,
        capture_output=True,
        check=False,
    )


@pytest.mark.slow
def test_runs_are_trained_and_evaluated_and_failures_told(tmp_path: Path) -> None:
    done = reproduce(tmp_path, "--together", "2")
    assert done.returncode == 1, done.stderr
    assert "wrong failed" in done.stdout
    assert "hidden is -1" in done.stdout
    assert done.stdout.endswith("3 of 5 runs are done. Left: wrong, never.\n")
    begun_with = str(tmp_path / "runs" / "other.safetensors")
    for name, seed, start in (("one", 0, ""), ("other", 3, ""), ("further", 4, begun_with)):
        config = RunFolder(tmp_path / "runs" / name).config()
        assert (config.seed, config.init_from) == (seed, start)
        assert json.loads((tmp_path / "runs" / name / "evaluation.json").read_text())["set"]["name"] == "D_test"


def test_what_does_not_fit_the_time_is_named(tmp_path: Path) -> None:
    done = reproduce(tmp_path, "--seconds", "1")
    assert done.returncode == 1
    assert done.stdout == "0 of 5 runs are done. Left: one, wrong, other, further, never.\n"


@pytest.mark.parametrize("after", ["other", "one", "none at all"])
def test_a_run_comes_after_one_that_stands_above_it(tmp_path: Path, after: str) -> None:
    done = reproduce(tmp_path, table=f'[runs.one]\nafter = "{after}"\n\n[runs.other]\n')
    assert done.returncode == 1
    assert "one comes after a run that does not stand above it" in done.stderr
    assert f": {after}. Above it: none." in done.stderr


def test_the_table_holds_settings() -> None:
    table = tomllib.loads((ROOT / "experiments" / "table.toml").read_text())
    assert table["runs"]
    for own in table["runs"].values():
        own.pop("after", None)
        TrainConfig.from_dict(merge(table["common"], own))
