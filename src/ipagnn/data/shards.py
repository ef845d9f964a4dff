"""Data sets on disk: Parquet shards, beside a manifest (`manifest.py`).

A shard has one row a program and the columns of `SCHEMA`. It is plain Parquet: pandas, DuckDB and Hugging Face
`datasets` read it as it lies.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from ipagnn.data._compiled.collate import build_graphs
from ipagnn.data.labels import find_wrong_label
from ipagnn.data.manifest import (
    MANIFEST,
    MAX_SHARD_SIZE,
    DataSetError,
    Manifest,
    Shard,
    manifest_path,
    read_manifest,
)
from ipagnn.data.splits import Recipe
from ipagnn.languages.arithmetic.checks import InvalidProgramError
from ipagnn.languages.arithmetic.program import ProgramTable, spell
from ipagnn.languages.arithmetic.text import INDENT, format_line

MAX_SHARD_TOKENS: Final = 2**29
"""Tokens of a shard, of 2 bytes each once they are read, however small the file is."""
LABELS_CHECKED: Final = 256
"""Targets computed again whenever a shard is read; `DataSet.verify` computes all of them."""
SCHEMA: Final = pa.schema(
    [
        pa.field(
            "tokens", pa.list_(pa.int16()), nullable=False
        ),  # four ids a line (Grammar.tokens), one line after the other
        pa.field("length", pa.int16(), nullable=False),  # lines
        pa.field("steps", pa.int32(), nullable=False),  # T(x), the steps the paper gives a model
        pa.field("target", pa.int32(), nullable=False),  # v0 modulo the grammar's modulus at the end
    ]
)
WIDE_SCHEMA: Final = SCHEMA.set(3, pa.field("target", pa.int64(), nullable=False))
"""The columns of a grammar whose modulus is above `NARROW_MODULUS`."""


def encode_shard(table: ProgramTable, condition_modulus: int | None = None, *, wide: bool = False) -> bytes:
    """A table as the bytes of a Parquet file.

    Flat tokens with a dictionary and zstd 3 take 17 bytes a training program; a list for each of the four slots takes
    19, no dictionary 27, and zstd 9 saves 5% for twice the time.

    Args:
        table: The programs.
        condition_modulus: Writes the column `source` too, with this number after `%`; None leaves it out.
        wide: Store targets in 64 bits.
    """
    table.check(extended=True)
    steps = build_graphs(table.line_offsets, table.line_tokens, False)[-1]
    columns = [
        pa.ListArray.from_arrays(
            pa.array((table.line_tokens.shape[1] * table.line_offsets).astype(np.int32)),
            pa.array(table.line_tokens.reshape(-1)),
        ),
        pa.array(table.lengths.astype(np.int16)),
        pa.array(steps.astype(np.int32)),
        pa.array(table.target),
    ]
    schema = WIDE_SCHEMA if wide else SCHEMA
    if condition_modulus is not None:
        columns.append(_sources(table, condition_modulus))
        schema = schema.append(pa.field("source", pa.string(), nullable=False))
    sink = pa.BufferOutputStream()
    arrow = pa.Table.from_arrays([c.cast(f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
    pq.write_table(arrow, sink, compression="zstd", compression_level=3, version="2.6", row_group_size=1 << 30)
    return bytes(sink.getvalue())


def _sources(table: ProgramTable, condition_modulus: int) -> pa.Array:
    """The text of every program. Lines are few and programs many: each distinct line is formatted once."""
    if table.line_tokens.shape[1] == 4:
        packed = np.ascontiguousarray(table.line_tokens).view(np.int64).reshape(-1)
        distinct, which = np.unique(packed, return_inverse=True)
        lines = distinct.view(np.int16).reshape(-1, 4)
    else:
        lines, which = np.unique(table.line_tokens, axis=0, return_inverse=True)
    spelled = (spell(line) for line in lines.tolist())
    texts = pa.array([INDENT * line.indent + format_line(line, condition_modulus) for line in spelled], pa.string())
    listed = pa.ListArray.from_arrays(pa.array(table.line_offsets.astype(np.int32)), texts.take(pa.array(which)))
    return pc.binary_join(listed, "\n")


def decode_shard(data: bytes, name: str, recipe: Recipe | None = None) -> ProgramTable:
    """The table that `encode_shard` wrote, which holds programs of the language only.

    Args:
        data: The file.
        name: What it is called in error messages.
        recipe: What its programs must be: of this task, of these lengths, with targets below this modulus.

    Raises:
        DataSetError: The bytes are no such file, or a row is no such program.
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        about = file.metadata
        groups = [about.row_group(i) for i in range(about.num_row_groups)]
        values = sum(group.column(k).num_values for group in groups for k in range(group.num_columns))
        if about.num_rows > MAX_SHARD_SIZE or values > MAX_SHARD_TOKENS:
            raise DataSetError(
                f"The shard {name} has {about.num_rows:,} programs of {values:,} values, too many to read."
            )
        for field, wide in zip(SCHEMA, WIDE_SCHEMA, strict=True):
            found = file.schema_arrow.field(field.name).type if field.name in file.schema_arrow.names else None
            if found not in (field.type, wide.type):
                raise DataSetError(f"The shard {name} has no column {field.name} of type {field.type}.")
        arrow = file.read(SCHEMA.names)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataSetError(f"The shard {name} is not a Parquet file: {error}.") from error
    for column in SCHEMA.names:
        if arrow.column(column).null_count:
            raise DataSetError(f"The shard {name} has rows without {column}.")
    width, extended = (4, False) if recipe is None else (recipe.grammar.tokens, recipe.grammar.is_extended)
    tokens = arrow.column("tokens").combine_chunks()
    offsets = np.asarray(tokens.offsets).astype(np.int64)
    lengths = np.asarray(arrow.column("length")).astype(np.int64)
    if tokens.values.null_count or not np.array_equal(np.diff(offsets), width * lengths):
        raise DataSetError(f"The shard {name} has programs whose `length` is not that of their `tokens`.")
    lines = np.asarray(tokens.values)[offsets[0] : offsets[-1]].reshape(-1, width)
    table = ProgramTable((offsets - offsets[0]) // width, lines, np.asarray(arrow.column("target")).astype(np.int64))
    try:
        if recipe is None:
            table.check(known=True)
        else:
            table.check(task=recipe.task, modulus=recipe.grammar.modulus, known=True, extended=extended)
    except InvalidProgramError as error:
        raise DataSetError(f"The shard {name} cannot be used: {error}") from error
    if recipe is not None and not np.isin(lengths, recipe.lengths.lengths).all():
        raise DataSetError(f"The shard {name} has programs of lengths that its manifest does not name.")
    return table


@dataclass(frozen=True)
class DataSet:
    """A data set on disk, read as it is asked for. The checksum of a shard is checked whenever it is read.

    Attributes:
        directory: Where it lies.
        manifest: What it is.
    """

    directory: Path
    manifest: Manifest

    def __len__(self) -> int:
        return self.manifest.recipe.count

    @property
    def fingerprint(self) -> str:
        """A hash of the manifest, and through its checksums of every program."""
        return self.manifest.fingerprint

    def shard(self, index: int) -> ProgramTable:
        """The programs of one shard. The last few shards read are kept in memory."""
        return _read_shard(self.directory, self.manifest.shards[index], self.manifest.recipe)

    def shards(self) -> Iterator[ProgramTable]:
        """The shards in order."""
        return (self.shard(i) for i in range(len(self.manifest.shards)))

    def table(self, start: int = 0, stop: int | None = None) -> ProgramTable:
        """The programs `start:stop`; all of them by default."""
        stop = len(self) if stop is None else stop
        if not 0 <= start <= stop <= len(self):
            raise ValueError(f"Programs {start}:{stop} were asked of a data set of {len(self)}.")
        size = self.manifest.shard_size
        pieces = []
        for i in range(start // size, -(-stop // size)):
            shard = self.shard(i)
            pieces.append(shard.slice(max(start - i * size, 0), min(stop - i * size, len(shard))))
        return ProgramTable.concatenate(pieces)

    def verify(self) -> None:
        """Hold every shard against its checksum, and compute the target of every program again.

        Raises:
            DataSetError: One is damaged or foreign; the sentence names it.
        """
        by_length: Counter[int] = Counter()
        for shard in self.manifest.shards:
            table = _read(self.directory, shard, self.manifest.recipe)
            _check_labels(table, self.directory / shard.name, self.manifest.recipe)
            by_length.update(table.lengths.tolist())
        if dict(by_length) != self.manifest.by_length:
            raise DataSetError(f"{self.directory / MANIFEST} counts other lengths than its shards have.")


def read_shards(directory: Path | str) -> DataSet:
    """Open a data set.

    Raises:
        DataSetError: There is none, it is unfinished, or a shard is missing or of the wrong size.
    """
    directory = Path(directory)
    path = manifest_path(directory)
    if not path.is_file():
        raise DataSetError(
            f"{directory} holds no finished data set: it has no {MANIFEST}. Make it with `ipagnn generate`, or run the "
            "command that was interrupted again."
        )
    manifest = read_manifest(path)
    if sum(shard.count for shard in manifest.shards) != manifest.recipe.count:
        raise DataSetError(f"{path} counts {manifest.recipe.count} programs, but its shards do not.")
    for shard in manifest.shards:
        path = directory / shard.name
        if not path.is_file():
            raise DataSetError(f"The shard {path} is missing; run the command that made the data set again.")
        if path.stat().st_size != shard.bytes:
            raise _damaged(path)
    return DataSet(directory, manifest)


def read_verified(directory: Path, shard: Shard) -> bytes:
    """The bytes of a shard, which hash to what the manifest says."""
    path = directory / shard.name
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != shard.sha256:
        raise _damaged(path)
    return data


@lru_cache(maxsize=4)
def _read_shard(directory: Path, shard: Shard, recipe: Recipe) -> ProgramTable:
    table = _read(directory, shard, recipe)
    sample = np.linspace(0, len(table) - 1, min(len(table), LABELS_CHECKED)).astype(np.int64)
    _check_labels(table, directory / shard.name, recipe, sample)
    for array in (table.line_offsets, table.line_tokens, table.target):
        array.setflags(write=False)
    return table


def _read(directory: Path, shard: Shard, recipe: Recipe) -> ProgramTable:
    path = directory / shard.name
    table = decode_shard(read_verified(directory, shard), str(path), recipe)
    if len(table) != shard.count:
        raise DataSetError(f"The shard {path} has {len(table)} programs, not {shard.count}.")
    return table


def _check_labels(table: ProgramTable, path: Path, recipe: Recipe, rows: npt.NDArray[np.int64] | None = None) -> None:
    wrong = find_wrong_label(table if rows is None else table.take(rows), recipe.grammar)
    if wrong is not None:
        row = wrong.program if rows is None else int(rows[wrong.program])
        raise DataSetError(f"The shard {path} cannot be used: program {row}: {wrong.reason}.")


def _damaged(path: Path) -> DataSetError:
    return DataSetError(
        f"The shard {path} is damaged or foreign: it is not the file that the manifest describes. "
        "Delete it and run the command that made the data set again."
    )
