import errno
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count as count_from
from pathlib import Path
from typing import Any

import pytest

from ipagnn.data import DataSetError, generate, read_shards, recipe
from ipagnn.data.generate import UNFINISHED
from ipagnn.data.manifest import MANIFEST, WRITER
from ipagnn.languages.arithmetic import Grammar, Lengths

MODULE = importlib.import_module("ipagnn.data.generate")
ARGUMENTS: dict[str, Any] = {"task": "partial", "split": "train", "count": 1_050, "seed": 3, "shard_size": 200}
"""Six shards, the last one smaller."""


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data") / "made" / "as needed"
    generate(directory, **ARGUMENTS, threads=1)
    return directory


@pytest.fixture
def finished(whole: Path, tmp_path: Path) -> Path:
    """A copy that a test may harm."""
    directory = tmp_path / "finished"
    directory.mkdir()
    for name, data in contents(whole).items():
        (directory / name).write_bytes(data)
    return directory


class Killed(BaseException):
    """Stands for the end of the process."""


def test_shards_hold_the_programs_of_the_recipe(whole: Path) -> None:
    data = read_shards(whole)
    expected = recipe("train", "partial", 1_050, 3).table(0, 1_050)
    found = data.table()
    assert found.line_tokens.tolist() == expected.line_tokens.tolist()
    assert found.line_offsets.tolist() == expected.line_offsets.tolist()
    assert found.target.tolist() == expected.target.tolist()
    assert sorted(contents(whole)) == [MANIFEST, *(f"train-{i:05}-of-00006.parquet" for i in range(6))]


def test_manifest_tells_how_it_was_made(whole: Path) -> None:
    manifest = json.loads((whole / MANIFEST).read_text())
    assert (manifest["task"], manifest["split"], manifest["seed"], manifest["count"]) == ("partial", "train", 3, 1_050)
    assert (manifest["format_version"], manifest["vocabulary_version"]) == (1, 1)
    assert Grammar.from_dict(manifest["grammar"]) == Grammar()
    assert manifest["lengths"]["lengths"] == list(Lengths.training(10).lengths)
    assert sum(manifest["by_length"].values()) == 1_050
    assert [shard["count"] for shard in manifest["shards"]] == [200] * 5 + [50]


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_do_not_change_a_byte(whole: Path, tmp_path: Path, threads: int) -> None:
    generate(tmp_path, **ARGUMENTS, threads=threads)
    assert contents(tmp_path) == contents(whole)


def test_progress_counts_programs(tmp_path: Path) -> None:
    seen: list[int] = []
    generate(tmp_path, **ARGUMENTS, progress=seen.append)
    assert seen == [200, 400, 600, 800, 1_000, 1_050]
    again: list[int] = []
    generate(tmp_path, **ARGUMENTS, progress=again.append)
    assert again == seen


