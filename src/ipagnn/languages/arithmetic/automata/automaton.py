"""Statements as finite automata over decimal digits.

A statement reads the digits of its variable, least significant first, and keeps one of finitely many states: a carry,
say. An arithmetic statement writes a digit for each digit that it reads. A condition decides at each digit what holds
if the number ends there. Addition, subtraction and multiplication by a constant, and comparison with one, are such
automata.

A statement whose operand is a variable, or any number, reads the digits of both numbers, a pair of them at a time. One
such automaton says what `v0 += v1` does, and `v0 += k` for every k.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ipagnn.languages.arithmetic.statements import COMPARISON
from ipagnn.languages.arithmetic.tables import statement_text

DIGITS: Final = 10
PAIRS: Final = DIGITS * DIGITS
"""Pairs of a digit d of the variable and a digit u of the operand; their number is d + 10 u."""
MAX_STATES: Final = 100_000
"""States that an automaton may have."""

Table = npt.NDArray[np.int32]
Statement = tuple[int, int | None]
"""The id of an operation, and an operand; None if its digits are read beside those of the variable."""


@dataclass(frozen=True, eq=False, slots=True)
class Automaton:
    """What a statement does to a number, digit by digit. State 0 is the start.

    Attributes:
        operation, operand: The statement: an operation id and a number; None for an automaton that reads pairs of
            digits, of the variable and of the operand.
        gives: The digit that is written; of a condition, 1 if it holds for a number that ends here, else 0. int32
            [state, digit or pair]
        goes: The state that follows. int32 [state, digit or pair]
        stops: Whether a condition reads no further: what it gives then holds however the number goes on. bool
            [state, digit or pair]
    """

    operation: int
    operand: int | None
    gives: Table
    goes: Table
    stops: npt.NDArray[np.bool_]

    def __post_init__(self) -> None:
        shape = (len(self.gives), self.symbols)
        if not self.gives.shape == self.goes.shape == self.stops.shape == shape or not len(self.gives):
            raise ValueError(
                f"gives, goes and stops have shapes {self.gives.shape}, {self.goes.shape} and {self.stops.shape}; an "
                f"automaton has at least one state, and {self.symbols} entries for each."
            )
        if self.goes.min() < 0 or self.goes.max() >= len(self.goes):
            raise ValueError(f"goes names states from {self.goes.min()} to {self.goes.max()}; there are {len(self)}.")

    def __len__(self) -> int:
        return len(self.gives)

    @property
    def symbols(self) -> int:
        """How many entries a state has: one for each digit, or for each pair of digits."""
        return PAIRS if self.operand is None else DIGITS

    @property
    def decides(self) -> bool:
        """Whether the statement is a condition."""
        return self.operation in COMPARISON

    def run(self, number: int, width: int | None = None, operand: int = 0) -> int:
        """What the statement makes of a number: the digits written, as a number; of a condition 1 or 0.

        Args:
            number: Not negative.
            width: How many digits are read; leading zeros fill them. By default as many as the number has. The result
                of arithmetic is modulo 10 to the power of `width`.
            operand: The operand, for an automaton that reads pairs; not negative.
        """
        if min(number, operand) < 0 or (width is not None and width < 1):
            raise ValueError(f"An automaton reads numbers from 0 on, of at least one digit; not {number} in {width}.")
        width = width or max(len(str(number)), len(str(operand)) if self.operand is None else 0)
        digits = list(map(int, str(number).zfill(width)[::-1][:width]))
        if self.operand is None:
            beside = map(int, str(operand).zfill(width)[::-1])
            digits = [d + DIGITS * u for d, u in zip(digits, beside, strict=False)]
        gives, goes, stops = self.gives.tolist(), self.goes.tolist(), self.stops.tolist()  # faster one by one
        state, written = 0, []
        for digit in digits:
            written.append(gives[state][digit])
            if stops[state][digit]:
                break
            state = goes[state][digit]
        return written[-1] if self.decides else int("".join(map(str, reversed(written))))

    def total(self) -> "Automaton":
        """The same automaton without stops: where it stopped, a state follows that gives the same for ever."""
        if not self.stops.any():
            return self
        ends = len(self) + self.gives
        gives = np.concatenate([self.gives, np.repeat([[0], [1]], self.symbols, axis=1)]).astype(np.int32)
        goes = np.concatenate([np.where(self.stops, ends, self.goes), len(self) + gives[-2:]]).astype(np.int32)
        return Automaton(self.operation, self.operand, gives, goes, np.zeros(gives.shape, np.bool_))

    def minimal(self) -> "Automaton":
        """The same automaton with as few states as can be, numbered in the order in which digits lead to them."""
        goes = np.where(self.stops, 0, self.goes)
        classes = np.zeros(len(self), np.int64)
        while True:  # states are distinguished by what they give, then by the classes that they lead to
            leads = np.where(self.stops, -1, classes[goes])
            _, refined = np.unique(np.concatenate([self.gives, leads], axis=1), axis=0, return_inverse=True)
            if refined.max() == classes.max():
                break
            classes = refined.reshape(-1)
        order: list[int] = []
        numbers: dict[int, int] = {int(classes[0]): 0}
        queue = [0]
        while queue:
            state = queue.pop(0)
            order.append(state)
            for digit in range(self.symbols):
                following = int(goes[state, digit])
                if not self.stops[state, digit] and int(classes[following]) not in numbers:
                    numbers[int(classes[following])] = len(numbers)
                    queue.append(following)
        kept = np.array(order)
        renamed = np.zeros(int(classes.max()) + 1, np.int32)
        renamed[list(numbers)] = list(numbers.values())
        following_states = np.where(self.stops[kept], 0, renamed[classes[goes[kept]]]).astype(np.int32)
        return Automaton(self.operation, self.operand, self.gives[kept], following_states, self.stops[kept])

    def with_digit_operand(self) -> "Automaton":
        """The same automaton for operands of one digit; after a longer one it gives 0 for ever."""
        sink, longer = 2 * len(self), np.arange(PAIRS) >= DIGITS
        gives = np.concatenate([self.gives, np.where(longer, 0, self.gives), np.zeros((1, PAIRS), np.int32)])
        later = self.goes + len(self)  # the states behind the first place
        goes = np.concatenate([later, np.where(longer, sink, later), np.full((1, PAIRS), sink)])
        stops = np.concatenate([self.stops, self.stops & ~longer, np.zeros((1, PAIRS), np.bool_)])
        return automaton_of(self.operation, self.operand, gives, goes, stops)

    def __str__(self) -> str:
        """A table: a row for each state, a column for each digit, in it `what is given/the state that follows`.

        Where pairs are read, a row for each state and each digit of the operand.
        """
        columns, rows = range(DIGITS), range(self.symbols // DIGITS)
        cells = [
            [self._cell(state, digit + DIGITS * u) for digit in columns] for state in range(len(self)) for u in rows
        ]
        names = [f"{state}, {u}" if self.operand is None else f"{state}" for state in range(len(self)) for u in rows]
        width = max(len(cell) for row in cells for cell in row)
        title = "state, operand" if self.operand is None else "state"
        left = max(len(title), len(names[-1]))
        lines = [statement_text(self.operation, self.operand), f"{title:>{left}}"]
        lines[1] += "".join(f"  {digit:>{width}}" for digit in columns)
        lines += [
            f"{name:>{left}}" + "".join(f"  {c:>{width}}" for c in row) for name, row in zip(names, cells, strict=True)
        ]
        return "\n".join(lines)

    def dot(self) -> str:
        """The automaton as text that graphviz draws. Each edge says which digits it reads and what they give.

        A pair is written `digit,operand digit`.
        """
        lines = [
            f'digraph "{statement_text(self.operation, self.operand)}" {{',
            "  rankdir=LR;",
            "  node [shape=circle];",
        ]
        if self.stops.any():
            lines += ['  true [shape=box, label="holds"];', '  false [shape=box, label="does not hold"];']
        for state in range(len(self)):
            edges: dict[str, list[str]] = {}
            for digit in range(self.symbols):
                given, stops = int(self.gives[state, digit]), bool(self.stops[state, digit])
                target = ("false", "true")[given] if stops else str(int(self.goes[state, digit]))
                read = f"{digit % DIGITS},{digit // DIGITS}" if self.operand is None else f"{digit}"
                edges.setdefault(target, []).append(read if stops else f"{read}/{given}")
            lines += [f'  {state} -> {target} [label="{" ".join(labels)}"];' for target, labels in edges.items()]
        return "\n".join([*lines, "}"])

    def _cell(self, state: int, digit: int) -> str:
        given = int(self.gives[state, digit])
        shown = ("false", "true")[given] if self.decides else str(given)
        return shown if self.stops[state, digit] else f"{shown}/{int(self.goes[state, digit])}"


def automaton_of(
    operation: int, operand: int | None, gives: npt.ArrayLike, goes: npt.ArrayLike, stops: npt.NDArray[np.bool_]
) -> Automaton:
    """An automaton from lists."""
    return Automaton(operation, operand, np.array(gives, np.int32), np.array(goes, np.int32), stops)


def check_states(states: int) -> None:
    """Refuse an automaton with too many states."""
    if states > MAX_STATES:
        raise ValueError(f"The automaton has more than {MAX_STATES:,} states; choose an operand with fewer digits.")
