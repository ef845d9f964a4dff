"""A quick check that accepts nearly all programs of the paper's language; what it does not accept, `check.py` decides.

`check.find_problem` follows each program line by line, and most of its time goes to branches that cannot be foretold.
Here a line is one number of 64 bits and is held against the line before it. No test branches, so one instruction tests
several lines. Only open blocks are carried from line to line, in a second loop of six operations.

Three tests are stricter than the language: the first line of a program assigns v0; a variable other than v0 that a line
reads is also the variable of the line before it; blocks are at most 30 deep.
"""

from typing import Final

import numpy as np
from numba import njit

from ipagnn.languages.arithmetic import vocabulary as v
from ipagnn.languages.arithmetic._compiled.check import FULL, PARTIAL

CHUNK: Final = 512
"""Lines tested at a time; what is computed of them fits the first-level cache."""

_0, _1, _2, _16, _32, _48, _63 = (np.uint64(k) for k in (0, 1, 2, 16, 32, 48, 63))
_TOKEN, _SLOTS_BUT_LAST = np.uint64(2**16 - 1), np.uint64(2**48 - 1)
_FIRST_LINE = np.uint64(v.NUMBER | v.ASSIGN << 16 | v.VARIABLE << 32)  # v0 = any number
_MAX_LINES, _MAX_NUMBER, _DEEPEST = v.MAX_LINES, np.uint64(v.MAX_NUMBER), np.uint64(30)
_ADD, _ASSIGN, _ELSE, _MASK = np.uint64(v.ADD), np.uint64(v.ASSIGN), np.uint64(v.ELSE), np.uint64(v.MASK)
_PASS, _CONTINUE = np.uint64(v.PASS), np.uint64(v.CONTINUE)  # `break` is the id after `continue`
_V0, _LAST_VARIABLE = np.uint64(v.VARIABLE), np.uint64(v.VARIABLES - 1)
_IF = np.uint64(min(v.IF_OPERATIONS))  # two ids of `if` and two of `while` in turn
_LAST_CONDITION = np.uint64(max(v.WHILE_OPERATIONS) - min(v.IF_OPERATIONS))
_LOOP_DEPTHS = np.uint64(2**63 - 2**32)


@njit(cache=True, nogil=True)
def is_surely_fine(line_offsets, lines, task):  # type: ignore[no-untyped-def]
    """Whether all programs are of the paper's language, for sure.

    Args:
        line_offsets: int64 [program + 1]; rises from 0 to the number of lines.
        lines: uint64 [line]; the four tokens of a line, the first in the lowest bits.
        task: As in `find_problem`.

    Returns:
        True only if `find_problem` finds none; False says nothing.
    """
    count = len(lines)
    if count == 0:
        return True
    bad = np.uint64((lines[0] >> _48) - _1 > _MAX_NUMBER)  # the rest of line 0 is tested as that of all first lines
    for program in range(len(line_offsets) - 1):
        start, stop = line_offsets[program], line_offsets[program + 1]
        if start == stop:
            return False
        bad |= np.uint64((lines[start] & _SLOTS_BUT_LAST) != _FIRST_LINE) | np.uint64(stop - start > _MAX_LINES)
    if bad:
        return False
    keep, need, flip = np.empty(CHUNK, np.uint64), np.empty(CHUNK, np.uint64), np.empty(CHUNK, np.uint64)
    masks, blocks = _0, _0
    for first in range(1, count, CHUNK):
        size = min(CHUNK, count - first)
        these, those_before = lines[first : first + size], lines[first - 1 : first - 1 + size]
        for i in range(size):
            line, before = these[i], those_before[i]
            indent, indent_before = (line & _TOKEN) - _1, (before & _TOKEN) - _1
            operation, operation_before = (line >> _16) & _TOKEN, (before >> _16) & _TOKEN
            variable, variable_before = (line >> _32) & _TOKEN, (before >> _32) & _TOKEN
            operand = (line >> _48) - _1
            is_condition = (operation - _IF) <= _LAST_CONDITION
            is_while = is_condition & (((operation - _IF) & _2) != _0)
            is_if = is_condition & ~is_while
            is_else, is_mask = operation == _ELSE, operation == _MASK
            is_jump = (operation - _CONTINUE) <= _1
            has_operand = is_condition | ((operation - _ADD) <= (_ASSIGN - _ADD))
            is_bare = is_else | is_mask | is_jump | (operation == _PASS)
            opened = ((operation_before - _IF) <= _LAST_CONDITION) | (operation_before == _ELSE)
            fine = (operand <= _MAX_NUMBER) & (has_operand | (operand == _0))
            fine &= (has_operand & ((variable - _V0) <= _LAST_VARIABLE)) | (is_bare & (variable == operation))
            fine &= (operation == _ASSIGN) | (variable == _V0) | (variable == variable_before) | is_bare
            fine &= (opened & (indent == indent_before + _1)) | (~opened & (indent <= indent_before))
            fine &= indent <= _DEEPEST
            bad |= np.uint64(~fine)
            masks += np.uint64(is_mask)
            # By depth, a bit each: in the lower half whether the open block's latest statement is `if`, in the upper
            # half whether it is `while`.
            depth = _1 << (indent & _63)
            keep[i] = ((depth - _1) << _32) | (depth - _1) | (depth if is_else else _0)
            need[i] = (depth if is_else else _0) | (_1 << _63 if is_jump else _0)
            flip[i] = (depth if is_if | is_else else _0) | (depth << _32 if is_while else _0)
        for i in range(size):
            kept = blocks & keep[i]
            bad |= need[i] & ~(kept + _LOOP_DEPTHS)  # the sum reaches bit 63 if a loop is open
            blocks = kept ^ flip[i]
    operation = (lines[count - 1] >> _16) & _TOKEN
    opens = ((operation - _IF) <= _LAST_CONDITION) | (operation == _ELSE)
    if bad or opens or (task == FULL and masks > _0):
        return False
    return task != PARTIAL or _all_masked(line_offsets, lines)


@njit(cache=True, nogil=True)
def _all_masked(line_offsets, lines):  # type: ignore[no-untyped-def]
    """Whether each program has a masked line."""
    for program in range(len(line_offsets) - 1):
        found = False
        for i in range(line_offsets[program], line_offsets[program + 1]):
            found |= ((lines[i] >> _16) & _TOKEN) == _MASK
        if not found:
            return False
    return True
