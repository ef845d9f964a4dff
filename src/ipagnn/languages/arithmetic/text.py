"""Text to `Program` and back.

The parser takes what people write in the language and nothing else: it never executes text, takes time linear in its
length, and answers anything outside the language with a `ProgramError`.
"""

import re
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NoReturn

import numpy as np

from ipagnn.languages.arithmetic.grammar import PAPER, Grammar
from ipagnn.languages.arithmetic.program import Line, Program
from ipagnn.languages.arithmetic.syntax import Syntax
from ipagnn.languages.arithmetic.vocabulary import (
    ASSIGNMENTS,
    MASK,
    MAX_LINES,
    MAX_NUMBER,
    NUMBER,
    OPERATION_ID,
    number_ids,
    variable_id,
)

MAX_CHARACTERS = 5_000_000
"""Characters a text may have, comments included."""
INDENT = "  "
"""One level of indentation in the paper's form."""

_COMPARISONS = (">", "<", ">=", "<=")
_HINTS = {
    "elif": "`else:` with an `if` in its body",
    "for": "a loop written `vK = N`, `while vK > 0:` and, in its body, `vK -= 1`",
}

_NEW_LINE = re.compile(r"\r\n|\r|\n")
_TOKEN = re.compile(
    r"\[MASK\]|[A-Za-z_][A-Za-z0-9_]*|[0-9][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]*)?"
    r"|\*\*=?|//=?|<<=?|>>=?|[-+*/%<>=!&|^@]=|[^ \t]"
)
_LITERAL = re.compile(r"0|[1-9][0-9]{0,17}")
_MOST_TOKENS = 12  # more than any statement has: what comes after cannot matter
_LONGEST_SHOWN = 40


class ProgramError(ValueError):
    """A text is not a program of the language.

    Attributes:
        line: Line of the text, from 1.
        column: Column in that line, from 1; a tab is one column.
        found: What stands there.
        accepted: What could stand there.
        hint: A sentence more, on what to do about it; empty if there is none.
    """

    def __init__(self, line: int, column: int, found: str, accepted: str) -> None:
        super().__init__(line, column, found, accepted)
        self.line = line
        self.column = column
        self.found = found
        self.accepted = accepted
        self.hint = ""

    def __str__(self) -> str:
        hint = self.hint and f" {self.hint}"
        return f"line {self.line}, column {self.column}: found {self.found}; accepted: {self.accepted}.{hint}"


def parse(source: str, condition_modulus: int | None = None, *, grammar: Grammar = PAPER) -> Program:
    """Read a program.

    Indentation may use any width, per block, as long as the lines of a block agree; comments, blank lines and trailing
    white space are skipped. Lines may be masked: `[MASK]`, `_` or `_ = 0`. A variable may be read only below a line
    that assigns it, and some line must assign the variable whose final value is the program's: `v0` in the paper's
    language.

    Args:
        source: The text.
        condition_modulus: The number that may follow `%` in a condition; by default that of `grammar`.
        grammar: The language. Variables, numbers and the forms of statements that it can draw are accepted, and all of
            the paper's language.

    Raises:
        ProgramError: The text is not a program of the language.
    """
    if len(source) > MAX_CHARACTERS:
        raise ProgramError(1, 1, f"{len(source):,} characters", f"a text of at most {MAX_CHARACTERS:,} characters")
    syntax = Syntax.of(grammar)
    reader = _Reader(syntax if condition_modulus is None else replace(syntax, condition_modulus=condition_modulus))
    for number, text in enumerate(_NEW_LINE.split(source.removeprefix("\ufeff")), 1):
        code = text.partition("#")[0].rstrip(" \t")
        if code.strip(" \t"):
            reader.read(number, code)
    return reader.finish()


def format_program(program: Program, condition_modulus: int = 10, mask: str = "[MASK]") -> str:
    """Write a program in the paper's form: two spaces a level, no line break at the end.

    Args:
        program: The program.
        condition_modulus: The number written after `%` in conditions.
        mask: How a masked line is written; the authors' data has `_ = 0`.
    """
    return "\n".join(INDENT * line.indent + format_line(line, condition_modulus, mask) for line in program.lines)


def format_line(line: Line, condition_modulus: int = 10, mask: str = "[MASK]") -> str:
    """Write one line, without its indentation; the arguments are those of `format_program`."""
    if line.operation == "mask":
        return mask
    if line.variable is None:
        return "else:" if line.operation == "else" else line.operation
    operand = f"{line.operand}" if line.source is None else f"v{line.source}"
    if line.operation in ASSIGNMENTS:
        return f"v{line.variable} {line.operation} {operand}"
    keyword, comparison, *modulo = line.operation.split()
    remainder = f" % {condition_modulus}" if modulo else ""
    return f"{keyword} v{line.variable}{remainder} {comparison} {operand}:"


