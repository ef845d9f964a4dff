"""The automata that learned transducers are."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ipagnn.languages.arithmetic.automata.automaton import DIGITS, PAIRS, Automaton, automaton_of, check_states

Cell = Callable[[int, int], tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]]
"""From a state and a digit of the operand: what each digit gives, where it leads, and whether reading stops there."""
PairCell = Callable[[int, int | None], tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]]
"""From a state and the lowest digit of the operand, None at the first place, where it is u: the same for each pair."""

M = TypeVar("M", int, int | None)


def extract(operation: int, operand: int, cell: Cell) -> Automaton:
    """The automaton that a transducer is, from its start state, 0.

    Args:
        operation: An operation id.
        operand: A number. Its digits are read beside those of the variable, then zeros.
        cell: What the transducer does in a state: for each digit of the variable what it gives, the state that
            follows, and whether it stops.
    """
    digits = [int(x) for x in reversed(str(operand))]
    rest = len(digits)  # from this place on the operand has zeros
    return _explore(
        operation,
        operand,
        0,
        lambda state, place: cell(state, digits[place] if place < rest else 0),
        lambda place, digit: min(place + 1, rest),
    )


def extract_pairs(operation: int, cell: PairCell) -> Automaton:
    """The automaton over pairs of digits that a transducer is, from its start state, 0.

    Args:
        operation: An operation id.
        cell: What the transducer does in a state, for each pair.
    """
    return _explore(operation, None, None, cell, lambda lowest, pair: pair // DIGITS if lowest is None else lowest)


def _explore(
    operation: int,
    operand: int | None,
    first: M,
    read: Callable[[int, M], tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]],
    remember: Callable[[M, int], M],
) -> Automaton:
    """Number the pairs of a state and what is remembered of the digits so far, in the order in which they are reached.

    Args:
        operation, operand: The statement.
        first: What is remembered before the first digit.
        read: What the transducer does in such a pair, for each digit or pair of digits.
        remember: What is remembered after one more of these.
    """
    states = {(0, first): 0}
    gives, goes, stops = [], [], []
    queue = [(0, first)]
    for state, memory in queue:
        given, following, stopped = (np.asarray(x) for x in read(state, memory))
        row = []
        for symbol in range(PAIRS if operand is None else DIGITS):
            after = int(following[symbol]), remember(memory, symbol)
            if not stopped[symbol] and after not in states:
                states[after] = len(states)
                queue.append(after)
            row.append(0 if stopped[symbol] else states[after])
        gives.append(given)
        goes.append(row)
        stops.append(stopped)
        check_states(len(states))
    return automaton_of(operation, operand, gives, goes, np.array(stops, np.bool_))
