"""The manifest of a data set: how its programs were drawn, and what its shards must hash to."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]

from ipagnn._common.typed import parse_json, typed, typed_fields
from ipagnn.data.splits import Recipe, Split
from ipagnn.languages.arithmetic.program import ProgramKind
from ipagnn.languages.arithmetic.vocabulary import VOCABULARY_VERSION

FORMAT_VERSION: Final = 1
"""Rises when the columns of a shard or the keys of a manifest change."""
WIDE_FORMAT_VERSION: Final = 2
"""The same for languages past the paper's: targets of 64 bits for moduli above `NARROW_MODULUS`, other statements."""
NARROW_MODULUS: Final = 2**31
"""Targets below this take 32 bits."""
MANIFEST: Final = "_manifest.json"
"""Readers of Parquet folders ignore names that begin with an underscore."""
OLD_MANIFEST: Final = "manifest.json"
"""Its name in data sets of version 0.1, which are still read."""
MAX_SHARDS: Final = 100_000
MAX_MANIFEST_BYTES: Final = 32 * 2**20
MAX_SHARD_SIZE: Final = 2**24
WRITER: Final = f"pyarrow {pa.__version__}"
"""What shards are written with; another version may write the same rows as other bytes."""


class DataSetError(ValueError):
    """A data set on disk is not what it should be, or cannot be written."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard as the manifest knows it."""

    name: str
    count: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a data set is.

    Attributes:
        recipe: The programs it holds.
        shard_size: Programs a shard, but for the last.
        with_source: Whether shards have the column `source`, the program's text.
        writer: `WRITER` of the process that wrote it.
        by_length: Programs of each length.
        duplicates: Programs equal to an earlier one of this data set, counted by their 64-bit hashes.
        shards: Its shards, in order.
    """

    recipe: Recipe
    shard_size: int
    with_source: bool
    writer: str
    by_length: dict[int, int]
    duplicates: int
    shards: tuple[Shard, ...]

    def to_dict(self) -> dict[str, Any]:
        """The content of `_manifest.json`."""
        return {
            "format_version": _format_version(self.recipe),
            "vocabulary_version": VOCABULARY_VERSION,
            **self.recipe.to_dict(),
            "shard_size": self.shard_size,
            "with_source": self.with_source,
            "writer": self.writer,
            "by_length": {str(length): count for length, count in self.by_length.items()},
            "duplicates": self.duplicates,
            "shards": [{"name": s.name, "count": s.count, "bytes": s.bytes, "sha256": s.sha256} for s in self.shards],
        }

    @staticmethod
    def from_dict(values: dict[str, Any]) -> "Manifest":
        """The manifest that `to_dict` wrote.

        Raises:
            ValueError: It is not one.
        """
        for key, known in (
            ("format_version", (FORMAT_VERSION, WIDE_FORMAT_VERSION)),
            ("vocabulary_version", (VOCABULARY_VERSION,)),
        ):
            if values.get(key) not in known:
                accepted = " and ".join(map(str, known))
                raise ValueError(f"its {key} is {values.get(key)!r}, and this version of ipagnn reads {accepted}")
        content: _Content = typed_fields(_Content, values, "it")
        recipe = Recipe.from_dict(values)
        if content.format_version != _format_version(recipe):
            raise ValueError(
                f"its format_version is {content.format_version}, and data sets of its grammar have "
                f"{_format_version(recipe)}"
            )
        names = shard_names(recipe, content.shard_size)
        if tuple(shard.name for shard in content.shards) != names[: len(content.shards)]:
            raise ValueError("its shards do not have the names that its other keys give them")
        for shard in content.shards:
            if not 0 < shard.count <= min(content.shard_size, MAX_SHARD_SIZE) or shard.bytes < 0:
                raise ValueError(f"its shard {shard.name} has {shard.count} programs in {shard.bytes} bytes")
        manifest = Manifest(
            recipe,
            content.shard_size,
            content.with_source,
            content.writer,
            {_whole(length): count for length, count in content.by_length.items()},
            content.duplicates,
            content.shards,
        )
        if content.checksum not in ("", manifest.fingerprint):
            raise ValueError("its checksum is not that of its content, which has changed since it was written")
        return manifest

    @property
    def fingerprint(self) -> str:
        """A hash of the whole content, and through the checksums of every program; 64 hexadecimal digits."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _Content:
    """The keys of `manifest.json`."""

    format_version: int
    vocabulary_version: int
    split: Split
    task: ProgramKind
    count: int
    seed: int
    lengths: dict[str, list[int]]
    grammar: dict[str, Any]
    shard_size: int
    with_source: bool
    writer: str
    by_length: dict[str, int]
    duplicates: int
    shards: tuple[Shard, ...]
    checksum: str = ""  # of all the others; version 0.1.0 wrote none


def _whole(text: str) -> int:
    if not text.isdecimal() or len(text) > 6:
        raise ValueError(f"its by_length has the key {text[:20]!r}, which is no length")
    return int(text)


def is_wide(recipe: Recipe) -> bool:
    """Whether targets of the recipe need 64 bits."""
    return recipe.grammar.modulus > NARROW_MODULUS


def _format_version(recipe: Recipe) -> int:
    return WIDE_FORMAT_VERSION if is_wide(recipe) or recipe.grammar.is_extended else FORMAT_VERSION


def shard_names(recipe: Recipe, shard_size: int) -> tuple[str, ...]:
    """File names of a data set's shards: `train-00000-of-00020.parquet`, from which tools read the split."""
    shards = -(-recipe.count // shard_size) if shard_size > 0 else 0
    if not 0 < shards <= MAX_SHARDS:
        raise ValueError(
            f"{recipe.count} programs cannot be laid in shards of {shard_size}; choose a shard size of at least 1 that "
            f"makes at most {MAX_SHARDS:,} shards."
        )
    return tuple(f"{recipe.split}-{i:05}-of-{shards:05}.parquet" for i in range(shards))


def manifest_path(directory: Path) -> Path:
    """The manifest of a data set, under its old name where there is only that."""
    old = directory / OLD_MANIFEST
    return old if old.is_file() and not (directory / MANIFEST).is_file() else directory / MANIFEST


def read_manifest(path: Path) -> Manifest:
    """Read a manifest; anything else is a `DataSetError`."""
    try:
        if path.stat().st_size > MAX_MANIFEST_BYTES:
            raise ValueError(f"it has more than {MAX_MANIFEST_BYTES:,} bytes")
        return Manifest.from_dict(typed(dict, parse_json(path.read_text("utf-8")), "it"))
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise DataSetError(f"{path} is not a manifest of a data set: {str(error).rstrip('.')}.") from error
