"""Compiled code that draws programs from the grammar; `sampler.py` is its plain interface.

The refinement of holes (see `grammar.py`), with five tricks that leave its distribution as it is:

1. *Slack.* All that the choices need to know of the budget is the slack: the lines still to be had once every open hole
   takes its least number. A choice costs what it needs beyond its hole's least, and fits if the slack covers it; a
   finished program has the right length exactly if no slack is left.
2. *One draw finds a hole.* Open holes are listed by kind, and those of a kind weigh the same, so a number below the
   total weight names the kind and the hole in its list; the last one of the list takes its place.
3. *No slack, no order.* Without slack, what a hole becomes depends on the hole alone, so the order no longer matters
   and no hole need be drawn: the rest is settled while the lines are written out.
4. *Constants last.* Operators, constants and counters depend on nothing but the shape, so they are drawn for accepted
   shapes only.
5. *A stream of numbers per program* (`random.py`), so that a program is a function of the seed and its index,
   whatever thread, chunk or machine draws it.
"""

import numpy as np
from numba import njit

from ipagnn.languages.arithmetic import vocabulary as v
from ipagnn.languages.arithmetic._compiled.random import below, seed_stream

MAX_ATTEMPTS = 100_000
"""Shapes drawn for one program before its length is taken to be out of the grammar's reach."""


# What an element of the list is: a hole (these four also number the lists of holes), a line, or gone.
_STMT, _BLOCK, _STMTS, _STMTS_NONEMPTY = 0, 1, 2, 3
_PASS, ARITHMETIC, COUNTER, WHILE, DECREMENT, IF, _ELSE, _BREAK, _CONTINUE, NOTHING = range(4, 14)

_V0, _NUMBER = v.VARIABLE, v.NUMBER
_OP_ASSIGN, _OP_WHILE, _OP_SUBTRACT = v.ASSIGN, v.WHILE_GREATER, v.SUBTRACT
_MASK, _PADDING = v.MASK, v.PADDING
_OP_PASS, _OP_ELSE, _OP_BREAK, _OP_CONTINUE = v.PASS, v.ELSE, v.BREAK, v.CONTINUE


@njit(cache=True, nogil=True)
def draw_length(random, lengths, totals):  # type: ignore[no-untyped-def]
    """The length of a program: the first number of its stream. `totals` are the running sums of the weights."""
    drawn = below(random, totals[-1])
    choice = 0
    while drawn >= totals[choice]:
        choice += 1
    return lengths[choice]


@njit(cache=True, nogil=True)
def draw_lengths(seed, start, lengths, totals, random, out):  # type: ignore[no-untyped-def]
    """The lengths of the programs from `start` on, into `out`."""
    for i in range(len(out)):
        seed_stream(random, seed, start + np.uint64(i))
        out[i] = draw_length(random, lengths, totals)


