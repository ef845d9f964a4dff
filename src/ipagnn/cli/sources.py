"""The programs that a command is given: files, folders, and standard input with one program or several."""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, TextIO

_JSON_LINES: Final = (".jsonl", ".json")
_RESULT = re.compile(r"[ \t]*#[ \t]*-?[0-9]+[ \t]*")
"""How `ipagnn sample` ends a program."""


@dataclass(frozen=True, slots=True)
class Source:
    """A program as text, and where it came from.

    Attributes:
        name: The file, or `standard input`; with a number if there are several programs in it.
        text: The program; None if it could not be read.
        error: Why not.
    """

    name: str
    text: str | None
    error: str | None = None


def read_sources(names: Sequence[str]) -> Iterator[Source]:
    """The programs of files, of all `.py` files in folders, and of standard input (`-`).

    Standard input and files of JSON lines may hold several programs. A program that cannot be read has an `error`.

    Raises:
        ValueError: A folder holds no programs.
        OSError: There is no such file.
    """
    for name in names:
        path = Path(name)
        if name == "-":
            with _opened(sys.stdin.buffer) as stream:
                yield from _several("standard input", stream)
        elif path.is_dir():
            found = sorted(file for file in path.rglob("*.py") if file.is_file())
            if not found:
                raise ValueError(f"The folder {path} holds no .py files; a program is a text file of that name.")
            for file in found:
                yield _file(file)
        elif path.suffix in _JSON_LINES:
            with path.open("rb") as binary, _opened(binary) as stream:
                yield from _several(name, stream)
        else:
            yield _file(path)


def _file(path: Path) -> Source:
    from ipagnn.languages.arithmetic.text import MAX_CHARACTERS

    try:
        with path.open(encoding="utf-8") as file:
            return Source(str(path), file.read(MAX_CHARACTERS + 1))  # one more is enough for the parser to refuse it
    except UnicodeDecodeError:
        return Source(str(path), None, _not_text(str(path)))


def _several(name: str, stream: TextIO) -> Iterator[Source]:
    """Programs one after the other; named by number where there is more than one."""
    pieces = _pieces(name, stream)
    first = list(islice(pieces, 2))
    if len(first) == 1:
        yield Source(name, *first[0])
        return
    for number, piece in enumerate(chain(first, pieces), 1):
        yield Source(f"{name}, program {number:,}", *piece)


def _pieces(name: str, stream: TextIO) -> Iterator[tuple[str | None, str | None]]:
    """Text, or why there is none, of each program. There is always one."""
    try:
        first = _line(stream)
        while first and not first.strip():
            first = _line(stream)
        lines = chain([first], iter(lambda: _line(stream), ""))
        yield from _json_lines(lines) if first.lstrip("\ufeff")[:1] in ("{", '"') else _texts(lines)
    except UnicodeDecodeError:
        yield None, _not_text(name)


def _line(stream: TextIO) -> str:
    """The next line, or as much of it as any program may have."""
    from ipagnn.languages.arithmetic.text import MAX_CHARACTERS

    return stream.readline(MAX_CHARACTERS + 1)


def _texts(lines: Iterator[str]) -> Iterator[tuple[str, None]]:
    """A program ends with a comment that holds nothing but its result, where an empty line or the end follows."""
    from ipagnn.languages.arithmetic.text import MAX_CHARACTERS

    text: list[str] = []
    characters, ended, yielded = 0, False, False
    for line in lines:
        if ended and not line.strip():
            yield "".join(text), None
            text, characters, ended, yielded = [], 0, False, True
            continue
        ended = _RESULT.fullmatch(line.rstrip("\r\n")) is not None and any(not _empty(each) for each in text)
        text.append(line)
        characters += len(line)
        if characters > MAX_CHARACTERS:
            break
    if not yielded or any(not _empty(line) for line in text):
        yield "".join(text), None


def _json_lines(lines: Iterator[str]) -> Iterator[tuple[str | None, str | None]]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield _source_of(json.loads(line)), None
            except (ValueError, RecursionError) as error:
                yield None, f"Line {number} is no program: {error}"


def _source_of(value: Any) -> str:
    source = value.get("source") if isinstance(value, dict) else value
    if not isinstance(source, str):
        raise ValueError("it must be a string, or an object with the key source.")
    return source


def _empty(line: str) -> bool:
    return not line.partition("#")[0].strip()


def _not_text(name: str) -> str:
    return f"{name} is not UTF-8 text; a program is a plain text file."


@contextmanager
def _opened(binary: Any) -> Iterator[TextIO]:
    """A text stream over a binary one, which is left open."""
    stream = TextIOWrapper(binary, encoding="utf-8")
    try:
        yield stream
    finally:
        stream.detach()
