"""Writes data sets to disk, so that a killed run goes on where it was and ends with the same bytes.

Every program is a function of the recipe and its index, so a shard can be made at any time, by anyone. One process,
this one, touches the directory: a shard is written aside, flushed and renamed, then recorded with its checksum in
`unfinished.json`; once all are there, the manifest takes the place of that file. A second start keeps the recorded
shards if they still hash to what was recorded, and refuses them otherwise.
"""

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from ipagnn._common.files import aside, lock, reason, write_whole
from ipagnn.data.manifest import (
    MANIFEST,
    OLD_MANIFEST,
    WRITER,
    DataSetError,
    Manifest,
    Shard,
    is_wide,
    read_manifest,
    shard_names,
)
from ipagnn.data.shards import decode_shard, encode_shard, read_verified
from ipagnn.data.splits import Split, recipe
from ipagnn.data.tasks import FULL, Task
from ipagnn.languages.arithmetic._compiled.hash import program_hashes
from ipagnn.languages.arithmetic.grammar import PAPER, Grammar, Lengths
from ipagnn.languages.arithmetic.program import ProgramTable

SHARD_SIZE: Final = 250_000
"""Programs a shard: 5 MB of training programs on disk."""
UNFINISHED: Final = "unfinished.json"
_RESULTS: Final = ("writer", "by_length", "duplicates", "shards")
"""Keys of a manifest that come out of the making; the others were asked for."""


@dataclass(frozen=True, slots=True)
class _Made:
    """The bytes of a shard, and of each program its length and hash."""

    data: bytes
    lengths: npt.NDArray[np.int64]
    hashes: npt.NDArray[np.uint64]

    @staticmethod
    def of(data: bytes, table: ProgramTable) -> "_Made":
        return _Made(data, table.lengths, program_hashes(table.line_offsets, table.line_tokens))


_Shards = Generator[_Made, None, None]