@dataclass(slots=True)
class _Level:
    """An open block: its white space, whether a loop is around it, and the keyword its latest line began with."""

    space: str
    in_loop: bool
    latest: str = ""


@dataclass(slots=True)
class _Reader:
    """Reads lines one after the other; holds what later lines depend on."""

    syntax: Syntax
    levels: list[_Level] = field(default_factory=list)
    header: tuple[str, int, int] | None = None  # keyword, line and end column of a line that still needs its body
    assigned: set[int] = field(default_factory=set)
    lines: list[list[int]] = field(default_factory=list)
    number: int = 0

    def read(self, number: int, code: str) -> None:
        self.number = number
        statement = _Statement(number, code, self.syntax)
        first, column = statement.peek()
        if len(self.lines) == MAX_LINES:
            raise ProgramError(number, column, f"line {MAX_LINES + 1:,}", f"a program of at most {MAX_LINES:,} lines")
        self._indent(code[: column - 1], column, first)
        level = self.levels[-1]
        operand = [NUMBER]
        if self.syntax.index(first) is not None:
            operation, variable, operand = self._assignment(statement)
        elif first in ("if", "while"):
            operation, variable, operand = self._condition(statement)
        elif first in ("else", "pass", "break", "continue"):
            if first == "else" and level.latest != "if":
                statement.fail("`else` only after the body of an `if` with the same indentation")
            if first in ("break", "continue") and not level.in_loop:
                statement.fail(f"`{first}` inside a `while` loop only")
            statement.next()
            operation = variable = OPERATION_ID[first]
            if first == "else":
                statement.take(":", "`:`")
        elif first in ("[MASK]", "_"):
            _read_mask(statement)
            operation = variable = MASK
        elif re.fullmatch("v[0-9]+", first):
            statement.fail(self.syntax.variable)
        else:
            statement.fail(_HINTS.get(first, self.syntax.statement))
        opens = first in ("if", "while", "else")
        statement.end("the end of the line" + ", with the body on the next lines, indented" * opens)
        self.header = (first, number, len(code) + 1) if opens else None
        level.latest = first
        self.lines.append([NUMBER + len(self.levels) - 1, operation, variable, *operand])

    def finish(self) -> Program:
        if not self.lines:
            raise ProgramError(1, 1, "an empty program", "at least one line, such as `v0 = 1`")
        if self.header:
            keyword, line, column = self.header
            raise ProgramError(line, column, "the end of the program", f"an indented body for this `{keyword}`")
        result = f"v{self.syntax.result}"
        if self.syntax.result not in self.assigned:
            raise ProgramError(
                self.number,
                1,
                f"the end of a program that never assigns {result}",
                f"a program with a line `{result} = N`",
            )
        width = max(map(len, self.lines))
        return Program(np.array([line + [0] * (width - len(line)) for line in self.lines], np.int16))

    def _indent(self, space: str, column: int, first: str) -> None:
        """Open or close blocks until the top level is the one of a line that starts with `space`."""
        if not self.levels:
            self.levels.append(_Level(space, in_loop=False))  # a text may be indented as a whole
            return
        current = self.levels[-1].space

        def fail(accepted: str) -> NoReturn:
            raise ProgramError(self.number, column, f"{_shown(first)} with {_describe(space)}", accepted)

        if not (space.startswith(current) or current.startswith(space)):
            fail(f"the tabs and spaces of the line above, which has {_describe(current)}")
        if self.header:
            keyword, line, _ = self.header
            if len(space) <= len(current):
                fail(f"an indented body for the `{keyword}` in line {line}")
            if len(self.levels) > MAX_NUMBER:
                fail(f"blocks nested at most {MAX_NUMBER} deep")
            self.levels.append(_Level(space, self.levels[-1].in_loop or keyword == "while"))
            return
        if len(space) > len(current):
            fail(f"{_describe(current)}, as above, for only `if`, `else` and `while` open a block")
        while len(self.levels) > 1 and len(space) < len(self.levels[-1].space):
            self.levels.pop()
        if space != self.levels[-1].space:
            fail(f"the indentation of an open block, such as {_describe(self.levels[-1].space)}")

    def _assignment(self, statement: "_Statement") -> tuple[int, int, list[int]]:
        column = statement.peek()[1]
        variable = statement.variable()
        operator, _ = statement.take(ASSIGNMENTS, f"one of {' '.join(ASSIGNMENTS)}")
        operand = self._operand(statement, self.syntax.variable_operands)
        if operator != "=":
            self._reads(variable, column)
        self.assigned.add(variable)
        return OPERATION_ID[operator], variable_id(variable), operand

    def _condition(self, statement: "_Statement") -> tuple[int, int, list[int]]:
        keyword, _ = statement.next()
        column = statement.peek()[1]
        variable = statement.variable()
        modulo = statement.peek()[0] == "%"
        modulus = self.syntax.condition_modulus
        if modulo:
            statement.next()
            statement.take(str(modulus), f"`{modulus}` after `%`")
            comparison, _ = statement.take(_COMPARISONS, "one of > < >= <=")
        else:
            comparison, _ = statement.take(_COMPARISONS, f"one of > < >= <=, or `% {modulus}`")
        operand = self._operand(statement, self.syntax.variable_conditions and not modulo)
        statement.take(":", "`:`")
        self._reads(variable, column)
        operation = f"{keyword} {comparison}{' %' if modulo else ''}"
        return OPERATION_ID[operation], variable_id(variable), operand

    def _operand(self, statement: "_Statement", variable_allowed: bool) -> list[int]:
        """Token ids of a number or, if allowed, of a variable."""
        name, column = statement.peek()
        if variable_allowed and name[:1] == "v":
            variable = statement.variable()
            self._reads(variable, column)
            return [variable_id(variable)]
        accepted = self.syntax.number + (f" or {self.syntax.variable}" if variable_allowed else "")
        return number_ids(statement.literal(accepted))

    def _reads(self, variable: int, column: int) -> None:
        if variable not in self.assigned:
            raise ProgramError(
                self.number,
                column,
                f"`v{variable}`, which is read before any line assigns it",
                f"a line `v{variable} = N` above",
            )


