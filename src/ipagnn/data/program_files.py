"""Programs that somebody brings: Parquet, JSON lines, or a folder of `.py` files, read a window at a time.

Nothing is executed, nothing is read whole, and every error names the line, row or file.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from ipagnn._common.files import reason
from ipagnn.data.collate import PAPER_BUDGET, StepBudget, graphs_of
from ipagnn.languages.arithmetic import (
    PAPER,
    ExecutionError,
    Grammar,
    Program,
    ProgramError,
    ProgramKind,
    ProgramTable,
    parse,
    target,
)
from ipagnn.languages.arithmetic.checks import InvalidProgramError
from ipagnn.languages.arithmetic.text import MAX_CHARACTERS
from ipagnn.languages.arithmetic.vocabulary import MAX_LINES

WINDOW: Final = 1024
"""Programs held at a time."""
LINE_LIMIT: Final = 16 * 2**20
"""Bytes of a line of JSON; a program of the longest text fits."""
GROUP_BYTES: Final = 256 * 2**20
GROUP_VALUES: Final = 2**27
"""Size of a column in a row group of Parquet: this and a few times more is in memory while it is read."""
PARQUET_SUFFIXES: Final = (".parquet", ".pq")

_TARGET_COMMENT = re.compile(r"\n[ \t]*#[ \t]*(\d{1,18})\s*\Z")


class _InvalidError(ValueError):
    """A program that cannot be evaluated; the text says why."""


@dataclass(frozen=True, slots=True)
class _Item:
    """A program as it stands in the file."""

    place: str
    content: "str | Program | _InvalidError"
    target: Any = None


class ProgramFile:
    """The programs of a file or folder. Iterating gives them as tables of up to `WINDOW`.

    - Parquet (also a folder of it): the column `source`, or the column `tokens` of `ipagnn generate`; and `target`.
    - JSON lines: a string, or an object with `source` and `target`, on every line.
    - A folder: every `.py` file below it, sorted by path.

    Targets are needed for partial programs only; in a `.py` file a comment at the end, `# 123`, gives it. The target of
    a full program is its value; if one is given, it must be that.

    Args:
        path: Where the programs are.
        task: The kind that they must be of, `full` or `partial`; None takes that of the first.
        grammar: Decides values and classes.
        budget: Programs that would get more steps than are ever run are refused.
        skip_invalid: Leave out what cannot be evaluated, and count it, instead of raising.

    Attributes:
        task: The kind of the programs, as soon as it is known.
        count: Programs given so far.
        skipped: Programs left out so far.
        first_skipped: Why the first of them was.

    Raises:
        ValueError: While iterating: a program is not in the language, does not end, has no or a wrong target, or is not
            of the same task as the others. The sentence names the place.
    """

    def __init__(
        self,
        path: Path | str,
        task: ProgramKind | None = None,
        grammar: Grammar = PAPER,
        budget: StepBudget = PAPER_BUDGET,
        *,
        skip_invalid: bool = False,
    ) -> None:
        self.path = Path(path)
        if not self.path.exists():
            raise ValueError(f"There is no file or folder {self.path}; --programs names the programs to evaluate.")
        if not (self.path.is_file() or self.path.is_dir()):
            raise ValueError(f"{self.path} is neither a file nor a folder; --programs names the programs to evaluate.")
        self.task: ProgramKind | None = task
        self.grammar, self.budget, self.skip_invalid = grammar, budget, skip_invalid
        self.count = self.skipped = 0
        self.first_skipped: str | None = None
        self._given_task = task

    def __len__(self) -> int:
        """How many programs there seem to be, before any is looked at."""
        if self.path.is_dir():
            python, parquet = self._files()
            return len(python) + sum(_rows(file) for file in parquet)
        if _is_parquet(self.path):
            return _rows(self.path)
        with self.path.open("rb") as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b"")) + 1

    def __iter__(self) -> Iterator[ProgramTable]:
        self.count = self.skipped = 0
        self.first_skipped, self.task = None, self._given_task
        programs: list[Program] = []
        targets: list[int | None] = []
        for item in self._items():
            try:
                program, target = self._check(item)
            except _InvalidError as error:
                sentence = f"{item.place}: {error}"
                if not self.skip_invalid:
                    raise ValueError(
                        f"{sentence} Correct it, or leave out what is invalid with --skip-invalid."
                    ) from error
                self.skipped += 1
                self.first_skipped = self.first_skipped or sentence
                continue
            programs.append(program)
            targets.append(target)
            self.count += 1
            if len(programs) == WINDOW:
                yield ProgramTable.from_programs(programs, targets)
                programs, targets = [], []
        if programs:
            yield ProgramTable.from_programs(programs, targets)
        if not self.count:
            left_out = (
                f": {self.skipped:,} left out as invalid, the first is {self.first_skipped}" if self.skipped else "."
            )
            raise ValueError(f"{self.path} holds no program that can be evaluated{left_out}")

    def _check(self, item: _Item) -> tuple[Program, int]:
        if isinstance(item.content, _InvalidError):
            raise item.content
        grammar = self.grammar
        try:
            program = parse(item.content, grammar=grammar) if isinstance(item.content, str) else item.content
            task: ProgramKind = "partial" if program.is_partial else "full"
            if self.task is None:
                self.task = task
            if task != self.task:
                kind = {"full": "complete", "partial": "masked"}
                because = "the task is" if self._given_task else "the programs before it are"
                raise _InvalidError(
                    f"the program is {kind[task]}, but {because} {self.task}. Evaluate full and partial programs apart."
                )
            given = self._target(item.target)
            true = target(program, grammar) if task == "full" else None
            table = ProgramTable.from_programs([program])
            graphs_of(table, self.budget, grammar.modulus, grammar.condition_modulus, grammar.is_extended, grammar.wrap)
        except (ProgramError, ExecutionError) as error:
            raise _InvalidError(f"in the program, {error}") from error
        except ValueError as error:
            raise _InvalidError(str(error)) from error
        if true is None:
            if given is None:
                raise _InvalidError(
                    "the program has a masked line and no target; give `target`, the value of the complete program."
                )
            return program, given
        if given is not None and given != true:
            raise _InvalidError(f"the target is {given}, but the program's value is {true}.")
        return program, true

    def _target(self, given: Any) -> int | None:
        if given is None:
            return None
        if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < self.grammar.modulus:
            shown = json.dumps(given, default=str)
            raise _InvalidError(
                f"the target is {shown[:40]}; it must be a whole number from 0 to {self.grammar.modulus - 1}."
            )
        return given

    def _items(self) -> Iterator[_Item]:
        if self.path.is_dir():
            python, parquet = self._files()
            for file in python:
                yield _read_python(file)
            for file in parquet:
                yield from _read_parquet(file, self.grammar.tokens)
        elif _is_parquet(self.path):
            yield from _read_parquet(self.path, self.grammar.tokens)
        else:
            yield from _read_json_lines(self.path)

    def _files(self) -> tuple[list[Path], list[Path]]:
        python = sorted(self.path.rglob("*.py"))
        parquet = sorted(file for file in self.path.iterdir() if file.suffix in PARQUET_SUFFIXES and file.is_file())
        if bool(python) == bool(parquet):
            found = "both" if python else "neither"
            raise ValueError(
                f"The folder {self.path} holds {found} `.py` and Parquet files; it must hold programs of one kind."
            )
        return python, parquet


def _is_parquet(path: Path) -> bool:
    if path.suffix in PARQUET_SUFFIXES:
        return True
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def _rows(path: Path) -> int:
    return int(_open_parquet(path).metadata.num_rows)


def _open_parquet(path: Path) -> pq.ParquetFile:
    try:
        schema = pq.read_schema(path)
        text = "source" in schema.names and pa.types.is_string(schema.field("source").type)
        shared = ["source"] if text else None  # a text that stands in many rows is held once
        return pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False, read_dictionary=shared)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a Parquet file: {error}.") from error


def _read_python(path: Path) -> _Item:
    try:
        if not path.is_file():  # a pipe would be waited for
            return _Item(str(path), _InvalidError("it is not a file."))
        with path.open(encoding="utf-8") as file:
            source = file.read(MAX_CHARACTERS + 1)  # one too many is enough for the parser to refuse
    except UnicodeDecodeError:
        return _Item(str(path), _InvalidError("the file is not UTF-8 text."))
    except OSError as error:
        return _Item(str(path), _InvalidError(f"the file cannot be read: {reason(error)}."))
    comment = _TARGET_COMMENT.search(source) if len(source) <= MAX_CHARACTERS else None
    program_is_masked = "[MASK]" in source or re.search(r"^[ \t]*_[ \t]*(=|$)", source, re.MULTILINE)
    return _Item(str(path), source, int(comment[1]) if comment and program_is_masked else None)


def _read_json_lines(path: Path) -> Iterator[_Item]:
    with path.open("rb") as file:
        number = 0
        while line := file.readline(LINE_LIMIT + 1):
            number += 1
            place = f"{path}, line {number}"
            if len(line) > LINE_LIMIT:
                yield _Item(place, _InvalidError(f"the line is longer than {LINE_LIMIT:,} bytes; it holds no program."))
                while line and not line.endswith(b"\n"):
                    line = file.readline(LINE_LIMIT)
            elif line.strip():
                yield _read_json(place, line)


def _read_json(place: str, line: bytes) -> _Item:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        shown = line[:40].decode("utf-8", "replace").strip()
        return _Item(place, _InvalidError(f"{shown!r} is not JSON; a line is a string or an object with `source`."))
    if isinstance(content, str):
        return _Item(place, content)
    if isinstance(content, dict) and isinstance(content.get("source"), str):
        return _Item(place, content["source"], content.get("target"))
    found = (
        f"an object with the keys {', '.join(map(repr, content))[:60]}" if isinstance(content, dict) else "no object"
    )
    return _Item(place, _InvalidError(f"found {found}; a line is a string or an object whose `source` is a string."))


def _read_parquet(path: Path, width: int) -> Iterator[_Item]:
    file = _open_parquet(path)
    names = file.schema_arrow.names
    column = next((name for name in ("source", "tokens") if name in names), None)
    if column is None:
        raise ValueError(
            f"{path} has the columns {', '.join(names)}; it needs `source` (text) or `tokens`, and `target` for "
            "programs with a masked line."
        )
    wanted = [column, *(["target"] if "target" in names else [])]
    _check_size(path, file.metadata)
    kind = file.schema_arrow.field(column).type
    if column == "source" and not (pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type)):
        raise ValueError(f"{path} has a column `source` of type {kind}; it must be text.")
    if column == "tokens" and not (pa.types.is_list(kind) and pa.types.is_integer(kind.value_type)):
        raise ValueError(f"{path} has a column `tokens` of type {kind}; it must be lists of whole numbers.")
    row = 0
    try:
        for batch in file.iter_batches(batch_size=WINDOW, columns=wanted):
            targets = batch.column("target").to_pylist() if len(wanted) > 1 else [None] * len(batch)
            for content, given in zip(batch.column(column), targets, strict=True):
                place = f"{path}, row {row}"
                found = _from_tokens(content, width) if column == "tokens" else _from_source(content)
                yield _Item(place, found, given)
                row += 1
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read beyond row {row}: {error}.") from error


def _check_size(path: Path, about: pq.FileMetaData) -> None:
    """Refuse what would take much memory, however small the file is."""
    for i in range(about.num_row_groups):
        group = about.row_group(i)
        for k in range(group.num_columns):
            column = group.column(k)
            if column.total_uncompressed_size > GROUP_BYTES or column.num_values > GROUP_VALUES:
                raise ValueError(
                    f"{path} has a row group whose column {column.path_in_schema} holds "
                    f"{column.total_uncompressed_size:,} bytes and {column.num_values:,} values; at most "
                    f"{GROUP_BYTES:,} and {GROUP_VALUES:,} are read. Write it with smaller row groups."
                )


def _from_source(content: pa.DictionaryScalar) -> "str | _InvalidError":
    """A text, which the file may hold once for many rows."""
    if not content.is_valid:
        return _InvalidError("`source` is missing; it must be text.")
    text = content.value.as_buffer()
    if text.size > 4 * MAX_CHARACTERS:
        return _InvalidError(f"`source` has {text.size:,} bytes; a program has at most {MAX_CHARACTERS:,} characters.")
    try:
        return str(text.to_pybytes(), "utf-8")
    except UnicodeDecodeError:
        return _InvalidError("`source` is not UTF-8 text.")


def _from_tokens(tokens: pa.ListScalar, width: int) -> "Program | _InvalidError":
    """The program that tokens spell, `width` of them a line."""
    if not tokens.is_valid or len(tokens) > width * MAX_LINES:
        return _InvalidError(f"its `tokens` are missing, or more than those of {MAX_LINES:,} lines.")
    try:
        return Program(tokens.values.to_numpy(zero_copy_only=False).reshape(-1, width))
    except InvalidProgramError as error:
        return _InvalidError(f"its `tokens` spell no program: {error}")
    except (TypeError, ValueError, OverflowError):
        return _InvalidError(
            f"its `tokens` spell no program; they are {width} ids a line, as `ipagnn generate` writes them for the "
            "language of the model."
        )
