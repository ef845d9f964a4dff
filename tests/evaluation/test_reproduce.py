"""The script that makes the records' runs."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ipagnn.training import TrainConfig
from ipagnn.training.config import merge
from ipagnn.training.folder import RunFolder

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
"""


def reproduce(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    (folder / "table.toml").write_text(TABLE)
    return subprocess.run(
        [sys.executable, "records/reproduce.py", folder / "table.toml", folder / "runs", *options],
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
    assert done.stdout.endswith("2 of 3 runs are done. Left: wrong.\n")
    for name, seed in (("one", 0), ("other", 3)):
        assert RunFolder(tmp_path / "runs" / name).config().seed == seed
        assert json.loads((tmp_path / "runs" / name / "evaluation.json").read_text())["set"]["name"] == "D_test"


def test_what_does_not_fit_the_time_is_named(tmp_path: Path) -> None:
    done = reproduce(tmp_path, "--seconds", "1")
    assert done.returncode == 1
    assert done.stdout == "0 of 3 runs are done. Left: one, wrong, other.\n"


def test_the_table_holds_settings() -> None:
    table = tomllib.loads((ROOT / "records" / "table.toml").read_text())
    assert table["runs"]
    for own in table["runs"].values():
        TrainConfig.from_dict(merge(table["common"], own))
