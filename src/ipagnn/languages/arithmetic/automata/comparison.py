"""A proof that two automata agree on numbers of any size, or the smallest number on which they differ.

Two automata are compared by walking through both together: there are finitely many pairs of states, so that either
they agree on all numbers, or there is a smallest number on which they differ.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ipagnn.languages.arithmetic.automata.automaton import DIGITS, Automaton
from ipagnn.languages.arithmetic.automata.definition import true_automaton
from ipagnn.languages.arithmetic.grammar import PAPER, Grammar
from ipagnn.languages.arithmetic.statements import MODULAR
from ipagnn.languages.arithmetic.tables import masked_choices, statement_text
from ipagnn.languages.arithmetic.vocabulary import ASSIGN, ASSIGNMENT_IDS, MULTIPLY


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
