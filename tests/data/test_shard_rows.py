"""Rows of a shard that are no programs, have wrong labels, or are others than the manifest tells of."""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ipagnn.data import DataSet, DataSetError, generate, read_shards
from ipagnn.data.manifest import MANIFEST
from ipagnn.data.shards import decode_shard, encode_shard
from ipagnn.languages.arithmetic import Lengths, ProgramTable, Sampler
from ipagnn.languages.arithmetic.program import ProgramKind


def encoded(**columns: Any) -> bytes:
    rows = {
        "tokens": pa.array([[1, 1004, 1036, 5, 1, 1001, 1036, 3]], pa.list_(pa.int16())),
        "length": pa.array([2], pa.int16()),
        "steps": pa.array([3], pa.int32()),
        "target": pa.array([7], pa.int32()),
        **columns,
    }
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({name: column for name, column in rows.items() if column is not None}), sink)
    return bytes(sink.getvalue())


def test_well_formed_rows_are_read() -> None:
    assert decode_shard(encoded(), "x").line_tokens.tolist() == [[1, 1004, 1036, 5], [1, 1001, 1036, 3]]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"target": None}, "no column target of type int32"),
        ({"length": pa.array([2.0])}, "no column length of type int16"),
        ({"length": pa.array([3], pa.int16())}, "not that of their `tokens`"),
        ({"tokens": pa.array([None], pa.list_(pa.int16()))}, "rows without tokens"),
        ({"target": pa.array([None], pa.int32())}, "rows without target"),
        ({"target": pa.array([-1], pa.int32())}, "its target is -1"),
        *(
            (
                {"tokens": pa.array([tokens], pa.list_(pa.int16())), "length": pa.array([2], pa.int16())},
                "program 0, line",
            )
            for tokens in (
                [2, 1004, 1036, 5, 1, 1001, 1036, 3],  # begins indented
                [1, 1004, 1036, 5, 3, 1001, 1036, 3],  # two levels at once
                [1, 1004, 1036, 5, 0, 1001, 1036, 3],  # no indent
                [1, 1004, 1036, 5, 1, 7, 1036, 3],  # a number for an operation
                [1, 1004, 1036, 5, 1, 1001, 1046, 3],  # no such variable
                [1, 1004, 1036, 5, 1, 1001, 1003, 3],  # an operation for a variable
                [1, 1004, 1036, 5, 1, 1001, 1036, 1004],  # an operation for an operand
                [1, 1004, 1036, 5, 1, 1001, 1036, -3],
            )
        ),
    ],
)
def test_rows_that_are_no_programs_are_refused(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(DataSetError, match=f"The shard x .*{message}"):
        decode_shard(encoded(**columns), "x")


def rewritten(directory: Path, target: Path, change: Callable[[ProgramTable], ProgramTable], **about: Any) -> DataSet:
    """A data set whose first shard is changed, with checksums that are right."""
    manifest = json.loads((directory / MANIFEST).read_text()) | {"checksum": ""} | about
    for shard in manifest["shards"]:
        data = (directory / shard["name"]).read_bytes()
        if shard is manifest["shards"][0]:
            data = encode_shard(change(decode_shard(data, "x")))
        (target / shard["name"]).write_bytes(data)
        shard |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (target / MANIFEST).write_text(json.dumps(manifest))
    return read_shards(target)


def with_target(table: ProgramTable, row: int, value: int) -> ProgramTable:
    target = table.target.copy()
    target[row] = value
    return replace(table, target=target)


@pytest.mark.parametrize("task", ["full", "partial"])
def test_wrong_labels_are_found(task: ProgramKind, tmp_path: Path) -> None:
    original, changed = tmp_path / "a", tmp_path / "b"
    changed.mkdir()
    generate(original, task, "train", 3_000, shard_size=2_000)
    read_shards(original).verify()
    unlikely = int(np.argmax(np.bincount(read_shards(original).table().target, minlength=1000) == 0))
    data = rewritten(original, changed, lambda table: with_target(table, 11, unlikely))
    with pytest.raises(DataSetError, match=r"program 11: the target is .*the (value|mask)"):
        data.verify()
    data = rewritten(original, changed, lambda table: replace(table, target=np.full_like(table.target, unlikely)))
    with pytest.raises(DataSetError, match="program 0: the target is"):
        data.shard(0)


def test_other_programs_than_the_manifest_tells_of(tmp_path: Path) -> None:
    original, changed = tmp_path / "a", tmp_path / "b"
    changed.mkdir()
    generate(original, "full", "train", 300, shard_size=200)
    masked = Sampler("partial", Lengths.training(10), seed=1).table(0, 200)
    with pytest.raises(DataSetError, match="program 0: a line is masked, and the task is full"):
        rewritten(original, changed, lambda _: masked).shard(0)
    longer = Sampler("full", Lengths.exact(11)).table(0, 200)
    with pytest.raises(DataSetError, match="lengths that its manifest does not name"):
        rewritten(original, changed, lambda _: longer).shard(0)
    with pytest.raises(DataSetError, match="program 0: its target is 1500"):
        rewritten(original, changed, lambda table: with_target(table, 0, 1500)).shard(0)
    with pytest.raises(DataSetError, match="counts other lengths"):
        rewritten(original, changed, lambda table: table, by_length={"10": 300}).verify()


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [Lengths.training(10), Lengths.exact(100)], ids=["up to 10", "100"])
def test_checking_costs_less_than_a_tenth_of_reading(lengths: Lengths) -> None:
    table = Sampler("full", lengths, seed=1).table(0, 1_500_000 // max(lengths.lengths))
    data = encode_shard(table)

    def seconds(work: Callable[[], object]) -> float:
        began = time.process_time()  # other work on the machine does not count
        work()
        return time.process_time() - began

    decode_shard(data, "x")
    rounds = [(seconds(table.check), seconds(lambda: decode_shard(data, "x"))) for _ in range(15)]
    check, read = (min(times) for times in zip(*rounds, strict=True))
    assert check < 0.1 * (read - check)


def test_bytes_that_are_no_parquet_are_refused() -> None:
    with pytest.raises(DataSetError, match="The shard x is not a Parquet file"):
        decode_shard(b"PAR1 not really PAR1", "x")
