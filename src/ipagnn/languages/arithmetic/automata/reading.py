"""Automata of conditions in words: where reading may stop, and with which decision."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from ipagnn.languages.arithmetic.automata import DIGITS, PAIRS, Automaton

SHOWN: Final = 3
"""States that are described; `--automaton` prints all."""


def reading(automaton: Automaton) -> str:
    """Where a condition may stop to read, and with which decision; empty for arithmetic, which reads all digits.

    The states are those of `str(automaton)`. Where reading goes on, the decision is that for a number that ends here.
    For an automaton over pairs of digits it says at how many pairs it stops.
    """
    if not automaton.decides:
        return ""
    if not automaton.stops.any():
        return "reads all digits"
    if automaton.operand is None:
        return _reading_of_pairs(automaton)
    parts = []
    for state in range(len(automaton)):
        groups: dict[str, list[int]] = {}
        for digit in range(DIGITS):
            decision = _decision(automaton, state, digit)
            if automaton.stops[state, digit]:
                groups.setdefault(decision, []).append(digit)
            else:
                after = int(automaton.goes[state, digit])
                groups.setdefault(f"reads on in state {after} ({decision} if the number ends)", []).append(digit)
        described = ", ".join(f"{_ranges(digits)} {what}" for what, digits in groups.items())
        parts.append(f"state {state}: {described}")
    if len(automaton) == 1 and automaton.stops.all():
        return f"stops at the first digit: {parts[0].removeprefix('state 0: ')}"
    return _joined(parts)


def _reading_of_pairs(automaton: Automaton) -> str:
    parts = []
    for state in range(len(automaton)):
        stops = np.flatnonzero(automaton.stops[state]).tolist()
        decisions = Counter(_decision(automaton, state, pair) for pair in stops)
        if decisions:
            described = ", ".join(f"{decision} at {count}" for decision, count in sorted(decisions.items()))
            parts.append(f"state {state} stops at {len(stops)} of {PAIRS} pairs: {described}")
    return _joined(parts)


def _joined(parts: list[str]) -> str:
    """The first states; automata that are far from the true ones have dozens."""
    more = f"; and {len(parts) - SHOWN} states more" if len(parts) > SHOWN else ""
    return "; ".join(parts[:SHOWN]) + more


def _decision(automaton: Automaton, state: int, symbol: int) -> str:
    return "holds" if automaton.gives[state, symbol] else "does not hold"


def _ranges(digits: Sequence[int]) -> str:
    """Digits in order with runs put together, as in `0-3 and 7`."""
    runs: list[list[int]] = []
    for digit in digits:
        if runs and digit == runs[-1][-1] + 1:
            runs[-1].append(digit)
        else:
            runs.append([digit])
    return " and ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
