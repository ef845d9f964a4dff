"""The statements of `statements.py`, compiled, and its tables as arrays."""

from typing import Any

import numpy as np
from numba import njit

from ipagnn.languages.arithmetic import statements as plain
from ipagnn.languages.arithmetic import vocabulary as v
from ipagnn.languages.arithmetic.vocabulary import ADD, MULTIPLY, SUBTRACT, VOCABULARY_SIZE

apply: Any = njit(cache=True, nogil=True)(plain.apply)
compare: Any = njit(cache=True, nogil=True)(plain.compare)

_BASE, _FIRST, _VARIABLE, _MASK = v.BASE, v.NUMBER, v.VARIABLE, v.MASK
_LATER = v.VOCABULARY_SIZE - v.VARIABLES  # what the ids of v10 and later count from


@njit(cache=True, nogil=True)
def variable_of(token):  # type: ignore[no-untyped-def]
    """The variable that has an id."""
    return np.int64(token) - (_VARIABLE if token < _MASK else _LATER)


@njit(cache=True, nogil=True)
def number_of(tokens):  # type: ignore[no-untyped-def]
    """The number in the operand slot of a statement and those after it, int64."""
    number, scale = np.int64(tokens[3]) - _FIRST, np.int64(1)
    for slot in range(4, len(tokens)):
        if tokens[slot] == 0:
            break
        scale *= _BASE
        number += (np.int64(tokens[slot]) - _FIRST) * scale
    return number


@njit(cache=True, nogil=True)
def operand_of(tokens, values):  # type: ignore[no-untyped-def]
    """What stands on the right of a statement: a number, or the value of a variable. int64"""
    if tokens[3] >= _VARIABLE:
        return values[variable_of(tokens[3])]
    return number_of(tokens)


_SPLIT = np.int64(2**30)


@njit(cache=True, nogil=True)
def _times(a, b, modulus):  # type: ignore[no-untyped-def]
    """`a * b % modulus` for `0 <= a < modulus <= 10**18` and `0 <= b <= 2**30`.

    The product may exceed 64 bits, but its remainder does not: with a quotient that is off by one at most, which double
    precision gives for such `b`, the difference of the two products is small, and right modulo 2**64.
    """
    quotient = np.int64(np.float64(a) * np.float64(b) / np.float64(modulus))
    rest = np.int64(np.uint64(a) * np.uint64(b) - np.uint64(quotient) * np.uint64(modulus))
    if rest < 0:
        rest += modulus
    elif rest >= modulus:
        rest -= modulus
    return rest


@njit(cache=True, nogil=True)
def multiply_modulo(a, b, modulus):  # type: ignore[no-untyped-def]
    """`a * b % modulus` for `0 <= a, b < modulus <= 10**18`."""
    if modulus <= _SPLIT:
        return a * b % modulus  # faster where it fits
    if b <= _SPLIT:
        return _times(a, b, modulus)
    upper = _times(_times(a, b // _SPLIT, modulus), _SPLIT, modulus)
    return (upper + _times(a, b % _SPLIT, modulus)) % modulus


@njit(cache=True, nogil=True)
def apply_modulo(operation, value, operand, modulus):  # type: ignore[no-untyped-def]
    """`apply(operation, value, operand) % modulus` for `0 <= value < modulus <= 10**18` and `operand >= 0`.

    All numbers are int64.
    """
    if operand >= modulus:
        operand %= modulus
    if operation == MULTIPLY:
        return multiply_modulo(value, operand, modulus)
    if operation == ADD:
        value += operand
        return value - modulus if value >= modulus else value
    if operation == SUBTRACT:
        value -= operand
        return value + modulus if value < 0 else value
    return operand


COMPARISON = np.full(VOCABULARY_SIZE, -1, np.int8)
"""By operation id: the code of a condition's comparison; -1 for every other operation."""
for _operation, _code in plain.COMPARISON.items():
    COMPARISON[_operation] = _code
MODULAR = np.isin(np.arange(VOCABULARY_SIZE), list(plain.MODULAR))
"""By operation id: whether a condition compares `v % 10` rather than `v`."""


@njit(cache=True, nogil=True)
def condition_holds(operation, value, operand, condition_modulus):  # type: ignore[no-untyped-def]
    """Whether `value` meets the condition of an `if` or `while`. Modulo is Python's: never negative."""
    if MODULAR[operation]:
        value = value % condition_modulus
    return compare(COMPARISON[operation], value, operand)
