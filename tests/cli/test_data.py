import json
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ipagnn.data.shards import read_shards
from ipagnn.data.splits import recipe
from ipagnn.languages.arithmetic import Lengths, format_program
from ipagnn.languages.arithmetic.holes import hole_distribution

TRAIN = ("--split", "train", "--count", 300, "--seed", 3)


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_generate_writes_what_was_asked_for(run: Any, tmp_path: Path) -> None:
    code, out, err = run("generate", tmp_path / "d", "--task", "partial", *TRAIN, "--length", 6)
    data = read_shards(tmp_path / "d")
    recipe = data.manifest.recipe
    assert (code, err) == (0, "")
    assert out.count("\n") == 1
    assert "300 partial programs" in out
    assert (recipe.split, recipe.task, recipe.count, recipe.seed) == ("train", "partial", 300, 3)
    assert recipe.lengths == Lengths.training(6)
    assert len(data.table()) == 300
    data.verify()


def test_generate_test_split_spreads_over_lengths(run: Any, tmp_path: Path) -> None:
    assert run("generate", tmp_path / "d", "--split", "test", "--count", 9, "--lengths", "20,30,40").code == 0
    assert read_shards(tmp_path / "d").table().lengths.tolist() == [20] * 3 + [30] * 3 + [40] * 3


def test_generate_validation_has_exactly_length(run: Any, tmp_path: Path) -> None:
    assert run("generate", tmp_path / "d", "--split", "validation", "--count", 50, "--length", 8).code == 0
    assert set(read_shards(tmp_path / "d").table().lengths.tolist()) == {8}


def test_generate_with_source_adds_the_text(run: Any, tmp_path: Path) -> None:
    assert run("generate", tmp_path / "d", *TRAIN, "--with-source").code == 0
    table = read_shards(tmp_path / "d").table()
    (shard,) = (tmp_path / "d").glob("*.parquet")
    assert pq.read_table(shard).column("source").to_pylist() == [format_program(program) for program in table]


def test_generate_goes_on_and_ends_with_the_same_bytes(run: Any, tmp_path: Path) -> None:
    run("generate", tmp_path / "whole", *TRAIN)
    shutil.copytree(tmp_path / "whole", tmp_path / "broken")
    (shard,) = (tmp_path / "broken").glob("*.parquet")
    shard.unlink()
    assert run("generate", tmp_path / "broken", *TRAIN, "--threads", 1).code == 0
    assert contents(tmp_path / "broken") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--split", "train"], "how many"),
        (["--split", "nonsense", "--count", 5], "'train', 'validation', 'test'"),
        (["--split", "train", "--count", 0], "at least 1"),
        (["--split", "train", "--count", 5, "--length", 1], "from 2 to 1000"),
        (["--split", "test", "--lengths", "20;30"], "whole numbers with commas between"),
        (["--split", "test", "--lengths", "20,20"], "named twice"),
        (["--split", "test", "--lengths", "20", "--length", 20], "choose one"),
        (["--split", "test", "--threads", 0], "--threads"),
    ],
)
def test_generate_refuses_before_it_writes(
    tmp_path: Path, refused: Callable[..., str], arguments: list[object], message: str
) -> None:
    assert message in refused("generate", tmp_path / "d", *arguments)
    assert not (tmp_path / "d").exists()


def test_generate_names_a_damaged_shard_and_another_data_set(
    run: Any, tmp_path: Path, refused: Callable[..., str]
) -> None:
    run("generate", tmp_path / "d", *TRAIN)
    assert "count is 300, not 200" in refused(
        "generate", tmp_path / "d", "--split", "train", "--count", 200, "--seed", 3
    )
    (shard,) = (tmp_path / "d").glob("*.parquet")
    shard.write_bytes(shard.read_bytes()[:-9] + b"something")
    assert shard.name in refused("generate", tmp_path / "d", *TRAIN)


def test_generate_where_nothing_can_be_written(tmp_path: Path, refused: Callable[..., str]) -> None:
    (tmp_path / "file").touch()
    assert str(tmp_path / "file") in refused("generate", tmp_path / "file" / "d", *TRAIN)


def test_generate_shows_rate_and_time_left_on_a_terminal(tmp_path: Path, run_terminal: Callable[..., str]) -> None:
    shown = run_terminal("generate", tmp_path / "d", *TRAIN)
    assert "programs/s" in shown
    assert "300/300" in shown
    assert "0:00:00" in shown


def test_manifest_tells_how_the_data_was_made(run: Any, tmp_path: Path) -> None:
    run("generate", tmp_path / "d", *TRAIN)
    manifest = json.loads((tmp_path / "d" / "_manifest.json").read_text())
    assert {"format_version", "grammar", "seed", "count", "shards"} <= set(manifest)


def test_ceiling_json_is_the_mean_over_programs(run: Any) -> None:
    code, out, err = run("ceiling", "--lengths", "20,40", "--count", 30, "--seed", 4, "--json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    table = recipe("test", "partial", 60, 4, Lengths.uniform((20, 40))).table(0, 60)
    best = [max(hole_distribution(program).probabilities.values()) for program in table]
    for found, expected in (
        (answer["overall"], best),
        (answer["by_length"]["20"], best[:30]),
        (answer["by_length"]["40"], best[30:]),
    ):
        assert found["count"] == len(expected)
        assert found["accuracy"] == pytest.approx(statistics.mean(expected))
        assert found["stderr"] == pytest.approx(statistics.stdev(expected) / len(expected) ** 0.5)
    assert list(answer["by_length"]) == ["20", "40"]


def test_ceiling_table_agrees_with_its_json(run: Any) -> None:
    arguments = ("ceiling", "--train-lengths", "--count", 300)
    overall = json.loads(run(*arguments, "--json").out)["overall"]
    code, out, _ = run(*arguments)
    assert code == 0
    (row,) = [line for line in out.splitlines() if "all" in line]
    assert f"{overall['accuracy']:.1%}" in row
    assert "300" in row


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lengths", "20", "--train-lengths"], "choose one"),
        (["--lengths", "twenty"], "whole numbers"),
        (["--lengths", "1"], "from 2 to 1000"),
        (["--count", 0], "--count"),
    ],
)
def test_ceiling_refuses_bad_input(refused: Callable[..., str], arguments: list[object], message: str) -> None:
    assert message in refused("ceiling", *arguments)


@pytest.mark.slow
def test_generate_interrupted_by_the_user_goes_on(run_process: Any, tmp_path: Path) -> None:
    arguments = ("--count", "1000000", "--length", "5")
    command = [sys.executable, "-m", "ipagnn", "generate", str(tmp_path / "broken"), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not list((tmp_path / "broken").glob("*.parquet")) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"Error: Interrupted.\n")
    assert not (tmp_path / "broken" / "_manifest.json").exists()
    assert run_process("generate", tmp_path / "broken", *arguments).code == 0
    assert run_process("generate", tmp_path / "whole", *arguments, "--threads", 1).code == 0
    assert contents(tmp_path / "broken") == contents(tmp_path / "whole")


@pytest.mark.slow
def test_generate_on_ray_writes_the_same_bytes(run_process: Any, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    arguments = ("--count", 300_000, "--length", 5)
    assert run_process("generate", tmp_path / "local", *arguments).code == 0
    assert run_process("generate", tmp_path / "ray", *arguments, "--on", "ray").code == 0
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")
