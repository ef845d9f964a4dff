"""Compiled analysis of a program's loops: on which variables each depends, and which it changes.

`loops.find_loops` is the plain twin. Sets of variables are bit masks.
"""

import numpy as np
from numba import njit

from ipagnn.languages.arithmetic import vocabulary as v
from ipagnn.languages.arithmetic._compiled.statements import COMPARISON

HEAD, END, INPUTS, OUTPUTS, DEPTH = range(5)
"""What is known of a loop: its nodes are `HEAD` to `END - 1`; the variables that decide what it does from its head on;
those that it may change and that are read afterwards; and how many loops stand around it, itself included."""
LOOP_FIELDS = 5
_ASSIGN, _MASK, _VARIABLE = v.ASSIGN, v.MASK, v.VARIABLE
_WHILE = np.zeros(v.VOCABULARY_SIZE, np.bool_)
_WHILE[list(v.WHILE_OPERATIONS)] = True


@njit(cache=True, nogil=True)
def live_variables(tokens, node_lines, true, false, exit_node, live):  # type: ignore[no-untyped-def]
    """By node, the variables whose values on arrival can matter to a condition or to the final v0.

    A variable that is only counted and never looked at is not live. A masked line is arithmetic on v0.

    Args:
        tokens: int [line, 4].
        node_lines, true, false: From `control_flow`.
        exit_node: The last node.
        live: int32 out [node].
    """
    live[: exit_node + 1] = 0
    live[exit_node] = 1  # v0
    changed = True
    while changed:
        changed = False
        for node in range(exit_node - 1, -1, -1):
            line = node_lines[node]
            operation = tokens[line, 1]
            needed = live[true[node]] | live[false[node]]
            if operation == _ASSIGN:
                needed &= ~(1 << (tokens[line, 2] - _VARIABLE))
            elif COMPARISON[operation] >= 0:
                needed |= 1 << (tokens[line, 2] - _VARIABLE)
            if needed != live[node]:
                live[node] = needed
                changed = True


@njit(cache=True, nogil=True)
def find_loops(tokens, node_lines, true, false, exit_node, live, loops, scratch):  # type: ignore[no-untyped-def]
    """Write what is known of each loop, in the order of their heads.

    Args:
        tokens, node_lines, true, false, exit_node: As in `live_variables`.
        live: From `live_variables`.
        loops: int32 out [>= loops, LOOP_FIELDS].
        scratch: int32 [4, >= nodes].

    Returns:
        The number of loops.
    """
    number, indents, mentioned, written = scratch[0], scratch[1], scratch[2], scratch[3]
    count = 0
    opened = 0
    for node in range(exit_node + 1):
        indent = tokens[node_lines[node], 0] if node < exit_node else -1
        while opened > 0 and indent <= indents[opened - 1]:
            opened -= 1
            if opened > 0:
                mentioned[opened - 1] |= mentioned[opened]
                written[opened - 1] |= written[opened]
            loop = loops[number[opened]]
            loop[END] = node
            loop[INPUTS] = mentioned[opened] & live[loop[HEAD]]
            loop[OUTPUTS] = written[opened] & live[false[loop[HEAD]]]
        if node == exit_node:
            break
        operation = tokens[node_lines[node], 1]
        if _WHILE[operation]:
            loops[count, HEAD] = node
            loops[count, DEPTH] = opened + 1
            number[opened] = count
            indents[opened] = indent
            mentioned[opened] = written[opened] = 0
            opened += 1
            count += 1
        if opened > 0:
            bit = 1 if operation == _MASK else 1 << (tokens[node_lines[node], 2] - _VARIABLE)
            mentioned[opened - 1] |= bit
            if COMPARISON[operation] < 0:
                written[opened - 1] |= bit
    return count