@njit(cache=True, nogil=True)
def draw_shape(rules, scratch, length):  # type: ignore[no-untyped-def]
    """Refine holes until no slack is left. Returns whether the shape has, or is bound to have, `length` lines."""
    random, holes = scratch.random, scratch.holes
    kind, depth, loops, following = scratch.kind, scratch.depth, scratch.loops, scratch.following
    kind[0], depth[0], loops[0], following[0] = _STMTS_NONEMPTY, 0, 0, -1
    holes[_STMTS_NONEMPTY, 0] = 0
    elements = 1
    stmt, block, stmts, nonempty = 0, 0, 0, 1  # the number of open holes of each kind
    slack = length - 2
    while slack > 0:
        until_stmt = rules.hole_stmt * stmt
        until_nonempty = until_stmt + rules.hole_stmts_nonempty * nonempty
        until_block = until_nonempty + rules.hole_block * block
        total = until_block + rules.hole_stmts * stmts
        if total == 0:
            return False  # no hole is left, but lines are
        drawn = below(random, total)
        if drawn < until_stmt:
            place = drawn // rules.hole_stmt
            hole = holes[_STMT, place]
            stmt -= 1
            holes[_STMT, place] = holes[_STMT, stmt]
            until_arithmetic = rules.stmt_pass + rules.stmt_arithmetic
            until_if = until_arithmetic + rules.stmt_if
            until_if_else, until_repeat = until_if, until_if
            if slack >= 3:
                until_if_else += rules.stmt_if_else
                until_repeat = until_if_else
                if loops[hole] < rules.counters:
                    until_repeat += rules.stmt_repeat
            drawn = below(random, until_repeat)
            if drawn < until_arithmetic:
                kind[hole] = ARITHMETIC if drawn >= rules.stmt_pass else _PASS
                continue
            indent, around, onward = depth[hole], loops[hole], following[hole]
            if drawn < until_if_else:
                kind[hole] = IF
                kind[elements], depth[elements], loops[elements] = _BLOCK, indent + 1, around
                following[hole] = elements
                holes[_BLOCK, block] = elements
                block += 1
                elements += 1
                slack -= 1
                if drawn >= until_if:
                    kind[elements], depth[elements], loops[elements] = _ELSE, indent, around
                    following[elements - 1] = elements
                    elements += 1
                    kind[elements], depth[elements], loops[elements] = _BLOCK, indent + 1, around
                    following[elements - 1] = elements
                    holes[_BLOCK, block] = elements
                    block += 1
                    elements += 1
                    slack -= 2
            else:
                kind[hole] = COUNTER
                following[hole] = elements
                kind[elements], depth[elements], loops[elements] = WHILE, indent, around
                following[elements] = elements + 1
                elements += 1
                kind[elements], depth[elements], loops[elements] = DECREMENT, indent + 1, around
                following[elements] = elements + 1
                elements += 1
                kind[elements], depth[elements], loops[elements] = _BLOCK, indent + 1, around + 1
                holes[_BLOCK, block] = elements
                block += 1
                elements += 1
                slack -= 3
            following[elements - 1] = onward
        elif drawn < until_nonempty:
            place = (drawn - until_stmt) // rules.hole_stmts_nonempty
            hole = holes[_STMTS_NONEMPTY, place]
            nonempty -= 1
            holes[_STMTS_NONEMPTY, place] = holes[_STMTS_NONEMPTY, nonempty]
            kind[hole] = _STMT
            holes[_STMT, stmt] = hole
            stmt += 1
            kind[elements], depth[elements], loops[elements] = _STMTS, depth[hole], loops[hole]
            following[elements] = following[hole]
            following[hole] = elements
            holes[_STMTS, stmts] = elements
            stmts += 1
            elements += 1
        elif drawn < until_block:
            place = (drawn - until_nonempty) // rules.hole_block
            hole = holes[_BLOCK, place]
            block -= 1
            holes[_BLOCK, place] = holes[_BLOCK, block]
            until_continue = rules.block_break + rules.block_continue if loops[hole] > 0 else 0
            choices = until_continue + rules.block_plain
            if choices == 0:
                return False
            drawn = below(random, choices)
            if drawn >= until_continue:
                kind[hole] = _STMTS_NONEMPTY
                holes[_STMTS_NONEMPTY, nonempty] = hole
                nonempty += 1
            else:
                kind[hole] = _STMTS
                holes[_STMTS, stmts] = hole
                stmts += 1
                kind[elements] = _BREAK if drawn < rules.block_break else _CONTINUE
                depth[elements] = depth[hole]
                following[elements] = following[hole]
                following[hole] = elements
                elements += 1
        else:
            place = (drawn - until_block) // rules.hole_stmts
            hole = holes[_STMTS, place]
            stmts -= 1
            holes[_STMTS, place] = holes[_STMTS, stmts]
            until_one = rules.stmts_nonempty + rules.stmts_stmt
            choices = until_one + rules.stmts_nothing
            if choices == 0:
                return False
            drawn = below(random, choices)
            if drawn < rules.stmts_nonempty:
                kind[hole] = _STMTS_NONEMPTY
                holes[_STMTS_NONEMPTY, nonempty] = hole
                nonempty += 1
                slack -= 1
            elif drawn < until_one:
                kind[hole] = _STMT
                holes[_STMT, stmt] = hole
                stmt += 1
                slack -= 1
            else:
                kind[hole] = NOTHING
    # From here on every STMTS becomes nothing; what is open still makes new ones, all of them empty.
    return rules.stmts_nothing > 0 or stmts + block + nonempty == 0


@njit(cache=True, nogil=True)
def next_line(rules, scratch, element):  # type: ignore[no-untyped-def]
    """What line an element of the list is, once the hole that it may be is settled.

    Returns:
        The kind of the line; NOTHING for none, -1 if the hole cannot be filled.
    """
    random, kind = scratch.random, scratch.kind[element]
    if kind in (NOTHING, _STMTS):
        return NOTHING
    if kind == _BLOCK:
        until_continue = rules.block_break + rules.block_continue if scratch.loops[element] > 0 else 0
        if until_continue + rules.block_plain == 0:
            return -1
        drawn = below(random, until_continue + rules.block_plain)
        kind = _STMT if drawn >= until_continue else (_BREAK if drawn < rules.block_break else _CONTINUE)
    if kind in (_STMT, _STMTS_NONEMPTY):
        drawn = below(random, rules.stmt_pass + rules.stmt_arithmetic)
        kind = ARITHMETIC if drawn >= rules.stmt_pass else _PASS
    return kind


@njit(cache=True, nogil=True)
def write_plain(tokens, line, depth, kind):  # type: ignore[no-untyped-def]
    """A line without variable and operand."""
    if kind == _ELSE:
        operation = _OP_ELSE
    elif kind == _BREAK:
        operation = _OP_BREAK
    elif kind == _CONTINUE:
        operation = _OP_CONTINUE
    else:
        operation = _OP_PASS
    _write_line(tokens, line, depth, operation, operation, 0)


@njit(cache=True, nogil=True)
def _write_line(tokens, line, depth, operation, variable, operand):  # type: ignore[no-untyped-def]
    # A view of the row would be counted by numba at every line, which costs a seventh of the rate of the sampler.
    tokens[line, 0] = _NUMBER + depth
    tokens[line, 1] = operation
    tokens[line, 2] = variable
    tokens[line, 3] = _NUMBER + operand


