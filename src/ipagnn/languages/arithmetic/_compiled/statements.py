"""The statements of `statements.py`, compiled, and its tables as arrays."""

from typing import Any

import numpy as np
from numba import njit

from ipagnn.languages.arithmetic import statements as plain
from ipagnn.languages.arithmetic.vocabulary import VOCABULARY_SIZE

apply: Any = njit(cache=True, nogil=True)(plain.apply)
compare: Any = njit(cache=True, nogil=True)(plain.compare)

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
