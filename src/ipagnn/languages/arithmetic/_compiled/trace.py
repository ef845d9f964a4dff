"""Compiled stepping through a program: the nodes of its true trace, for the models that follow it.

`interpreter.trace` is the readable twin that also returns values; a test compares the two.
"""

import numpy as np
from numba import njit

from ipagnn.languages.arithmetic import vocabulary as v
from ipagnn.languages.arithmetic._compiled.statements import (
    COMPARISON,
    MODULAR,
    apply,
    apply_modulo,
    condition_holds,
    operand_of,
    variable_of,
)

_LARGEST_EXACT = 2**40
_LOOPS = np.isin(np.arange(v.VOCABULARY_SIZE), list(v.WHILE_OPERATIONS))
_NUMBER, _VARIABLE, _VARIABLES, _MASK, _MULTIPLY = v.NUMBER, v.VARIABLE, v.MAX_VARIABLES, v.MASK, v.MULTIPLY


@njit(cache=True, nogil=True)
def compared(tokens, exact):  # type: ignore[no-untyped-def]
    """Mark the variables that a condition compares as they are, and those whose values flow into these."""
    changed = True
    while changed:
        changed = False
        for n in range(len(tokens)):
            operation, variable, source = tokens[n, 1], variable_of(tokens[n, 2]), tokens[n, 3]
            condition = COMPARISON[operation] >= 0
            if condition and not MODULAR[operation]:
                exact[variable] = True
            if source >= _VARIABLE and (condition or exact[variable]) and not exact[variable_of(source)]:
                exact[variable_of(source)] = True
                changed = True


@njit(cache=True, nogil=True)
def trace_nodes(node_tokens, true, false, first, modulus, condition_modulus, limit, wrap=False):  # type: ignore[no-untyped-def]
    """The nodes a program executes, the exit left out, at most `limit` of them.

    Variables that no condition compares as they are can be kept modulo `modulus`; the others are kept exactly.

    Args:
        node_tokens: int [node, token] of one program, its exit last.
        true, false: Successors, counted from `first`.
        modulus, condition_modulus: Of the grammar.
        limit: Most nodes.
        wrap: Whether assignments take their results modulo `modulus`.

    Returns:
        int32 nodes counted from `first`, and 0; or those seen so far and 1 for a masked line, 2 for too large a value.
    """
    exit_node = len(node_tokens) - 1
    exact = np.zeros(_VARIABLES, np.bool_)
    if not wrap:
        compared(node_tokens[:-1], exact)
    values = np.zeros(_VARIABLES, np.int64)
    nodes = np.empty(64, np.int32)
    count = 0
    n = 0
    while n != exit_node and count < limit:
        if count == len(nodes):
            grown = np.empty(2 * count, np.int32)
            grown[:count] = nodes
            nodes = grown
        nodes[count] = first + n
        count += 1
        operation = node_tokens[n, 1]
        if operation == _MASK:
            return nodes[:count], 1
        variable = variable_of(node_tokens[n, 2])
        operand = operand_of(node_tokens[n], values)
        if COMPARISON[operation] >= 0:
            holds = condition_holds(operation, values[variable], operand, condition_modulus)
            n = (true[n] if holds else false[n]) - first
            continue
        value = values[variable]
        if exact[variable]:
            if operation == _MULTIPLY and abs(np.float64(value) * np.float64(operand)) > _LARGEST_EXACT:
                return nodes[:count], 2
            value = apply(operation, value, operand)
            if abs(value) > _LARGEST_EXACT:
                return nodes[:count], 2
        else:
            value = apply_modulo(operation, value, operand % modulus, modulus)
        values[variable] = value
        n = true[n] - first
    return nodes[:count], 0


@njit(cache=True, nogil=True)
def loop_depths(node_tokens):  # type: ignore[no-untyped-def]
    """How many loops each node of a program stands in, a `while` in its own too. int64 [node]

    The nodes of a loop are those that follow it, until one stands as far left: what lies between without a node
    (`else`, `pass`, `break`, `continue`) ends no loop that the next node does not end as well.
    """
    depths = np.zeros(len(node_tokens), np.int64)
    opened = np.empty(len(node_tokens), np.int64)  # the indents of the loops around, outermost first
    count = 0
    for n in range(len(node_tokens) - 1):  # the exit stands in none
        indent = node_tokens[n, 0]
        while count and opened[count - 1] >= indent:
            count -= 1
        if _LOOPS[node_tokens[n, 1]]:
            opened[count] = indent
            count += 1
        depths[n] = count
    return depths


@njit(cache=True, nogil=True)
def trace_all(node_offsets, node_tokens, true, false, modulus, condition_modulus, limit, wrap=False):  # type: ignore[no-untyped-def]
    """The traces of all programs of a batch, one after the other; see `trace_nodes`.

    Returns:
        int64 offsets [program + 1], int32 nodes, and the first program that cannot be followed, with why: (-1, 0) if
        there is none.
    """
    programs = len(node_offsets) - 1
    offsets = np.zeros(programs + 1, np.int64)
    nodes = np.empty(32 * programs + 64, np.int32)
    for b in range(programs):
        first, end = node_offsets[b], node_offsets[b + 1]
        trace, problem = trace_nodes(
            node_tokens[first:end], true[first:end], false[first:end], first, modulus, condition_modulus, limit, wrap
        )
        if problem:
            return offsets, nodes[:0], b, problem
        start = offsets[b]
        offsets[b + 1] = start + len(trace)
        if offsets[b + 1] > len(nodes):
            grown = np.empty(2 * offsets[b + 1], np.int32)
            grown[:start] = nodes[:start]
            nodes = grown
        nodes[start : offsets[b + 1]] = trace
    return offsets, nodes[: offsets[programs]], -1, 0