def killed_at(write: int, part: str) -> Callable[[Path, bytes], None]:
    """A `_write` that ends the process at the given write, counted from 0: before, within or after it."""
    number = count_from()
    original = MODULE._write

    def writing(path: Path, data: bytes) -> None:
        if next(number) != write:
            original(path, data)
            return
        if part == "within":
            path.with_name(f".{path.name}.part").write_bytes(data[: len(data) // 2])
        elif part == "after":
            original(path, data)
        raise Killed

    return writing


@pytest.mark.parametrize("part", ["before", "within", "after"])
@pytest.mark.parametrize("write", [0, 1, 4, 5, 11, 12])  # six shards, each recorded after it; then the manifest
def test_killed_anywhere_it_goes_on_to_the_same_bytes(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: int, part: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(MODULE, "_write", killed_at(write, part))
        with pytest.raises(Killed):
            generate(tmp_path, **ARGUMENTS, threads=2)
    if write < 12 or part != "after":
        with pytest.raises(DataSetError, match="no finished data set"):
            read_shards(tmp_path)
    # What lies under a shard's final name is complete.
    shards = {name: data for name, data in contents(tmp_path).items() if name.endswith("parquet")}
    assert shards.items() <= contents(whole).items()
    made = []
    with monkeypatch.context() as patch:
        original = MODULE._make
        patch.setattr(MODULE, "_make", lambda wanted, threads, i: (made.append(i), original(wanted, threads, i))[1])
        generate(tmp_path, **ARGUMENTS, threads=3)
    assert contents(tmp_path) == contents(whole)
    recorded = (write + (part == "after")) // 2  # shards that were recorded are not made again
    assert sorted(made) == list(range(min(recorded, 6), 6))


@pytest.mark.slow
def test_a_process_that_is_really_killed_goes_on(tmp_path: Path) -> None:
    code = (
        "import sys; from ipagnn.data import generate;"
        "generate(sys.argv[1], count=400_000, shard_size=10_000, threads=2, progress=lambda n: print(n, flush=True))"
    )

    def start(directory: Path) -> subprocess.Popen[str]:
        path = os.pathsep.join([str(Path(__file__).parents[2] / "src"), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": path}
        return subprocess.Popen(
            [sys.executable, "-c", code, str(directory)], stdout=subprocess.PIPE, text=True, env=environment
        )

    for delay in (0.0, 0.05, 0.11, 0.2):
        with start(tmp_path / "killed") as process:
            assert process.stdout
            assert process.stdout.readline() == "10000\n"
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
            process.stdout.read()
            assert process.wait() in (-signal.SIGKILL, 0)
    for directory in ("killed", "whole"):
        with start(tmp_path / directory) as process:
            process.communicate()
            assert process.returncode == 0
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


@pytest.mark.parametrize("name", [MANIFEST, UNFINISHED])
def test_a_damaged_shard_is_named_and_refused(finished: Path, name: str) -> None:
    (finished / MANIFEST).rename(finished / name)
    shard = finished / "train-00003-of-00006.parquet"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    with pytest.raises(DataSetError, match=r"train-00003-of-00006.parquet is damaged or foreign"):
        generate(finished, **ARGUMENTS)
    assert shard.read_bytes() == data


def test_a_shard_of_another_data_set_is_named_and_refused(finished: Path, tmp_path: Path) -> None:
    (finished / MANIFEST).unlink()  # nothing is recorded: only making the shard again can tell
    generate(tmp_path / "other", **{**ARGUMENTS, "seed": 4})
    name = "train-00002-of-00006.parquet"
    (finished / name).write_bytes((tmp_path / "other" / name).read_bytes())
    with pytest.raises(DataSetError, match=rf"{name} is damaged or foreign"):
        generate(finished, **ARGUMENTS)
    (finished / name).unlink()
    generate(finished, **ARGUMENTS)
    read_shards(finished).verify()


def test_a_shard_with_a_foreign_name_is_refused(finished: Path) -> None:
    (finished / "mine.parquet").write_bytes(b"precious")
    with pytest.raises(DataSetError, match=r"mine.parquet is foreign"):
        generate(finished, **ARGUMENTS)
    assert (finished / "mine.parquet").read_bytes() == b"precious"


def test_a_shard_that_went_missing_is_made_again(finished: Path, whole: Path) -> None:
    (finished / "train-00001-of-00006.parquet").unlink()
    generate(finished, **ARGUMENTS)
    assert contents(finished) == contents(whole)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": 4}, "its seed is 3, not 4"),
        ({"task": "full"}, "its task is 'partial', not 'full'"),
        ({"count": 1_051, "shard_size": 210}, "its count is 1050, not 1051, its shard_size is 200, not 210"),
        ({"split": "validation"}, "its split is 'train', not 'validation'"),
        ({"lengths": Lengths.training(9)}, r"its lengths is \[10,"),
        ({"grammar": Grammar(modulus=500)}, "its grammar.modulus is 1000, not 500"),
        ({"grammar": Grammar(block_limit=200)}, "its grammar.block_limit is 0, not 200"),
        ({"with_source": True}, "its with_source is False, not True"),
    ],
)
@pytest.mark.parametrize("name", [MANIFEST, UNFINISHED])
def test_another_data_set_is_refused_by_what_differs(
    finished: Path, name: str, changed: dict[str, Any], message: str
) -> None:
    (finished / MANIFEST).rename(finished / name)
    before = contents(finished)
    with pytest.raises(DataSetError, match=f"holds another data set: .*{message}"):
        generate(finished, **{**ARGUMENTS, **changed})
    assert contents(finished) == before


def test_a_data_set_with_a_block_limit_is_not_taken_for_one_without(tmp_path: Path) -> None:
    made = generate(tmp_path, "full", "test", 20, lengths=Lengths.exact(12), grammar=Grammar(block_limit=9))
    assert generate(tmp_path, "full", "test", 20, lengths=Lengths.exact(12), grammar=Grammar(block_limit=9)) == made
    with pytest.raises(DataSetError, match=r"its grammar\.block_limit is 9, not 0"):
        generate(tmp_path, "full", "test", 20, lengths=Lengths.exact(12))


def test_another_writer_may_check_but_not_go_on(finished: Path) -> None:
    manifest = json.loads((finished / MANIFEST).read_text())
    manifest |= {"writer": "pyarrow 1.0", "checksum": ""}
    (finished / MANIFEST).write_text(json.dumps(manifest))
    assert generate(finished, **ARGUMENTS).writer == "pyarrow 1.0"
    (finished / "train-00001-of-00006.parquet").unlink()
    with pytest.raises(DataSetError, match=f"begun with pyarrow 1.0, and this is {WRITER}"):
        generate(finished, **ARGUMENTS)


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    def second(_: int) -> None:
        with pytest.raises(DataSetError, match="Another process is writing"):
            generate(tmp_path, **ARGUMENTS)

    generate(tmp_path, **ARGUMENTS, progress=second)


def test_a_full_disk_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Path) -> None:
    written = count_from()

    def fsync(_: int) -> None:
        if next(written) == 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(
            DataSetError, match=r"train-00002-of-00006.parquet could not be written, for the disk is full"
        ):
            generate(tmp_path, **ARGUMENTS)
    assert sorted(contents(tmp_path)) == [f"train-0000{i}-of-00006.parquet" for i in (0, 1)] + [UNFINISHED]
    generate(tmp_path, **ARGUMENTS)
    assert contents(tmp_path) == contents(whole)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that holds a few shards; only an administrator can have one."""
    directory = tmp_path / "disk"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", str(directory)]
    if sys.platform != "linux" or os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no small file system can be mounted here")
    yield directory
    subprocess.run(["umount", str(directory)], check=True)


def test_a_disk_that_is_really_full(small_disk: Path, whole: Path) -> None:
    with pytest.raises(DataSetError, match="the disk is full"):
        generate(small_disk, **ARGUMENTS)
    found = contents(small_disk)
    assert not [name for name in found if name.startswith(".")]
    shards = {name: data for name, data in found.items() if name.endswith("parquet")}
    assert shards
    assert shards.items() <= contents(whole).items()


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataSetError, match="cannot be made"):
        generate(tmp_path / "file" / "data", **ARGUMENTS)


def test_duplicates_are_counted(tmp_path: Path) -> None:
    tiny = Grammar(initial_values=(0, 1), operands=(1, 2), arithmetic_operations=("+=",), stmt_pass=0)
    manifest = generate(tmp_path, "full", "test", 60, lengths=Lengths.exact(2), grammar=tiny, shard_size=25)
    assert manifest.duplicates == 60 - 4
    assert manifest.by_length == {2: 60}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shard_size": 0}, "shard size of at least 1"),
        ({"count": 10**9, "shard_size": 10}, "at most 100,000 shards"),
        ({"on": "mars"}, "'local' or 'ray'"),
        ({"count": None}, "how many"),
        ({"split": "dev"}, "split"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_written(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        generate(tmp_path / "data", **{**ARGUMENTS, **arguments})
    assert not (tmp_path / "data").exists()


def test_without_ray_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(DataSetError, match=r"pip install 'ipagnn\[ray\]'"):
        generate(tmp_path, **ARGUMENTS, on="ray")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # Ray's own
def test_ray_does_not_change_a_byte(whole: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    (tmp_path / "train-00001-of-00006.parquet").write_bytes((whole / "train-00001-of-00006.parquet").read_bytes())
    generate(tmp_path, **ARGUMENTS, on="ray")
    assert contents(tmp_path) == contents(whole)
