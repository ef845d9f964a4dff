"""A program of the language, and many of them side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ipagnn.languages.arithmetic.checks import check_programs
from ipagnn.languages.arithmetic.vocabulary import MASK, NUMBER, OPERATION, OPERATIONS, VARIABLE

TokenArray = npt.NDArray[np.int16]
Task = Literal["full", "partial"]
"""Full programs, or programs with masked lines."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line, spelled out.

    Attributes:
        indent: Nesting depth, 0 at the top.
        operation: A name of `vocabulary.OPERATIONS`, or `"mask"`.
        variable: `k` of `vk`; None for `else`, `pass`, `continue`, `break` and a mask.
        operand: The constant on the right; None where the line has none.
    """

    indent: int
    operation: str
    variable: int | None
    operand: int | None


@dataclass(frozen=True, eq=False, slots=True)
class Program:
    """A program, held as the four token ids of each of its lines, which spell it completely.

    docs/specification.md, section 4, has the ids.

    Attributes:
        line_tokens: int16 [line, 4]; read-only.

    Raises:
        ValueError: The tokens spell no program of the language.
    """

    line_tokens: TokenArray

    def __post_init__(self) -> None:
        given = np.asarray(self.line_tokens)
        if given.ndim != 2 or given.shape[1] != 4 or not len(given):
            raise ValueError(f"line_tokens has shape {given.shape}; a program has at least one line of 4 tokens.")
        if given.dtype != np.int16 and (given.dtype.kind not in "iu" or given.min() < 0 or given.max() > MASK):
            raise ValueError(f"line_tokens has numbers that are no token ids; these are 0 to {MASK}.")
        tokens = np.array(given, np.int16)  # a copy, so that nobody else can write to it
        check_programs(np.array((0, len(tokens))), tokens)
        tokens.setflags(write=False)
        object.__setattr__(self, "line_tokens", tokens)

    def __len__(self) -> int:
        return len(self.line_tokens)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and np.array_equal(self.line_tokens, other.line_tokens)

    def __hash__(self) -> int:
        return hash(self.line_tokens.tobytes())

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines, spelled out."""
        return tuple(map(spell, self.line_tokens.tolist()))

    @property
    def masked_lines(self) -> tuple[int, ...]:
        """Indices of the masked lines."""
        return tuple(np.flatnonzero(self.line_tokens[:, 1] == MASK).tolist())

    @property
    def is_partial(self) -> bool:
        """Whether a line is masked, so that the program has no value of its own."""
        return bool((self.line_tokens[:, 1] == MASK).any())


def spell(tokens: Sequence[int]) -> Line:
    """The line that four token ids stand for."""
    indent, operation, variable, operand = tokens
    if operation == MASK:
        return Line(indent - NUMBER, "mask", None, None)
    name = OPERATIONS[operation - OPERATION]
    if variable == operation:
        return Line(indent - NUMBER, name, None, None)
    return Line(indent - NUMBER, name, variable - VARIABLE, operand - NUMBER)


@dataclass(frozen=True, eq=False, slots=True)
class ProgramTable:
    """Many programs, flat: what the sampler makes, shards store and batches are built from.

    Attributes:
        line_offsets: int64 [program + 1]; program `i` has the lines `line_offsets[i]:line_offsets[i + 1]`.
        line_tokens: int16 [line, 4]; the lines of all programs, one after the other.
        target: int64 [program]; v0 modulo the grammar's modulus at the end, of the complete program; -1 if unknown.
    """

    line_offsets: npt.NDArray[np.int64]
    line_tokens: TokenArray
    target: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.target)

    def check(self, *, task: Task | None = None, modulus: int | None = None, known: bool = False) -> None:
        """Refuse a table that is not made of programs of the language; see `checks.check_programs`."""
        check_programs(self.line_offsets, self.line_tokens, self.target, task=task, modulus=modulus, known=known)

    def __getitem__(self, index: int) -> Program:
        """Program `index`."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"Program {index} was asked of a table of {len(self)}.")
        start, stop = self.line_offsets[index % len(self)], self.line_offsets[index % len(self) + 1]
        return Program(self.line_tokens[start:stop])

    def __iter__(self) -> Iterator[Program]:
        return (self[i] for i in range(len(self)))

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Lines of each program."""
        return np.diff(self.line_offsets)

    def slice(self, start: int, stop: int) -> "ProgramTable":
        """The programs `start:stop`, as views."""
        first, last = self.line_offsets[start], self.line_offsets[stop]
        return ProgramTable(
            self.line_offsets[start : stop + 1] - first, self.line_tokens[first:last], self.target[start:stop]
        )

    def take(self, indices: npt.ArrayLike) -> "ProgramTable":
        """The programs at `indices`, in that order."""
        chosen = np.asarray(indices, np.int64)
        lengths = self.lengths[chosen]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        lines = np.repeat(self.line_offsets[chosen] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return ProgramTable(offsets, self.line_tokens[lines], self.target[chosen])

    @staticmethod
    def from_programs(programs: Sequence[Program], targets: Sequence[int | None] | None = None) -> "ProgramTable":
        """A table of `programs`; a target that is None, or not given at all, is unknown (-1)."""
        offsets = np.concatenate([[0], np.cumsum([len(p) for p in programs])]).astype(np.int64)
        tokens = [p.line_tokens for p in programs] or [np.zeros((0, 4), np.int16)]
        known = targets if targets is not None else [None] * len(programs)
        target = np.array([-1 if t is None else t for t in known], np.int64)
        return ProgramTable(offsets, np.concatenate(tokens), target)

    @staticmethod
    def concatenate(tables: Sequence["ProgramTable"]) -> "ProgramTable":
        """All programs of `tables`, in order."""
        lengths = np.concatenate([[0], *(t.lengths for t in tables)])
        return ProgramTable(
            np.cumsum(lengths).astype(np.int64),
            np.concatenate([np.zeros((0, 4), np.int16), *(t.line_tokens for t in tables)]),
            np.concatenate([np.zeros(0, np.int64), *(t.target for t in tables)]),
        )