class _Statement:
    """The tokens of one line, taken from the left."""

    def __init__(self, number: int, code: str, syntax: Syntax) -> None:
        self.number, self.syntax = number, syntax
        matches = islice(_TOKEN.finditer(code), _MOST_TOKENS)
        self.tokens = [(match.group(), match.start() + 1) for match in matches]
        self.tokens.append(("", len(code) + 1))
        self.position = 0
        for text, column in self.tokens:
            if not (text.isascii() and (text == "" or text.isprintable())):
                raise ProgramError(number, column, _character(text), "plain ASCII text outside comments")

    def peek(self) -> tuple[str, int]:
        return self.tokens[self.position]

    def next(self) -> tuple[str, int]:
        token = self.tokens[self.position]
        self.position += 1
        return token

    def take(self, expected: "str | tuple[str, ...] | dict[str, int]", accepted: str) -> tuple[str, int]:
        text = self.peek()[0]
        if (text != expected) if isinstance(expected, str) else (text not in expected):
            self.fail(accepted)
        return self.next()

    def literal(self, accepted: str) -> int:
        text = self.peek()[0]
        if not _LITERAL.fullmatch(text) or int(text) > self.syntax.largest:
            self.fail(accepted)
        return int(self.next()[0])

    def variable(self) -> int:
        variable = self.syntax.index(self.peek()[0])
        if variable is None:
            self.fail(self.syntax.variable)
        self.next()
        return variable

    def end(self, accepted: str) -> None:
        if self.peek()[0]:
            self.fail(accepted)

    def fail(self, accepted: str) -> NoReturn:
        text, column = self.peek()
        if text == "-" and self.tokens[self.position + 1][0][:1].isdigit():
            text += self.tokens[self.position + 1][0]
        raise ProgramError(self.number, column, _shown(text) if text else "the end of the line", accepted)


def _read_mask(statement: _Statement) -> None:
    if statement.next()[0] == "_" and statement.peek()[0] == "=":
        statement.next()
        statement.take("0", "`0`, for a masked line is written `_ = 0`, `_` or `[MASK]`")


def _shown(text: str) -> str:
    return f"`{text[:_LONGEST_SHOWN]}{'…' * (len(text) > _LONGEST_SHOWN)}`"


def _character(text: str) -> str:
    code = f"the character U+{ord(text):04X}"
    return f"{code} `{text}`" if text.isprintable() else code


def _describe(space: str) -> str:
    """White space in words."""
    tabs, spaces = space.count("\t"), space.count(" ")
    parts = [f"{count} {name}{'s' * (count > 1)}" for count, name in ((tabs, "tab"), (spaces, "space")) if count]
    return " and ".join(parts) or "no indentation"
