"""Compiled checking of token ids; `checks.py` is its plain interface.

All other compiled code trusts its input: it takes indices from tokens and does not test them. This is the one function
that does.
"""

from typing import Any

import numpy as np
from numba import njit

from ipagnn.languages.arithmetic import vocabulary as v

# Why a program is refused; `checks.REASONS` has the sentences. Of several reasons in one line, the first is reported.
(
    BAD_INDENT,
    NO_BODY,
    UNEXPECTED_INDENT,
    BAD_OPERATION,
    BAD_VARIABLE,
    BAD_OPERAND,
    LONE_ELSE,
    OUTSIDE_LOOP,
    UNASSIGNED,
    EMPTY,
    TOO_LONG,
    NO_RESULT,
    NOT_MASKED,
    MASKED,
    FINE,
) = range(15)

ANY_TASK, FULL, PARTIAL = range(3)

_IS_STATEMENT, _HAS_OPERAND, _ASSIGNS, _IS_IF, _IS_WHILE, _IS_ELSE, _IS_JUMP, _IS_MASK = (1 << k for k in range(8))
_WHILE_BIT = 4
_OPENS = _IS_IF | _IS_WHILE | _IS_ELSE


def _kinds() -> np.ndarray[Any, np.dtype[np.uint8]]:
    """By token, whatever it is: what a statement with this operation has and does, as bits."""
    kinds = np.zeros(2**16, np.uint8)
    kinds[[*v.ASSIGNMENT_IDS, *v.IF_OPERATIONS, *v.WHILE_OPERATIONS]] = _HAS_OPERAND
    kinds[v.ASSIGN] |= _ASSIGNS
    kinds[list(v.IF_OPERATIONS)] |= _IS_IF
    kinds[list(v.WHILE_OPERATIONS)] |= _IS_WHILE
    kinds[v.ELSE] |= _IS_ELSE
    kinds[[v.BREAK, v.CONTINUE]] |= _IS_JUMP
    kinds[v.MASK] |= _IS_MASK
    kinds[[*np.flatnonzero(kinds), v.PASS]] |= _IS_STATEMENT
    return kinds


_KINDS = _kinds()
_MAX_LINES, _NUMBER, _MAX_NUMBER, _VARIABLE, _VARIABLES = v.MAX_LINES, v.NUMBER, v.MAX_NUMBER, v.VARIABLE, v.VARIABLES
_NONE, _SLOTS = 255, 9


def _variables() -> np.ndarray[Any, np.dtype[np.uint8]]:
    """By token, whatever it is: the variable of any language that it is, or `_NONE`."""
    variables = np.full(2**16, _NONE, np.uint8)
    for k in range(v.MAX_VARIABLES):
        variables[v.variable_id(k)] = k
    return variables


_VARIABLE_OF = _variables()


@njit(cache=True, nogil=True)
def _is_padded(line_tokens, line, is_number):  # type: ignore[no-untyped-def]
    """Whether the slots behind the operand hold further parts of a number, if it is one, and then padding."""
    wrong, part = False, is_number
    for slot in range(4, line_tokens.shape[1]):
        token = np.int64(line_tokens[line, slot])
        there = token != 0
        wrong |= there & ((not part) | (np.uintp(token - _NUMBER) > _MAX_NUMBER) | (slot >= _SLOTS))
        part &= there
    return not wrong