def generate(
    directory: Path | str,
    task: Task | str = FULL,
    split: Split = "train",
    count: int | None = None,
    seed: int | None = None,
    lengths: Lengths | None = None,
    grammar: Grammar = PAPER,
    *,
    shard_size: int = SHARD_SIZE,
    with_source: bool = False,
    threads: int | None = None,
    on: Literal["local", "ray"] = "local",
    progress: Callable[[int], None] | None = None,
) -> Manifest:
    """Write a data set, or resume writing it.

    Args:
        directory: Output directory. Created if missing; resumed if an earlier call with the same arguments was
            interrupted.
        task, split, count, seed, lengths, grammar: The programs; see `splits.recipe` for what is not given.
        shard_size: Programs a shard.
        with_source: Whether to add the column `source`, the text of each program.
        threads: Threads at work, by default one a core; they do not change a byte. A Ray cluster has its own count.
        on: `local`, or `ray` to make the shards on a Ray cluster: the one at RAY_ADDRESS, or a new one on this machine.
        progress: Called with the number of programs on disk, whenever a shard is written.

    Returns:
        The manifest, as written to `_manifest.json`.

    Raises:
        DataSetError: The directory holds something else, a shard is damaged or foreign, or the disk is full.
    """
    if on not in ("local", "ray"):
        raise ValueError(f"Programs cannot be generated on {on!r}; choose 'local' or 'ray'.")
    wanted = Manifest(recipe(split, task, count, seed, lengths, grammar), shard_size, with_source, WRITER, {}, 0, ())
    names = shard_names(wanted.recipe, shard_size)
    directory = Path(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataSetError(f"The directory {directory} cannot be made: {error.strerror}.") from error
    with lock(directory) as held:
        if not held:
            raise DataSetError(f"Another process is writing to {directory}; wait for it to end.")
        return _generate(directory, wanted, names, threads or os.cpu_count() or 1, on == "ray", progress)


def _generate(
    directory: Path,
    wanted: Manifest,
    names: Sequence[str],
    threads: int,
    on_ray: bool,
    progress: Callable[[int], None] | None,
) -> Manifest:
    recorded = _read_recorded(directory, wanted)
    _clean(directory, names)
    kept = [i for i, shard in enumerate(recorded.shards) if (directory / shard.name).exists()]
    missing = sorted(set(range(len(names))) - set(kept))
    if missing and recorded.writer != WRITER:
        raise DataSetError(
            f"{directory} was begun with {recorded.writer}, and this is {WRITER}, which may write other bytes; "
            "go on with that version, or start in an empty directory."
        )
    manifest = replace(recorded, shards=())
    hashes: list[npt.NDArray[np.uint64]] = []
    by_length = np.zeros(max(wanted.recipe.lengths.lengths) + 1, np.int64)
    done = 0
    there = {names[i] for i in kept}
    each = 1 if on_ray else max(1, threads // max(1, len(missing)))  # few shards: several threads to each
    make = partial(_make, wanted, each)
    keep = partial(_keep, directory, recorded)
    with (
        closing(_on_threads(keep, kept, threads)) as old,
        closing(_on_ray(make, missing) if on_ray else _on_threads(make, missing, threads)) as new,
    ):
        for i, name in enumerate(names):
            path = directory / name
            made = next(old if name in there else new)
            shard = Shard(name, len(made.lengths), len(made.data), hashlib.sha256(made.data).hexdigest())
            if i < len(recorded.shards) and shard != recorded.shards[i]:
                raise DataSetError(
                    f"The shard {path}, made again, differs from its record; start in an empty directory."
                )
            if name not in there:
                if path.exists() and path.read_bytes() != made.data:  # there, but never recorded: killed, or foreign
                    raise DataSetError(
                        f"The shard {path} is damaged or foreign: it is not what this command writes. "
                        "Delete it and run the same command again."
                    )
                _write(path, made.data)
            manifest = replace(manifest, shards=(*manifest.shards, shard))
            if i >= len(recorded.shards):
                _write_json(directory / UNFINISHED, manifest)
            hashes.append(made.hashes)
            by_length += np.bincount(made.lengths, minlength=len(by_length))
            done += shard.count
            if progress:
                progress(done)
    distinct = len(np.unique(np.concatenate(hashes)))
    found = {int(length): int(by_length[length]) for length in np.flatnonzero(by_length)}
    manifest = replace(manifest, by_length=found, duplicates=done - distinct)
    if manifest != recorded or not (directory / MANIFEST).exists():
        _write_json(directory / MANIFEST, manifest)
    (directory / OLD_MANIFEST).unlink(missing_ok=True)
    (directory / UNFINISHED).unlink(missing_ok=True)
    return manifest


def _keep(directory: Path, recorded: Manifest, index: int) -> _Made:
    """Read a shard that an earlier run has written."""
    data = read_verified(directory, recorded.shards[index])
    return _Made.of(data, decode_shard(data, str(directory / recorded.shards[index].name), recorded.recipe))


def _make(wanted: Manifest, threads: int, index: int) -> _Made:
    """Make a shard in memory."""
    start = index * wanted.shard_size
    table = wanted.recipe.table(start, min(start + wanted.shard_size, wanted.recipe.count), threads)
    modulus = wanted.recipe.grammar.condition_modulus if wanted.with_source else None
    return _Made.of(encode_shard(table, modulus, wide=is_wide(wanted.recipe)), table)


def _on_threads(job: Callable[[int], _Made], indices: Sequence[int], threads: int) -> _Shards:
    """Results of a job on this machine, in order; it runs a few shards ahead of what is taken."""
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[_Made]] = deque()
        try:
            for index in indices:
                waiting.append(pool.submit(job, index))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _apply(job: Callable[[int], _Made], index: int) -> _Made:
    return job(index)


def _on_ray(job: Callable[[int], _Made], indices: Sequence[int]) -> _Shards:
    """The same on a Ray cluster."""
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise DataSetError("Generating on Ray needs Ray; install it with `pip install 'ipagnn[ray]'`.") from error
    started = not ray.is_initialized()
    if started:
        ray.init(log_to_driver=False)
    try:
        task = ray.remote(num_cpus=1)(_apply)
        ahead = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
        waiting: deque[Any] = deque()
        for index in indices:
            waiting.append(task.remote(job, index))
            if len(waiting) > ahead:
                yield ray.get(waiting.popleft())
        while waiting:
            yield ray.get(waiting.popleft())
    finally:
        if started:
            ray.shutdown()


def _read_recorded(directory: Path, wanted: Manifest) -> Manifest:
    """What an earlier run has recorded, or `wanted` without a shard; another data set is refused."""
    for name in (MANIFEST, OLD_MANIFEST, UNFINISHED):
        if not (directory / name).exists():
            continue
        recorded = read_manifest(directory / name)
        there, asked = _flat(recorded), _flat(wanted)
        differing = [
            f"{key} is {there.get(key)!r}, not {asked.get(key)!r}" for key in asked if there[key] != asked[key]
        ]
        if differing:
            raise DataSetError(
                f"{directory} holds another data set: its {', its '.join(differing)}. "
                "Choose an empty directory, or the arguments of that data set."
            )
        return recorded
    return wanted


def _flat(manifest: Manifest) -> dict[str, Any]:
    """What was asked for, each field of the grammar on its own."""
    values = {key: value for key, value in manifest.to_dict().items() if key not in (*_RESULTS, "grammar")}
    grammar = {f"grammar.{key}": x for key, x in manifest.recipe.grammar.to_dict().items()}
    return {**values.pop("lengths"), **grammar, **values}


def _clean(directory: Path, names: Sequence[str]) -> None:
    """Remove what a killed run left half written; refuse shards that are none of this data set."""
    for path in directory.glob("*.parquet"):
        if path.name not in names:
            raise DataSetError(
                f"The shard {path} is foreign: this data set has {names[0]} to {names[-1]}. "
                "Move it away, or choose an empty directory."
            )
    for name in (*names, MANIFEST, UNFINISHED):
        aside(directory / name).unlink(missing_ok=True)


def _write_json(path: Path, manifest: Manifest) -> None:
    _write(path, (json.dumps(manifest.to_dict() | {"checksum": manifest.fingerprint}, indent=2) + "\n").encode())


def _write(path: Path, data: bytes) -> None:
    try:
        write_whole(path, data)
    except OSError as error:
        raise DataSetError(
            f"{path} could not be written, for {reason(error)}. What was finished before is kept: once {len(data):,} "
            "bytes and more can be written, run the same command again."
        ) from error
