"""A program of the language, and many of them side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ipagnn.languages.arithmetic.checks import InvalidProgramError, check_programs
from ipagnn.languages.arithmetic.vocabulary import (
    EXTENDED_VOCABULARY_SIZE,
    MASK,
    NUMBER,
    OPERATION,
    OPERATIONS,
    VARIABLE,
    number_of,
    variable_of,
)

TokenArray = npt.NDArray[np.int16]
ProgramKind = Literal["full", "partial"]
"""Complete programs, or programs with masked lines."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line, spelled out.

    Attributes:
        indent: Nesting depth, 0 at the top.
        operation: A name of `vocabulary.OPERATIONS`, or `"mask"`.
        variable: `k` of `vk`; None for `else`, `pass`, `continue`, `break` and a mask.
        operand: The number on the right; None where there is none.
        source: `k` of a `vk` on the right; None where there is none.
    """

    indent: int
    operation: str
    variable: int | None
    operand: int | None
    source: int | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Program:
    """A program, held as the token ids of its lines, which spell it completely.

    docs/specification.md, section 4, has the ids. A line has four; more if a number of the program is above 999.

    Attributes:
        line_tokens: int16 [line, token]; read-only.

    Raises:
        ValueError: The tokens spell no program of any grammar.
    """

    line_tokens: TokenArray

    def __post_init__(self) -> None:
        given = np.asarray(self.line_tokens)
        if given.ndim != 2 or given.shape[1] < 4 or not len(given):
            raise ValueError(f"line_tokens has shape {given.shape}; a program has at least one line of 4 tokens.")
        largest = EXTENDED_VOCABULARY_SIZE - 1
        if given.dtype != np.int16 and (given.dtype.kind not in "iu" or given.min() < 0 or given.max() > largest):
            raise ValueError(f"line_tokens has numbers that are no token ids; these are 0 to {largest}.")
        tokens = np.array(given, np.int16)  # a copy, so that nobody else can write to it
        while tokens.shape[1] > 4 and not tokens[:, -1].any():
            tokens = np.ascontiguousarray(tokens[:, :-1])  # one program has one spelling, whatever table it was in
        _check(tokens)
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


def _check(tokens: TokenArray) -> None:
    """Refuse tokens that are a program of no grammar, for the reason of the paper's if there are four a line."""
    offsets = np.array((0, len(tokens)))
    if tokens.shape[1] > 4:
        check_programs(offsets, tokens, extended=True)
        return
    try:
        check_programs(offsets, tokens)
    except InvalidProgramError as error:
        try:
            check_programs(offsets, tokens, extended=True)
        except InvalidProgramError:
            raise error from None


def spell(tokens: Sequence[int]) -> Line:
    """The line that token ids stand for."""
    indent, operation, variable, operand, *further = tokens
    if operation == MASK:
        return Line(indent - NUMBER, "mask", None, None)
    name = OPERATIONS[operation - OPERATION]
    if variable == operation:
        return Line(indent - NUMBER, name, None, None)
    if operand >= VARIABLE:
        return Line(indent - NUMBER, name, variable_of(variable), None, variable_of(operand))
    return Line(indent - NUMBER, name, variable_of(variable), number_of([operand, *further]))


@dataclass(frozen=True, eq=False, slots=True)
class ProgramTable:
    """Many programs, flat: what the sampler makes, shards store and batches are built from.

    Attributes:
        line_offsets: int64 [program + 1]; program `i` has the lines `line_offsets[i]:line_offsets[i + 1]`.
        line_tokens: int16 [line, token]; the lines of all programs, one after the other. Four tokens in the paper's
            language; more, padded with 0, where numbers may be above 999.
        target: int64 [program]; v0, or the grammar's target variable, modulo the grammar's modulus at the end of the
            complete program; -1 if unknown.
    """

    line_offsets: npt.NDArray[np.int64]
    line_tokens: TokenArray
    target: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.target)

    def check(
        self,
        *,
        task: ProgramKind | None = None,
        modulus: int | None = None,
        known: bool = False,
        extended: bool = False,
    ) -> None:
        """Refuse a table that is not made of programs of the language; see `checks.check_programs`."""
        check_programs(
            self.line_offsets,
            self.line_tokens,
            self.target,
            task=task,
            modulus=modulus,
            known=known,
            extended=extended,
        )

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
        known = targets if targets is not None else [None] * len(programs)
        target = np.array([-1 if t is None else t for t in known], np.int64)
        return ProgramTable(offsets, _stack([p.line_tokens for p in programs]), target)

    @staticmethod
    def concatenate(tables: Sequence["ProgramTable"]) -> "ProgramTable":
        """All programs of `tables`, in order."""
        lengths = np.concatenate([[0], *(t.lengths for t in tables)])
        return ProgramTable(
            np.cumsum(lengths).astype(np.int64),
            _stack([t.line_tokens for t in tables]),
            np.concatenate([np.zeros(0, np.int64), *(t.target for t in tables)]),
        )


def _stack(parts: Sequence[TokenArray]) -> TokenArray:
    """Lines one after the other, padded to the most tokens that one of them has."""
    width = max([4, *(part.shape[1] for part in parts)])
    padded = [np.pad(part, ((0, 0), (0, width - part.shape[1]))) if part.shape[1] < width else part for part in parts]
    return np.concatenate([np.zeros((0, width), np.int16), *padded])
