"""Automata of conditions in words: where reading may stop, and with which decision."""

from collections.abc import Sequence

from ipagnn.languages.arithmetic.automata import DIGITS, Automaton


def reading(automaton: Automaton) -> str:
    """Where a condition may stop to read, and with which decision.

    Empty for arithmetic, which reads all digits, and for automata that read pairs of digits. The states are
    those of `str(automaton)`. Where reading goes on, the decision is that for a number that ends here.
    """
    if not automaton.decides or automaton.operand is None:
        return ""
    parts = []
    for state in range(len(automaton)):
        groups: dict[str, list[int]] = {}
        for digit in range(DIGITS):
            decision = "holds" if automaton.gives[state, digit] else "does not hold"
            if automaton.stops[state, digit]:
                groups.setdefault(decision, []).append(digit)
            else:
                after = int(automaton.goes[state, digit])
                groups.setdefault(f"reads on in state {after} ({decision} if the number ends)", []).append(digit)
        told = ", ".join(f"{_ranges(digits)} {what}" for what, digits in groups.items())
        parts.append(f"state {state}: {told}")
    if len(automaton) == 1 and automaton.stops.all():
        return f"stops at the first digit: {parts[0].removeprefix('state 0: ')}"
    return "; ".join(parts)


def _ranges(digits: Sequence[int]) -> str:
    """Digits in order with runs put together, as in `0-3 and 7`."""
    runs: list[list[int]] = []
    for digit in digits:
        if runs and digit == runs[-1][-1] + 1:
            runs[-1].append(digit)
        else:
            runs.append([digit])
    return " and ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
