"""The automata that learned transducers are."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ipagnn.languages.arithmetic.automata.automaton import DIGITS, PAIRS, Automaton, automaton_of, check_states

Cell = Callable[[int, int], tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]]
"""From a state and a digit of the operand: what each digit gives, where it leads, and whether reading stops there."""
PairCell = Callable[[int, int | None], tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]]
"""From a state and the lowest digit of the operand, None at the first place, where it is u: the same for each pair."""


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
        check_states(len(states))
    return automaton_of(operation, operand, gives, goes, np.array(stops, np.bool_))


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
        check_states(len(states))
    return automaton_of(operation, None, gives, goes, np.array(stops, np.bool_))
