"""A proof that two automata agree on numbers of any size, or the smallest number on which they differ.

Two automata are compared by walking through both together: there are finitely many pairs of states, so that either
they agree on all numbers, or there is a smallest number on which they differ.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ipagnn.languages.arithmetic.automata.automaton import DIGITS, PAIRS, Automaton
from ipagnn.languages.arithmetic.automata.definition import true_automaton
from ipagnn.languages.arithmetic.grammar import PAPER, Grammar
from ipagnn.languages.arithmetic.statements import MODULAR
from ipagnn.languages.arithmetic.tables import masked_choices, statement_text
from ipagnn.languages.arithmetic.vocabulary import ASSIGN, ASSIGNMENT_IDS, MULTIPLY

MAX_COMPARED: Final = 4_000_000
"""Entries of two automata, digit by digit, that `disagreement_at` compares."""


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
    """The smallest number on which two automata of one statement differ; None if they agree on numbers of any size."""
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


def disagreement_at(
    learned: Automaton, true: Automaton, places: int, *, operand: int | None = None, same: bool = False
) -> Disagreement | None:
    """The smallest number of so many digits, leading zeros included, that tells two automata of one statement apart.

    None says that they agree on all of them: other than `disagreement`, it says nothing of numbers of another width.
    Automata of `*=` over pairs are compared for operands of one digit.

    Args:
        learned, true: The automata.
        places: How many digits numbers have.
        operand: The one operand that automata over pairs are compared for; None compares them for all operands.
        same: Whether they are compared for a variable that is its own operand.

    Raises:
        ValueError: There is too much to compare, see `MAX_COMPARED`.
    """
    first, second = learned.total(), true.total()
    read = _symbols(learned, places, operand, same)
    layer = np.zeros(1, np.int64)  # pairs of states that so many digits lead to
    following, differs = [], []
    work = 0
    for symbols in read:
        one, other = np.divmod(layer, len(second))
        reached = first.goes[one][:, symbols] * np.int64(len(second)) + second.goes[other][:, symbols]
        differs.append(first.gives[one][:, symbols] != second.gives[other][:, symbols])
        layer, which = np.unique(reached, return_inverse=True)
        following.append(which.reshape(reached.shape))
        work += reached.size
        if work > MAX_COMPARED:
            raise ValueError(f"`{statement_text(learned.operation, learned.operand)}` has too many states to compare.")
    # From the highest digit down: what has to be read to tell a pair of states apart, as a rank among all pairs of the
    # place, of which 0 is that of zeros. What a condition gives counts at the last digit only.
    never = np.iinfo(np.int64).max
    rank = np.full(len(layer), never)
    choices = []
    for place in reversed(range(places)):
        later = rank[following[place]]
        if not learned.decides or place == places - 1:
            later = np.where(differs[place], 0, later)
        width = later.shape[1]
        keys = np.where(later < never, np.minimum(later, never // PAIRS - 1) * width + np.arange(width), never)
        choices.append(keys.argmin(axis=1))
        key = keys.min(axis=1)
        ordered = np.unique([0, *key[key < never]])
        rank = np.where(key < never, np.searchsorted(ordered, key), never)
    if rank[0] == never:
        return None
    at, number, beside = 0, 0, 0
    for place, choice in enumerate(reversed(choices)):
        symbol = int(read[place][choice[at]])
        number += symbol % DIGITS * DIGITS**place
        beside += symbol // DIGITS * DIGITS**place
        if differs[place][at, choice[at]] and not learned.decides:
            break  # and zeros
        at = int(following[place][at, choice[at]])
    beside = beside if operand is None else operand
    said, right = (automaton.run(number, places, beside) for automaton in (learned, true))
    statement = statement_text(learned.operation, learned.operand)
    return Disagreement(statement, number, places, said, right, beside if learned.operand is None else None)


def _symbols(automaton: Automaton, places: int, operand: int | None, same: bool) -> list[npt.NDArray[np.int64]]:
    """By place, the digits or pairs of digits that are read."""
    digits, pairs = np.arange(DIGITS), np.arange(PAIRS)
    if automaton.operand is not None:
        return [digits] * places
    if operand is not None:
        return [digits + operand // DIGITS**place % DIGITS * DIGITS for place in range(places)]
    both = digits * (DIGITS + 1) if same else pairs
    if automaton.operation == MULTIPLY:  # the operand has one digit
        return [both, *[both[:1] if same else digits] * (places - 1)]
    return [both] * places


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
        of_data = of_data or (grammar.is_extended and operation in ASSIGNMENT_IDS)
        largest = None if of_data else grammar.loop_counts[1]  # on counters, which hold no more than that
        compared = automaton.with_digit_operand() if (operation, operand) == (MULTIPLY, None) else automaton
        proofs.append(Proof(automaton, disagreement(compared, true), largest))
    return proofs


def claim(proofs: Sequence[Proof]) -> str:
    """What proofs have shown, in one line."""
    failed = [proof.disagreement for proof in proofs if not proof.holds]
    bounded = [proof for proof in proofs if proof.holds and proof.disagreement is not None]
    anywhere = f"{len(proofs) - len(failed) - len(bounded):,} of {len(proofs):,} statements are equal to the true ones "
    anywhere += "for numbers of any size"
    for proof in bounded:
        assert proof.disagreement is not None
        anywhere += f", `{proof.disagreement.statement}` for 0 to {proof.largest}, all that loops count"
    if failed:
        smallest = min((wrong for wrong in failed if wrong is not None), key=lambda wrong: wrong.number)
        number = "1 is" if len(failed) == 1 else f"{len(failed):,} are"
        return f"{anywhere}; {number} wrong on numbers that programs of this language hold there, first {smallest}."
    return f"{anywhere}: over these automata, every program of this language is executed correctly."


def _delays(following: npt.NDArray[np.int64], differs: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """After how many zeros reading zeros for ever gives a difference; -1 if it never does. [pair]"""
    delays = np.where(differs, 0, -1).astype(np.int64)
    while True:
        later = delays[following]
        better = (delays < 0) & (later >= 0)
        if not better.any():
            return delays
        delays = np.where(better, later + 1, delays)