@njit(cache=True, nogil=True)
def _write_lines(rules, scratch, tokens):  # type: ignore[no-untyped-def]
    """Walk the list, settle the holes left in it, draw the constants and write the tokens.

    Returns:
        The number of arithmetic lines, or -1 if a hole cannot be filled.
    """
    random, counters, arithmetic_lines = scratch.random, scratch.counters, scratch.arithmetic_lines
    for k in range(rules.counters):
        counters[k] = k + 1
    _write_line(tokens, 0, 0, _OP_ASSIGN, _V0, rules.initial_least + below(random, rules.initial_values))
    line, arithmetic, counter = 1, 0, 0
    element = 0
    while element >= 0:
        kind, depth, loops = scratch.kind[element], scratch.depth[element], scratch.loops[element]
        element = scratch.following[element]
        # What `next_line` does, spelled out: called for every line it would halve the rate of the sampler.
        if kind in (NOTHING, _STMTS):
            continue
        if kind == _BLOCK:
            until_continue = rules.block_break + rules.block_continue if loops > 0 else 0
            if until_continue + rules.block_plain == 0:
                return -1
            drawn = below(random, until_continue + rules.block_plain)
            kind = _STMT if drawn >= until_continue else (_BREAK if drawn < rules.block_break else _CONTINUE)
        if kind in (_STMT, _STMTS_NONEMPTY):
            drawn = below(random, rules.stmt_pass + rules.stmt_arithmetic)
            kind = ARITHMETIC if drawn >= rules.stmt_pass else _PASS
        if kind == ARITHMETIC:
            operation = rules.arithmetic[below(random, len(rules.arithmetic))]
            _write_line(tokens, line, depth, operation, _V0, rules.operand_least + below(random, rules.operand_values))
            arithmetic_lines[arithmetic] = line
            arithmetic += 1
        elif kind == IF:
            operation = rules.conditions[below(random, len(rules.conditions))]
            _write_line(
                tokens, line, depth, operation, _V0, rules.condition_least + below(random, rules.condition_values)
            )
        elif kind == COUNTER:
            # The counters of the enclosing loops stand first in the list; any of the rest may be swapped to be next.
            chosen = loops + below(random, rules.counters - loops)
            counter = counters[chosen]
            counters[chosen] = counters[loops]
            counters[loops] = counter
            _write_line(
                tokens, line, depth, _OP_ASSIGN, _V0 + counter, rules.count_least + below(random, rules.count_values)
            )
        elif kind == WHILE:  # follows its COUNTER directly, and is followed by its DECREMENT
            _write_line(tokens, line, depth, _OP_WHILE, _V0 + counter, 0)
        elif kind == DECREMENT:
            _write_line(tokens, line, depth, _OP_SUBTRACT, _V0 + counter, 1)
        else:
            write_plain(tokens, line, depth, kind)
        line += 1
    return arithmetic


@njit(cache=True, nogil=True)
def draw_program(rules, scratch, masks, tokens):  # type: ignore[no-untyped-def]
    """Draw a program of `len(tokens)` lines from the stream in `scratch.random`.

    Args:
        rules: The grammar.
        scratch: The working memory.
        masks: How many lines are to be masked; the first of `scratch.arithmetic_lines` say which.
        tokens: int16 [line, 4] out. Complete: masking comes after execution.

    Returns:
        Whether a program with enough lines to mask came out of `MAX_ATTEMPTS` attempts.
    """
    for _ in range(MAX_ATTEMPTS):
        if not draw_shape(rules, scratch, len(tokens)):
            continue
        arithmetic = _write_lines(rules, scratch, tokens)
        if arithmetic < masks:
            continue
        choose_lines(scratch, masks, arithmetic)
        return True
    return False


@njit(cache=True, nogil=True)
def choose_lines(scratch, masks, arithmetic):  # type: ignore[no-untyped-def]
    """Choose the lines to mask among the `arithmetic` ones; they come first in `scratch.arithmetic_lines` then."""
    lines = scratch.arithmetic_lines
    for k in range(masks):
        chosen = k + below(scratch.random, arithmetic - k)
        lines[k], lines[chosen] = lines[chosen], lines[k]


@njit(cache=True, nogil=True)
def mask_lines(tokens, lines, hidden):  # type: ignore[no-untyped-def]
    """Mask `lines` of a program and keep what they said in `hidden`."""
    for k in range(len(lines)):
        for slot in range(hidden.shape[1]):
            hidden[k, slot] = tokens[lines[k], slot + 1]
            tokens[lines[k], slot + 1] = _PADDING
        tokens[lines[k], 1] = _MASK
        tokens[lines[k], 2] = _MASK
        tokens[lines[k], 3] = _NUMBER


@njit(cache=True, nogil=True)
def complete_lines(tokens, lines, hidden):  # type: ignore[no-untyped-def]
    """Undo `mask_lines`."""
    for k in range(len(lines)):
        for slot in range(hidden.shape[1]):
            tokens[lines[k], slot + 1] = hidden[k, slot]
