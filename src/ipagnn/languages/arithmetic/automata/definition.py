"""The automata of what statements do by definition."""

import numpy as np

from ipagnn.languages.arithmetic.automata.automaton import (
    DIGITS,
    PAIRS,
    Automaton,
    automaton_of,
    check_states,
)
from ipagnn.languages.arithmetic.statements import COMPARISON, MODULAR, compare
from ipagnn.languages.arithmetic.vocabulary import ADD, ASSIGN, ASSIGNMENT_IDS, MULTIPLY, SUBTRACT


def true_automaton(operation: int, operand: int | None, condition_modulus: int = 10) -> Automaton:
    """The automaton of what a statement does by definition.

    Args:
        operation: The id of `=`, `+=`, `-=`, `*=` or of a condition.
        operand: Not negative; None for the automaton that reads the operand's digits, of `*=` for operands of one
            digit (see `Automaton.with_digit_operand`).
        condition_modulus: What conditions with `%` are taken modulo; a power of ten.
    """
    if operation not in COMPARISON and operation not in ASSIGNMENT_IDS:
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
        check_states(len(states))
    return automaton_of(operation, operand, gives, goes, np.zeros((len(gives), DIGITS), np.bool_))


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
    return automaton_of(operation, operand, gives, goes, np.array(stops, np.bool_))


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
    return automaton_of(operation, None, gives, goes, np.zeros((len(gives), PAIRS), np.bool_))