@njit(cache=True, nogil=True)
def find_problem(line_offsets, line_tokens, task, extended=False):  # type: ignore[no-untyped-def]
    """The first program that the language does not have.

    Nothing but an error is decided by a branch where it can be helped: which statement comes next cannot be foretold,
    and a branch that was guessed wrong costs more than all tests of a line.

    Args:
        line_offsets: int64 [program + 1]; rises from 0 to the number of lines.
        line_tokens: int16 [line, token]; four tokens unless `extended`.
        task: `FULL` or `PARTIAL`: no program may be masked, or every one must be; `ANY_TASK` takes both.
        extended: Whether statements of any grammar are accepted, and programs that never assign v0.

    Returns:
        Index of the program, of its line, and the reason; (-1, -1, FINE) if there is no problem.
    """
    latest = np.zeros(_MAX_NUMBER + 2, np.uint8)  # by depth: the latest statement of the open block
    in_loop = np.zeros(_MAX_NUMBER + 2, np.uint8)  # by depth: whether a loop is around the open block
    for program in range(len(line_offsets) - 1):
        start, stop = line_offsets[program], line_offsets[program + 1]
        if start == stop:
            return program, 0, EMPTY
        if stop - start > _MAX_LINES:
            return program, _MAX_LINES, TOO_LONG
        least, most = np.int64(0), np.int64(0)  # indents that the next line may have
        assigned = np.int64(0)  # a bit for each variable
        masks = np.int64(0)
        latest[0] = 0
        for i in range(np.uintp(start), np.uintp(stop)):
            indent = np.int64(line_tokens[i, 0]) - _NUMBER
            operation = np.int64(line_tokens[i, 1])
            variable = np.int64(line_tokens[i, 2])
            operand = np.int64(line_tokens[i, 3]) - _NUMBER
            if np.uintp(indent - least) > np.uintp(most - least):  # one comparison for both ends
                outside = indent < 0 or indent > _MAX_NUMBER
                return (
                    program,
                    np.int64(i) - start,
                    BAD_INDENT if outside else NO_BODY if indent < least else UNEXPECTED_INDENT,
                )
            kind = _KINDS[np.uintp(operation & 0xFFFF)]
            if extended and kind & _HAS_OPERAND:
                variable = np.int64(_VARIABLE_OF[np.uintp(variable & 0xFFFF)])
                if variable == _NONE:
                    return program, np.int64(i) - start, BAD_VARIABLE
                is_number = np.uintp(operand) <= _MAX_NUMBER
                source = np.int64(_VARIABLE_OF[np.uintp((operand + _NUMBER) & 0xFFFF)])
                if not (is_number or source != _NONE) or not _is_padded(line_tokens, i, is_number):
                    return program, np.int64(i) - start, BAD_OPERAND
                if not is_number and not assigned >> source & 1:
                    return program, np.int64(i) - start, UNASSIGNED
                assigned |= np.int64((kind & _ASSIGNS) != 0) << variable
                if not assigned >> variable & 1:
                    return program, np.int64(i) - start, UNASSIGNED
            elif kind & _HAS_OPERAND:
                variable -= _VARIABLE
                if np.uintp(variable) >= _VARIABLES:
                    return program, np.int64(i) - start, BAD_VARIABLE
                if np.uintp(operand) > _MAX_NUMBER:
                    return program, np.int64(i) - start, BAD_OPERAND
                assigned |= np.int64((kind & _ASSIGNS) != 0) << variable
                if not assigned >> variable & 1:
                    return program, np.int64(i) - start, UNASSIGNED
            elif kind == 0:
                return program, np.int64(i) - start, BAD_OPERATION
            elif variable != operation:
                return program, np.int64(i) - start, BAD_VARIABLE
            elif operand != 0 or (extended and line_tokens[i, 4:].any()):
                return program, np.int64(i) - start, BAD_OPERAND
            elif kind & _IS_ELSE and not latest[indent] & _IS_IF:
                return program, np.int64(i) - start, LONE_ELSE
            elif kind & _IS_JUMP and not in_loop[indent]:
                return program, np.int64(i) - start, OUTSIDE_LOOP
            elif kind & _IS_MASK:
                masks += 1
            level = np.uintp(indent)
            latest[level] = kind
            latest[level + np.uintp(1)] = 0
            in_loop[level + np.uintp(1)] = in_loop[level] | ((kind & _IS_WHILE) >> _WHILE_BIT)
            opens = np.int64((kind & _OPENS) != 0)
            least, most = opens * (indent + 1), min(indent + opens, np.int64(_MAX_NUMBER))
        if least > 0:
            return program, stop - start - 1, NO_BODY
        if not (assigned if extended else assigned & 1):
            return program, stop - start - 1, NO_RESULT
        if task == PARTIAL and masks == 0:
            return program, 0, NOT_MASKED
        if task == FULL and masks > 0:
            return program, 0, MASKED
    return -1, -1, FINE
