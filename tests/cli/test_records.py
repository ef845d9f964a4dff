"""`ipagnn record`, and `ipagnn report` on what it keeps."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ipagnn.models import load_model
from ipagnn.reporting.report_markdown import BEGIN, END

Run = Callable[..., Any]


@pytest.fixture
def evaluated(run: Run, tmp_path: Path) -> list[Path]:
    """Two runs that differ in their seed."""
    folders = [tmp_path / "runs" / f"r{seed}" for seed in range(2)]
    for seed, folder in enumerate(folders):
        few = ["--set", "data.examples=64", "--set", "run.validation_count=20", "--set", f"seed={seed}"]
        assert run("train", folder, "--preset", "smoke", *few).code == 0
        assert run("evaluate", folder, "--count", 3, "--lengths", "5,6", "--save").code == 0
    return folders


def test_runs_become_records_and_records_a_report(run: Run, evaluated: list[Path], tmp_path: Path) -> None:
    records, weights = tmp_path / "records", tmp_path / "weights"
    done = run("record", *evaluated, "--to", records, "--weights", weights)
    assert done.code == 0, done.err
    kept = sorted(records.iterdir())
    assert [path.name[10:] for path in kept] == ["-r0", "-r1"]
    assert all(str(path) in done.out for path in kept)
    assert load_model(weights / "ipa-gnn-full.safetensors").config.hidden == 16
    assert "`records/" in (weights / "ipa-gnn-full.md").read_text()
    page = records / "README.md"
    page.write_text(f"Before\n{BEGIN}\n{END}\nafter\n")
    done = run("report", records, "--out", tmp_path / "report.html", "--into", page)
    assert done.code == 0, done.err
    text = page.read_text()
    assert f"[seed 0]({kept[0].name}), [seed 1]({kept[1].name})" in text
    assert text.startswith("Before\n")
    assert text.endswith("after\n")
    assert (tmp_path / "report.svg").read_text().startswith("<?xml")


def test_records_are_not_overwritten(
    run: Run, evaluated: list[Path], tmp_path: Path, refused: Callable[..., str]
) -> None:
    assert run("record", evaluated[0], "--to", tmp_path, "--name", "a").code == 0
    for arguments, message in (
        ([evaluated[0], "--name", "a"], "never overwritten"),
        ([*evaluated, "--name", "b"], "--name is for one run"),
        ([tmp_path / "nothing"], "is no run folder"),
    ):
        assert message in refused("record", *arguments, "--to", tmp_path)
