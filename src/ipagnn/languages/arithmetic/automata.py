"""Statements as finite automata over decimal digits, and a proof that two of them agree on numbers of any size.

A statement reads the digits of its variable, least significant first, and keeps one of finitely many states: a carry,
say. An arithmetic statement writes a digit for each digit that it reads. A condition decides at each digit what holds
if the number ends there. Addition, subtraction and multiplication by a constant, and comparison with one, are such
automata. Two automata are compared by walking through both together: there are finitely many pairs of states, so that
either no number tells them apart, or a smallest one does.

A statement whose operand is a variable, or any number, reads the digits of both numbers, a pair of them at a time. One
such automaton says what `v0 += v1` does, and `v0 += k` for every k.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ipagnn.languages.arithmetic.grammar import PAPER, Grammar
from ipagnn.languages.arithmetic.statements import COMPARISON, MODULAR, compare
from ipagnn.languages.arithmetic.tables import grammar_statements, literal_facts, masked_choices, statement_text
from ipagnn.languages.arithmetic.vocabulary import (
    ADD,
    ASSIGN,
    MAX_NUMBER,
    MULTIPLY,
    OPERATION_ID,
    SUBTRACT,
    WHILE_GREATER,
)

DIGITS: Final = 10
PAIRS: Final = DIGITS * DIGITS
"""Pairs of a digit d of the variable and a digit u of the operand; their number is d + 10 u."""
MAX_STATES: Final = 100_000
"""States that an automaton may have."""

ARITHMETIC: Final = (ASSIGN, ADD, SUBTRACT, MULTIPLY)
"""Operations that write a number."""

Table = npt.NDArray[np.int32]
Statement = tuple[int, int | None]
"""The id of an operation, and an operand; None if its digits are read beside those of the variable."""
Cell = Callable[[int, int], tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]]
"""From a state and a digit of the operand: what each digit gives, where it leads, and whether reading stops there."""
PairCell = Callable[[int, int | None], tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]]
"""From a state and the lowest digit of the operand, None at the first place, where it is u: the same for each pair."""


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
                "automaton has at least one state, and {self.symbols} entries for each."
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
        return _automaton(self.operation, self.operand, gives, goes, stops)

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


@dataclass(frozen=True, slots=True)
class Disagreement:
    """The smallest number on which an automaton is wrong; of pairs, the one that is smaller at the highest place.

    Attributes:
        statement: The statement as text.
        number: The number.
        width: The number of digits read, leading zeros included, at which the difference shows first.
        learned: What the automaton makes of it.
        true: What is true.
        operand: The operand, of an automaton that reads pairs.
    """

    statement: str
    number: int
    width: int
    learned: int
    true: int
    operand: int | None = None

    def __str__(self) -> str:
        beside = "" if self.operand is None else f" and {self.operand}"
        what = f"learned {self.learned}, true {self.true}"
        return f"{self.statement} at {self.number}{beside}, {self.width} digits: {what}"


def disagreement(learned: Automaton, true: Automaton) -> Disagreement | None:
    """The smallest number that tells two automata of one statement apart; None if they agree on numbers of any size."""
    first, second = learned.total(), true.total()
    count, symbols = len(second), second.symbols
    gives = first.gives[:, None] != second.gives[None]  # [state, state, digit or pair]
    goes = (first.goes[:, None] * np.int64(count) + second.goes[None]).reshape(-1, symbols)
    differs = gives.reshape(-1, symbols)
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
            for digit in range(symbols):
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
            operand = 0
            if learned.operand is None:
                read = [number // symbols**i % symbols for i in range(width)]
                number, operand = (sum(s // by % DIGITS * DIGITS**i for i, s in enumerate(read)) for by in (1, DIGITS))
            said, right = (automaton.run(number, width, operand) for automaton in (learned, true))
            beside = operand if learned.operand is None else None
            return Disagreement(statement, number, width, said, right, beside)
        best, place = following, place * symbols
    return None


def true_automaton(operation: int, operand: int | None, condition_modulus: int = 10) -> Automaton:
    """The automaton of what a statement does by definition.

    Args:
        operation: The id of `=`, `+=`, `-=`, `*=` or of a condition.
        operand: Not negative; None for the automaton that reads the operand's digits, of `*=` for operands of one
            digit (see `Automaton.with_digit_operand`).
        condition_modulus: What conditions with `%` are taken modulo; a power of ten.
    """
    if operation not in COMPARISON and operation not in ARITHMETIC:
        raise ValueError(f"Operation {operation} is neither arithmetic nor a condition, so no automaton computes it.")
    if operand is None:
        return _true_pairs(operation)
    if operation in COMPARISON:
        return _true_condition(operation, operand, condition_modulus)
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


def extract_pairs(operation: int, cell: PairCell) -> Automaton:
    """The automaton over pairs of digits that a transducer is, from its start state, 0.

    Args:
        operation: An operation id.
        cell: What the transducer does in a state, for each pair.
    """
    states: dict[tuple[int, int | None], int] = {(0, None): 0}
    gives, goes, stops = [], [], []
    queue: list[tuple[int, int | None]] = [(0, None)]
    for state, lowest in queue:
        given, following, stopped = (np.asarray(x) for x in cell(state, lowest))
        row = []
        for pair in range(PAIRS):
            after = int(following[pair]), pair // DIGITS if lowest is None else lowest
            if not stopped[pair] and after not in states:
                states[after] = len(states)
                queue.append(after)
            row.append(0 if stopped[pair] else states[after])
        gives.append(given)
        goes.append(row)
        stops.append(stopped)
        _check_states(len(states))
    return _automaton(operation, None, gives, goes, np.array(stops, np.bool_))


def grammar_automata(grammar: Grammar = PAPER) -> list[Statement]:
    """The statements whose automata say what all programs of a grammar do.

    Literals, arithmetic, conditions, and what counts loops. Where operands may be variables or numbers above 999, one
    automaton over pairs of digits stands for all operands.
    """
    if not grammar.is_extended:
        literals = [(ASSIGN, int(k)) for k in np.flatnonzero(literal_facts(grammar))]
        return [*literals, *((o, k) for o, k in grammar_statements(grammar).tolist())]
    names = [name for name in grammar.arithmetic_operations if name != "*="]
    if grammar.counters and "-=" not in names:
        names.append("-=")
    found: list[Statement] = [(OPERATION_ID[name], None) for name in ("=", *names)]
    if "*=" in grammar.arithmetic_operations:
        least, largest = grammar.operands if grammar.factors == (0, 0) else grammar.factors
        if largest > MAX_NUMBER:
            raise ValueError(f"The grammar multiplies by numbers up to {largest:,}; automata are for {MAX_NUMBER}.")
        found += [(MULTIPLY, None), *((MULTIPLY, k) for k in range(max(least, DIGITS), largest + 1))]
    for name in grammar.comparisons:
        found += [(OPERATION_ID[f"if {name}"], None)] if grammar.condition_variable else []
    for name in grammar.comparisons:
        least, largest = grammar.condition_operands
        found += [(OPERATION_ID[f"if {name} %"], k) for k in range(least, largest + 1)]
    return [*found, (WHILE_GREATER, 0)] if grammar.counters else found


def read_statement(text: str, grammar: Grammar = PAPER) -> Statement:
    """The id of the operation and the operand of a statement, as in `*= 7`, `if % 10 < 4` or `while v1 > 0`.

    An operand that is a variable, as in `+= v1`, is None.

    Raises:
        ValueError: The text is no statement of one line.
    """
    words = text.strip().removesuffix(":").split()
    names = [i for i, word in enumerate(words) if word[0] == "v" and word[1:].isdigit()]
    beside = bool(names) and names[-1] == len(words) - 1 > 0
    if beside:
        words[-1] = "0"
    words = [word for i, word in enumerate(words) if i not in names or (beside and i == len(words) - 1)]
    modulo = str(grammar.condition_modulus)
    if "%" in words and words[words.index("%") + 1 :][:1] == [modulo]:
        words = [*words[: words.index("%")], *words[words.index("%") + 2 :][:1], "%", *words[words.index("%") + 3 :]]
    name, operand = " ".join(words[:-1]), words[-1] if words else ""
    operation = OPERATION_ID.get(name)
    known = operation in COMPARISON or operation in ARITHMETIC
    if operation is None or not known or not operand.isdecimal() or (beside and operation in MODULAR):
        raise ValueError(
            f"{text!r} is no statement; write one as in `*= 7`, `if % {modulo} < 4` or `while > 0`, with a number at "
            "its end, or as in `+= v1` or `if < v1`."
        )
    return operation, None if beside else int(operand)


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
        of_data = operand is None or operation in (ASSIGN, *MODULAR) or (operation, operand) in choices
        of_data = of_data or (grammar.is_extended and operation in ARITHMETIC)
        largest = None if of_data else grammar.loop_counts[1]  # on counters, which hold no more than that
        compared = automaton.with_digit_operand() if (operation, operand) == (MULTIPLY, None) else automaton
        proofs.append(Proof(automaton, disagreement(compared, true), largest))
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


def _true_pairs(operation: int) -> Automaton:
    """States are (the factor, after the first place of `*=`; a carry, or how the digits so far compare)."""
    if operation in MODULAR:
        raise ValueError("Conditions on a remainder compare it with a number; give the number.")
    states: dict[tuple[int | None, int], int] = {(None, 0): 0}
    sink = -1, 0  # after a factor of several digits
    gives, goes = [], []
    queue: list[tuple[int | None, int]] = [(None, 0)]
    for factor, carry in queue:
        given, following = [], []
        for pair in range(PAIRS):
            u, d = divmod(pair, DIGITS)
            after: tuple[int | None, int]
            if operation in COMPARISON:
                here = (d > u) - (d < u) or carry
                written, after = int(compare(COMPARISON[operation], here, 0)), (None, here)
            elif operation == MULTIPLY:
                k = u if factor is None else factor
                total = d * k + carry
                written, after = total % DIGITS, (k, total // DIGITS)
                if factor == -1 or (factor is not None and u):
                    written, after = 0, sink
            else:
                total = {ADD: d + u + carry, SUBTRACT: d - u - carry, ASSIGN: u}[operation]
                written, after = total % DIGITS, (None, abs(total // DIGITS))
            if after not in states:
                states[after] = len(states)
                queue.append(after)
            given.append(written)
            following.append(states[after])
        gives.append(given)
        goes.append(following)
    return _automaton(operation, None, gives, goes, np.zeros((len(gives), PAIRS), np.bool_))


def _automaton(
    operation: int, operand: int | None, gives: npt.ArrayLike, goes: npt.ArrayLike, stops: npt.NDArray[np.bool_]
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
