"""Statements as finite automata over decimal digits, and a proof that two of them agree on numbers of any size.

A statement reads the digits of its variable, least significant first, and keeps one of finitely many states: a carry,
say. An arithmetic statement writes a digit for each digit that it reads. A condition decides at each digit what holds
if the number ends there. Addition, subtraction and multiplication by a constant, and comparison with one, are such
automata. Two automata are compared by walking through both together: there are finitely many pairs of states, so that
either no number tells them apart, or a smallest one does.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ipagnn.languages.arithmetic.grammar import PAPER, Grammar
from ipagnn.languages.arithmetic.statements import COMPARISON, MODULAR, compare
from ipagnn.languages.arithmetic.tables import masked_choices, statement_text
from ipagnn.languages.arithmetic.vocabulary import ADD, ASSIGN, MULTIPLY, OPERATION_ID, SUBTRACT

DIGITS: Final = 10
MAX_STATES: Final = 100_000
"""States that an automaton may have."""

ARITHMETIC: Final = (ASSIGN, ADD, SUBTRACT, MULTIPLY)
"""Operations that write a number."""

Table = npt.NDArray[np.int32]
Cell = Callable[[int, int], tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]]
"""From a state and a digit of the operand: what each digit gives, where it leads, and whether reading stops there."""


@dataclass(frozen=True, eq=False, slots=True)
class Automaton:
    """What a statement does to a number, digit by digit. State 0 is the start.

    Attributes:
        operation, operand: The statement: an operation id and a number.
        gives: The digit that is written; of a condition, 1 if it holds for a number that ends here, else 0. int32
            [state, digit]
        goes: The state that follows. int32 [state, digit]
        stops: Whether a condition reads no further: what it gives then holds however the number goes on. bool
            [state, digit]
    """

    operation: int
    operand: int
    gives: Table
    goes: Table
    stops: npt.NDArray[np.bool_]

    def __post_init__(self) -> None:
        shape = (len(self.gives), DIGITS)
        if not self.gives.shape == self.goes.shape == self.stops.shape == shape or not len(self.gives):
            raise ValueError(
                f"gives, goes and stops have shapes {self.gives.shape}, {self.goes.shape} and {self.stops.shape}; an "
                "automaton has at least one state, and ten entries for each."
            )
        if self.goes.min() < 0 or self.goes.max() >= len(self.goes):
            raise ValueError(f"goes names states from {self.goes.min()} to {self.goes.max()}; there are {len(self)}.")

    def __len__(self) -> int:
        return len(self.gives)

    @property
    def decides(self) -> bool:
        """Whether the statement is a condition."""
        return self.operation in COMPARISON

    def run(self, number: int, width: int | None = None) -> int:
        """What the statement makes of a number: the digits written, as a number; of a condition 1 or 0.

        Args:
            number: Not negative.
            width: How many digits are read; leading zeros fill them. By default as many as the number has. The result
                of arithmetic is modulo 10 to the power of `width`.
        """
        if number < 0 or (width is not None and width < 1):
            raise ValueError(f"An automaton reads numbers from 0 on, of at least one digit; not {number} in {width}.")
        digits = str(number).zfill(width or 1)[::-1][:width]
        gives, goes, stops = self.gives.tolist(), self.goes.tolist(), self.stops.tolist()  # faster one by one
        state, written = 0, []
        for digit in map(int, digits):
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
        gives = np.concatenate([self.gives, np.repeat([[0], [1]], DIGITS, axis=1)]).astype(np.int32)
        goes = np.concatenate([np.where(self.stops, ends, self.goes), len(self) + gives[-2:]]).astype(np.int32)
        return Automaton(self.operation, self.operand, gives, goes, np.zeros(gives.shape, np.bool_))

    def minimal(self) -> "Automaton":
        """The same automaton with as few states as can be, numbered in the order in which digits lead to them."""
        goes = np.where(self.stops, 0, self.goes)
        classes = np.zeros(len(self), np.int64)
        while True:  # states are told apart by what they give, then by the classes that they lead to
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
            for digit in range(DIGITS):
                following = int(goes[state, digit])
                if not self.stops[state, digit] and int(classes[following]) not in numbers:
                    numbers[int(classes[following])] = len(numbers)
                    queue.append(following)
        kept = np.array(order)
        renamed = np.zeros(int(classes.max()) + 1, np.int32)
        renamed[list(numbers)] = list(numbers.values())
        following_states = np.where(self.stops[kept], 0, renamed[classes[goes[kept]]]).astype(np.int32)
        return Automaton(self.operation, self.operand, self.gives[kept], following_states, self.stops[kept])

    def __str__(self) -> str:
        """A table: a row for each state, a column for each digit, in it `what is given/the state that follows`."""
        cells = [[self._cell(state, digit) for digit in range(DIGITS)] for state in range(len(self))]
        width = max(len(cell) for row in cells for cell in row)
        left = max(5, len(str(len(self) - 1)))
        lines = [statement_text(self.operation, self.operand), f"{'state':>{left}}"]
        lines[1] += "".join(f"  {digit:>{width}}" for digit in range(DIGITS))
        lines += [f"{state:>{left}}" + "".join(f"  {c:>{width}}" for c in row) for state, row in enumerate(cells)]
        return "\n".join(lines)

    def dot(self) -> str:
        """The automaton as text that graphviz draws. Each edge says which digits it reads and what they give."""
        lines = [
            f'digraph "{statement_text(self.operation, self.operand)}" {{',
            "  rankdir=LR;",
            "  node [shape=circle];",
        ]
        if self.stops.any():
            lines += ['  true [shape=box, label="holds"];', '  false [shape=box, label="does not hold"];']
        for state in range(len(self)):
            edges: dict[str, list[str]] = {}
            for digit in range(DIGITS):
                given, stops = int(self.gives[state, digit]), bool(self.stops[state, digit])
                target = ("false", "true")[given] if stops else str(int(self.goes[state, digit]))
                edges.setdefault(target, []).append(f"{digit}" if stops else f"{digit}/{given}")
            lines += [f'  {state} -> {target} [label="{" ".join(labels)}"];' for target, labels in edges.items()]
        return "\n".join([*lines, "}"])

    def _cell(self, state: int, digit: int) -> str:
        given = int(self.gives[state, digit])
        shown = ("false", "true")[given] if self.decides else str(given)
        return shown if self.stops[state, digit] else f"{shown}/{int(self.goes[state, digit])}"


@dataclass(frozen=True, slots=True)
class Disagreement:
    """The smallest number on which an automaton is wrong.

    Attributes:
        statement: The statement as text.
        number: The number.
        width: The number of digits read, leading zeros included, at which the difference shows first.
        learned: What the automaton makes of it.
        true: What is true.
    """

    statement: str
    number: int
    width: int
    learned: int
    true: int

    def __str__(self) -> str:
        return f"{self.statement} at {self.number}, {self.width} digits: learned {self.learned}, true {self.true}"


def disagreement(learned: Automaton, true: Automaton) -> Disagreement | None:
    """The smallest number that tells two automata of one statement apart; None if they agree on numbers of any size."""
    first, second = learned.total(), true.total()
    count = len(second)
    gives = first.gives[:, None] != second.gives[None]  # [state, state, digit]
    goes = (first.goes[:, None] * np.int64(count) + second.goes[None]).reshape(-1, DIGITS)
    differs = gives.reshape(-1, DIGITS)
    delay = _delays(goes[:, 0], differs[:, 0])
    best: dict[int, int] = {0: 0}  # by pair of states: the smallest number whose digits lead there
    seen: set[int] = set()
    place, length = 1, 0
    while not seen.issuperset(best):
        seen.update(best)
        length += 1
        following: dict[int, int] = {}
        witnesses: list[tuple[int, int]] = []
        for pair, number in best.items():
            for digit in range(DIGITS):
                reached, pair_after = number + digit * place, int(goes[pair, digit])
                if differs[pair, digit]:
                    witnesses.append((reached, length))
                elif delay[pair_after] >= 0:
                    witnesses.append((reached, length + 1 + int(delay[pair_after])))
                if reached < following.get(pair_after, reached + 1):
                    following[pair_after] = reached
        if witnesses:
            number, width = min(witnesses)
            statement = statement_text(learned.operation, learned.operand)
            return Disagreement(statement, number, width, learned.run(number, width), true.run(number, width))
        best, place = following, place * DIGITS
    return None


def true_automaton(operation: int, operand: int, condition_modulus: int = 10) -> Automaton:
    """The automaton of what a statement does by definition.

    Args:
        operation: The id of `=`, `+=`, `-=`, `*=` or of a condition.
        operand: Not negative.
        condition_modulus: What conditions with `%` are taken modulo; a power of ten.
    """
    if operation in COMPARISON:
        return _true_condition(operation, operand, condition_modulus)
    if operation not in ARITHMETIC:
        raise ValueError(f"Operation {operation} is neither arithmetic nor a condition, so no automaton computes it.")
    start = 0 if operation == MULTIPLY else operand
    states, gives, goes = {start: 0}, [], []
    queue = [start]
    for pending in queue:  # what is still to be added, subtracted or written from this digit on
        row = []
        for digit in range(DIGITS):
            if operation == ADD:
                total = digit + pending
            elif operation == SUBTRACT:
                total = digit - pending
            else:
                total = pending + (digit * operand if operation == MULTIPLY else 0)
            carry = abs(total // DIGITS)
            if carry not in states:
                states[carry] = len(states)
                queue.append(carry)
            row.append((total % DIGITS, states[carry]))
        gives.append([given for given, _ in row])
        goes.append([following for _, following in row])
        _check_states(len(states))
    return _automaton(operation, operand, gives, goes, np.zeros((len(gives), DIGITS), np.bool_))


def extract(operation: int, operand: int, cell: Cell) -> Automaton:
    """The automaton that a transducer is, from its start state, 0.

    Args:
        operation: An operation id.
        operand: A number. Its digits are read beside those of the variable, then zeros.
        cell: What the transducer does in a state: for each digit of the variable what it gives, the state that
            follows, and whether it stops.
    """
    operand_digits = [int(x) for x in reversed(str(operand))]
    rest = len(operand_digits)  # from this place on the operand has zeros
    states: dict[tuple[int, int], int] = {(0, 0): 0}
    gives, goes, stops = [], [], []
    queue = [(0, 0)]
    for state, place in queue:
        given, following, stopped = (np.asarray(x) for x in cell(state, operand_digits[place] if place < rest else 0))
        row = []
        for digit in range(DIGITS):
            after = int(following[digit]), min(place + 1, rest)
            if not stopped[digit] and after not in states:
                states[after] = len(states)
                queue.append(after)
            row.append(0 if stopped[digit] else states[after])
        gives.append(given)
        goes.append(row)
        stops.append(stopped)
        _check_states(len(states))
    return _automaton(operation, operand, gives, goes, np.array(stops, np.bool_))


def read_statement(text: str, grammar: Grammar = PAPER) -> tuple[int, int]:
    """The id of the operation and the operand of a statement, as in `*= 7`, `if % 10 < 4` or `while v1 > 0`.

    Raises:
        ValueError: The text is no statement of one line.
    """
    words = [word for word in text.strip().removesuffix(":").split() if not (word[0] == "v" and word[1:].isdigit())]
    modulo = str(grammar.condition_modulus)
    if "%" in words and words[words.index("%") + 1 :][:1] == [modulo]:
        words = [*words[: words.index("%")], *words[words.index("%") + 2 :][:1], "%", *words[words.index("%") + 3 :]]
    name, operand = " ".join(words[:-1]), words[-1] if words else ""
    operation = OPERATION_ID.get(name)
    if operation is None or not operand.isdecimal() or not (operation in COMPARISON or operation in ARITHMETIC):
        raise ValueError(
            f"{text!r} is no statement; write one as in `*= 7`, `if % {modulo} < 4` or `while > 0`, with a number at "
            "its end."
        )
    return operation, int(operand)


@dataclass(frozen=True, eq=False, slots=True)
class Proof:
    """What comparing a learned automaton with the true one has shown.

    Attributes:
        automaton: The learned one.
        disagreement: The smallest number on which it is wrong; None if there is none.
        largest: The largest value on which programs of the grammar meet the statement; None if there is no bound.
    """

    automaton: Automaton
    disagreement: Disagreement | None
    largest: int | None

    @property
    def holds(self) -> bool:
        """Whether it is right on all values on which programs of the grammar meet the statement."""
        wrong = self.disagreement
        return wrong is None or (self.largest is not None and wrong.number > self.largest)


def prove(automata: Iterable[Automaton], grammar: Grammar = PAPER) -> list[Proof]:
    """Compare learned automata with the true ones, each on numbers of any size."""
    choices = {tuple(statement) for statement in masked_choices(grammar).tolist()}
    proofs = []
    for automaton in automata:
        operation, operand = automaton.operation, automaton.operand
        true = true_automaton(operation, operand, grammar.condition_modulus)
        of_v0 = operation in MODULAR or operation == ASSIGN or (operation, operand) in choices
        largest = None if of_v0 else grammar.loop_counts[1]  # on counters, which hold no more than that
        proofs.append(Proof(automaton, disagreement(automaton, true), largest))
    return proofs


def claim(proofs: Sequence[Proof]) -> str:
    """What proofs have shown, in one line."""
    failed = [proof.disagreement for proof in proofs if not proof.holds]
    anywhere = sum(proof.disagreement is None for proof in proofs)
    sentence = f"{anywhere:,} of {len(proofs):,} statements are equal to the true ones for numbers of any size"
    for proof in proofs:
        if proof.holds and proof.disagreement is not None:
            sentence += f"; `{proof.disagreement.statement}` up to {proof.largest}, the most that loops count"
    if failed:
        smallest = min((wrong for wrong in failed if wrong is not None), key=lambda wrong: wrong.number)
        return f"{sentence}; {len(failed):,} are wrong, first {smallest}."
    return f"{sentence}; none is wrong on a value that programs meet."


def _true_condition(operation: int, operand: int, modulus: int) -> Automaton:
    """States are (place, how the digits below it compare with those of the operand), and a decision that is made."""
    read = len(str(modulus)) - 1 if operation in MODULAR else 0
    if read and DIGITS**read != modulus:
        raise ValueError(f"Conditions modulo {modulus} are decided by no digits; choose a power of ten.")
    if operation in MODULAR and not read:
        raise ValueError("Conditions modulo 1 do not depend on digits; choose a power of ten.")
    digits = [int(x) for x in reversed(str(operand))]
    states, gives, goes, stops = {(0, 0): 0}, [], [], []
    queue = [(0, 0)]
    places = max(read, len(digits))
    for place, below in queue:
        given, following, stopped = [], [], []
        compared_digit = digits[place] if place < len(digits) else 0
        for digit in range(DIGITS):
            here = (digit > compared_digit) - (digit < compared_digit) or below
            longer = -1 if any(digits[place + 1 :]) else here  # the operand has more digits than this number
            given.append(int(compare(COMPARISON[operation], longer, 0)))
            stopped.append(read == place + 1)
            after = min(place + 1, places), here
            if not stopped[-1] and after not in states:
                states[after] = len(states)
                queue.append(after)
            following.append(states.get(after, 0))
        gives.append(given)
        goes.append(following)
        stops.append(stopped)
    return _automaton(operation, operand, gives, goes, np.array(stops, np.bool_))


def _automaton(
    operation: int, operand: int, gives: npt.ArrayLike, goes: npt.ArrayLike, stops: npt.NDArray[np.bool_]
) -> Automaton:
    return Automaton(operation, operand, np.array(gives, np.int32), np.array(goes, np.int32), stops)


def _delays(following: npt.NDArray[np.int64], differs: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """After how many zeros reading zeros for ever gives a difference; -1 if it never does. [pair]"""
    delays = np.where(differs, 0, -1).astype(np.int64)
    while True:
        later = delays[following]
        better = (delays < 0) & (later >= 0)
        if not better.any():
            return delays
        delays = np.where(better, later + 1, delays)


def _check_states(states: int) -> None:
    if states > MAX_STATES:
        raise ValueError(f"The automaton has more than {MAX_STATES:,} states; choose an operand with fewer digits.")
