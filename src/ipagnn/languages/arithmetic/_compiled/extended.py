"""Compiled code that draws programs of grammars that go past the paper's language.

Their shapes are drawn as those of the paper's language are (`sampler.py`); only what their lines say differs.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from ipagnn.languages.arithmetic import vocabulary as v
from ipagnn.languages.arithmetic._compiled.random import below, below_large
from ipagnn.languages.arithmetic._compiled.sampler import (
    ARITHMETIC,
    COUNTER,
    DECREMENT,
    IF,
    MAX_ATTEMPTS,
    NOTHING,
    WHILE,
    choose_lines,
    draw_shape,
    next_line,
    write_plain,
)


class Extension(NamedTuple):
    """The fields of a `Grammar` that go past the paper's language, as compiled code reads them.

    Attributes:
        initial, operands, factors: int64 [2]; least and largest number.
        differences: int16 [comparison]; ids of the conditions that compare variables as they are.
    """

    variables: int
    target_variable: int
    first_digit: int
    operand_number: int
    operand_variable: int
    condition_number: int
    condition_variable: int
    stmt_assign: int
    by_digits: bool
    initial: npt.NDArray[np.int64]
    operands: npt.NDArray[np.int64]
    factors: npt.NDArray[np.int64]
    differences: npt.NDArray[np.int16]


_NUMBER, _BASE, _VARIABLES, _FIRST, _LATER = v.NUMBER, v.BASE, v.VARIABLES, v.VARIABLE, v.VOCABULARY_SIZE - v.VARIABLES
_ASSIGN, _MULTIPLY, _SUBTRACT, _WHILE_GREATER = v.ASSIGN, v.MULTIPLY, v.SUBTRACT, v.WHILE_GREATER


@njit(cache=True, nogil=True)
def variable_id(variable):  # type: ignore[no-untyped-def]
    """Id of a variable."""
    return variable + (_FIRST if variable < _VARIABLES else _LATER)


@njit(cache=True, nogil=True)
def _draw_number(random, bounds, by_digits):  # type: ignore[no-untyped-def]
    """A number from `bounds[0]` to `bounds[1]`, uniform, or uniform among those of a uniform number of digits."""
    least, largest = bounds[0], bounds[1]
    if by_digits:
        shortest, longest = _digits(least), _digits(largest)
        digits = shortest + below(random, longest - shortest + 1)
        least = max(least, np.int64(10) ** (digits - 1) if digits > 1 else np.int64(0))
        largest = min(largest, np.int64(10) ** digits - 1)
    return least + below_large(random, largest - least + 1)


@njit(cache=True, nogil=True)
def _digits(number):  # type: ignore[no-untyped-def]
    count = 1
    while number >= 10:
        number //= 10
        count += 1
    return count


@njit(cache=True, nogil=True)
def _write(row, depth, operation, variable):  # type: ignore[no-untyped-def]
    """A line without its operand."""
    row[:] = 0
    row[0] = _NUMBER + depth
    row[1] = operation
    row[2] = variable_id(variable)


@njit(cache=True, nogil=True)
def _write_number(row, number):  # type: ignore[no-untyped-def]
    row[3] = _NUMBER + number % _BASE
    slot = 4
    number //= _BASE
    while number:
        row[slot] = _NUMBER + number % _BASE
        number //= _BASE
        slot += 1


@njit(cache=True, nogil=True)
def _write_assignment(row, depth, variable, extension, random):  # type: ignore[no-untyped-def]
    """A data variable is assigned a number, a digit variable a digit."""
    _write(row, depth, _ASSIGN, variable)
    if variable >= extension.first_digit:
        _write_number(row, below(random, 10))
    else:
        _write_number(row, _draw_number(random, extension.initial, extension.by_digits))


@njit(cache=True, nogil=True)
def _source(declared, count, multiplies, counters, loops, variable, extension, random):  # type: ignore[no-untyped-def]
    """A variable for the right of an arithmetic line on `variable`; -1 if there is none.

    For `*=` it is a digit variable; for the others any other data variable, or the counter of a loop around.
    """
    fitting = 0 if multiplies else loops
    for k in range(count):
        if declared[k] >= extension.first_digit if multiplies else declared[k] != variable:
            fitting += 1
    if fitting == 0:
        return -1
    drawn = below(random, fitting)
    if not multiplies:
        if drawn < loops:
            return counters[drawn] + extension.variables - 1
        drawn -= loops
    for k in range(count):
        if declared[k] >= extension.first_digit if multiplies else declared[k] != variable:
            if drawn == 0:
                return declared[k]
            drawn -= 1
    return -1


@njit(cache=True, nogil=True)
def _write_lines(rules, extension, scratch, declared, count, tokens):  # type: ignore[no-untyped-def]
    """Write the lines that declare `count` data variables, and those of a shape.

    Returns:
        The number of arithmetic lines, or -1 if a hole cannot be filled.
    """
    random, counters = scratch.random, scratch.counters
    shift = extension.variables - 1
    for k in range(rules.counters):
        counters[k] = k + 1
    # The target variable, and others in random order; then those that arithmetic may change, which come first.
    for k in range(extension.variables):
        declared[k] = k
    declared[0], declared[extension.target_variable] = extension.target_variable, 0
    for k in range(1, count):
        chosen = k + below(random, extension.variables - k)
        declared[k], declared[chosen] = declared[chosen], declared[k]
    changing = 0
    for k in range(count):
        _write_assignment(tokens[k], 0, declared[k], extension, random)
    for k in range(count):
        if declared[k] < extension.first_digit:
            declared[changing], declared[k] = declared[k], declared[changing]
            changing += 1
    line, arithmetic, counter = count, 0, 0
    element = 0
    while element >= 0:
        depth, loops = scratch.depth[element], scratch.loops[element]
        kind = next_line(rules, scratch, element)
        element = scratch.following[element]
        if kind < 0:
            return -1
        if kind == NOTHING:
            continue
        row = tokens[line]
        if kind == ARITHMETIC:
            if extension.stmt_assign and below(random, rules.stmt_arithmetic) < extension.stmt_assign:
                _write_assignment(row, depth, declared[below(random, count)], extension, random)
            else:
                variable = declared[below(random, changing)]
                operation = rules.arithmetic[below(random, len(rules.arithmetic))]
                multiplies = operation == _MULTIPLY
                _write(row, depth, operation, variable)
                source = -1
                weights = extension.operand_number + extension.operand_variable
                if extension.operand_variable and below(random, weights) >= extension.operand_number:
                    source = _source(declared, count, multiplies, counters, loops, variable, extension, random)
                if source >= 0:
                    row[3] = variable_id(source)
                else:
                    bounds = extension.factors if multiplies else extension.operands
                    _write_number(row, _draw_number(random, bounds, extension.by_digits))
                scratch.arithmetic_lines[arithmetic] = line
                arithmetic += 1
        elif kind == IF:
            first = below(random, count)
            choice = below(random, len(rules.conditions))
            weights = extension.condition_number + extension.condition_variable
            second = first
            if count > 1 and extension.condition_variable and below(random, weights) >= extension.condition_number:
                second = (first + 1 + below(random, count - 1)) % count
            if second != first:
                _write(row, depth, extension.differences[choice], declared[first])
                row[3] = variable_id(declared[second])
            else:
                _write(row, depth, rules.conditions[choice], declared[first])
                _write_number(row, rules.condition_least + below(random, rules.condition_values))
        elif kind == COUNTER:
            chosen = loops + below(random, rules.counters - loops)
            counter = counters[chosen]
            counters[chosen] = counters[loops]
            counters[loops] = counter
            _write(row, depth, _ASSIGN, counter + shift)
            _write_number(row, rules.count_least + below(random, rules.count_values))
        elif kind == WHILE:
            _write(row, depth, _WHILE_GREATER, counter + shift)
            _write_number(row, 0)
        elif kind == DECREMENT:
            _write(row, depth, _SUBTRACT, counter + shift)
            _write_number(row, 1)
        else:
            row[:] = 0
            write_plain(tokens, line, depth, kind)
        line += 1
    return arithmetic


@njit(cache=True, nogil=True)
def draw_extended(rules, extension, scratch, declared, masks, tokens):  # type: ignore[no-untyped-def]
    """Draw a program of `len(tokens)` lines; see `sampler.draw_program`. `declared`: int64 [variable], scratch."""
    most = min(extension.variables, len(tokens) - 1)
    for _ in range(MAX_ATTEMPTS):
        count = 1 + below(scratch.random, most)
        # A shape has one line less than it is asked for: the first of the paper's programs.
        if not draw_shape(rules, scratch, len(tokens) - count + 1):
            continue
        arithmetic = _write_lines(rules, extension, scratch, declared, count, tokens)
        if arithmetic >= masks:
            choose_lines(scratch, masks, arithmetic)
            return True
    return False
