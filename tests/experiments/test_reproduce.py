"""The script that makes the records' runs."""

import json
import os
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from ipagnn._common.options import merge
from ipagnn.models import available_models, find_model_file
from ipagnn.models.files import hash_weights
from ipagnn.reporting.runs import read_run
from ipagnn.training import TrainConfig, read_config
from ipagnn.training.runs.folder import RunFolder

ROOT = Path(__file__).parents[2]
CHAINS = tomllib.loads((ROOT / "records" / "chains.toml").read_text())
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
    return run("table", str(folder / "table.toml"), str(folder / "runs"), *options)


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "experiments/reproduce.py", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        text=True,
        capture_output=True,
        check=False,
    )


@pytest.mark.slow
def test_runs_are_trained_and_evaluated_and_failures_named(tmp_path: Path) -> None:
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


def test_every_packaged_weight_file_has_a_chain_of_records() -> None:
    assert sorted(CHAINS["packaged"]) == available_models()
    for name, chain in CHAINS["packaged"].items():
        file = find_model_file(name)
        assert hash_weights(file.path) == chain["weights"], f"{name} holds other weights than records/chains.toml says"
        assert file.record == chain["runs"][-1]
        for before, record in pairwise([None, *chain["runs"]]):
            assert origin(record) == before, f"{record} started from something else"
            read_run(ROOT / "records" / record)
            assert RunFolder(ROOT / "records" / record).result() is not None
        assert Path(ROOT / chain.get("then", "experiments/reproduce.py")).is_file()


def test_every_record_that_started_from_other_weights_says_from_which() -> None:
    for folder in sorted((ROOT / "records").iterdir()):
        if folder.is_dir() and read_config(folder / "config.toml").init_from:
            before = origin(folder.name)
            assert before is not None
            assert (ROOT / "records" / before / "result.json").is_file(), f"{folder.name} started from {before}"


def test_stored_starting_weights_are_those_of_their_commit(tmp_path: Path) -> None:
    for record, start in CHAINS["starts"].items():
        if not start["commit"]:
            assert not start["weights"]
            continue
        name = read_config(ROOT / "records" / record / "config.toml").init_from
        where = f"{start['commit']}:src/ipagnn/weights/{name}.safetensors"
        found = subprocess.run(["git", "cat-file", "blob", where], cwd=ROOT, capture_output=True, check=False)
        if found.returncode:
            pytest.skip("This is no clone with the whole history.")
        (tmp_path / "then.safetensors").write_bytes(found.stdout)
        assert hash_weights(tmp_path / "then.safetensors") == start["weights"]
        assert find_model_file(tmp_path / "then.safetensors").record == start["record"]


def test_names_without_a_chain_are_refused(tmp_path: Path) -> None:
    done = run("chain", "ipa-gnn-ful", str(tmp_path))
    assert done.returncode == 1
    assert "has no weights 'ipa-gnn-ful'; it has env-ipa-gnn-any, " in done.stderr


@pytest.mark.slow
def test_a_chain_is_repeated_in_small(tmp_path: Path) -> None:
    small = "model.hidden=4 data.batch_size=8 data.examples=80 optimizer.warmup=0 run.log_every=5 run.threads=1 "
    small += "run.validation_count=8 run.validation_every=80 run.device=cpu run.precision=fp32"
    done = run("chain", "ipa-gnn-full", str(tmp_path), "--set", *small.split())
    assert done.returncode == 0, done.stdout + done.stderr
    runs = CHAINS["packaged"]["ipa-gnn-full"]["runs"]
    for before, record in pairwise(runs):
        start = RunFolder(tmp_path / record).record().init_from
        assert start is not None
        assert (start.weights, start.record) == (hash_weights(tmp_path / f"{before}.safetensors"), before)
    assert "steps-muon: " in done.stdout
    assert done.stdout.count("; its record: 68.2%") == 1
    assert find_model_file(tmp_path / "ipa-gnn-full.safetensors").record == runs[-1]


def origin(record: str) -> str | None:
    """Name of the record whose weights a run started from."""
    own = RunFolder(ROOT / "records" / record).record().init_from
    if own is not None:
        return own.record
    start: dict[str, str] = CHAINS["starts"].get(record, {})
    return start.get("record")
