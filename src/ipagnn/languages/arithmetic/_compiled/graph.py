"""Compiled code for control flow graphs and step counts; `cfg.py` is its plain interface.

Everything works on the token ids of one program's lines and writes into arrays of the caller, so that the sampler and
the batch builder can run it millions of times without an allocation.
"""

from typing import Any

import numpy as np
from numba import njit

from ipagnn.languages.arithmetic import vocabulary as v

EXIT = -2
"""Marks the end of the program where a line index is expected."""
MAX_STEPS = 2**31 - 1
"""Step counts stop growing here; deeper nestings would not fit any integer."""

_IF_FLAG, _WHILE_FLAG, _NODE_FLAG = 1, 2, 4


def _operation_flags() -> np.ndarray[Any, np.dtype[np.uint8]]:
    flags = np.full(v.VOCABULARY_SIZE, _NODE_FLAG, np.uint8)
    flags[list(v.WITHOUT_NODE)] = 0
    flags[list(v.IF_OPERATIONS)] |= _IF_FLAG
    flags[list(v.WHILE_OPERATIONS)] |= _WHILE_FLAG
    return flags


_FLAGS = _operation_flags()
_ELSE, _BREAK, _CONTINUE = v.ELSE, v.BREAK, v.CONTINUE
_NUMBER, _ASSIGN, _BASE = v.NUMBER, v.ASSIGN, v.BASE
GRAPH_SCRATCH = 6
"""Rows of int32 scratch, each one longer than the program, that `control_flow` needs."""


@njit(cache=True, nogil=True)
def control_flow(tokens, node_lines, true, false, scratch):  # type: ignore[no-untyped-def]
    """Build the graph of one program (docs/specification.md, section 2).

    Args:
        tokens: int [line, token].
        node_lines, true, false: int32 out, at least `lines + 1` long. Node indices are local to the program.
        scratch: int32 [GRAPH_SCRATCH, >= lines + 1].

    Returns:
        The number of nodes, the exit included; the exit is the last one.
    """
    lines = tokens.shape[0]
    sibling, loop, after, entry, at_depth, node_of = (
        scratch[0],
        scratch[1],
        scratch[2],
        scratch[3],
        scratch[4],
        scratch[5],
    )
    # Backwards: the next statement of the same block (an `else` counts as the next line of its `if` for now).
    deepest = -1
    for i in range(lines - 1, -1, -1):
        depth = tokens[i, 0] - _NUMBER
        for opened in range(deepest + 1, depth + 1):
            at_depth[opened] = EXIT  # read backwards, a block opens at its last line
        sibling[i] = at_depth[depth]
        at_depth[depth] = i
        deepest = depth
    # Forwards: the header each line stands under, its innermost loop, and where control goes after the statement.
    nodes = 0
    for i in range(lines):
        depth = tokens[i, 0] - _NUMBER
        operation = tokens[i, 1]
        up = at_depth[depth - 1] if depth > 0 else EXIT  # at_depth now holds the latest line at each depth
        at_depth[depth] = i
        loop[i] = EXIT
        if up != EXIT:
            loop[i] = up if _FLAGS[tokens[up, 1]] & _WHILE_FLAG else loop[up]
        following = sibling[i]
        if following != EXIT and tokens[following, 1] == _ELSE:
            if _FLAGS[operation] & _IF_FLAG:
                entry[following] = i  # remembered until the `else` is reached: the `if` it belongs to
            following = sibling[following]
        if operation == _ELSE:
            after[i] = after[entry[i]]
        elif following != EXIT:
            after[i] = following
        elif up == EXIT:
            after[i] = EXIT
        else:
            after[i] = up if _FLAGS[tokens[up, 1]] & _WHILE_FLAG else after[up]
        if _FLAGS[operation] & _NODE_FLAG:
            node_lines[nodes] = i
            node_of[i] = nodes
            nodes += 1
    exit_node = nodes
    # Backwards: the node at which control arriving at a line really ends up. Whatever a `pass`, `break` or `continue`
    # leads to is a later line or a loop's header, and both are settled by now.
    for i in range(lines - 1, -1, -1):
        operation = tokens[i, 1]
        if _FLAGS[operation] & _NODE_FLAG:
            entry[i] = node_of[i]
        elif operation == _CONTINUE:
            entry[i] = node_of[loop[i]]
        else:
            target = after[loop[i]] if operation == _BREAK else after[i]
            entry[i] = exit_node if target == EXIT else (node_of[target] if target <= i else entry[target])
    for n in range(nodes):
        i = node_lines[n]
        target = after[i]
        onward = exit_node if target == EXIT else (node_of[target] if target <= i else entry[target])
        true[n] = onward
        false[n] = onward
        if _FLAGS[tokens[i, 1]] & (_IF_FLAG | _WHILE_FLAG):
            true[n] = entry[i + 1]
            other = sibling[i]
            if _FLAGS[tokens[i, 1]] & _IF_FLAG and other != EXIT and tokens[other, 1] == _ELSE:
                false[n] = entry[other + 1]
    node_lines[exit_node] = lines
    true[exit_node] = exit_node
    false[exit_node] = exit_node
    return nodes + 1


@njit(cache=True, nogil=True)
def paper_steps(tokens, scratch):  # type: ignore[no-untyped-def]
    """T(x) of the paper (docs/specification.md, section 3), at most `MAX_STEPS`.

    `scratch`: int64, longer than the program.
    """
    total = np.int64(1)
    for i in range(tokens.shape[0]):
        depth = tokens[i, 0] - _NUMBER
        weight = np.int64(1) if depth == 0 else scratch[depth - 1]  # 2 ** (number of enclosing loops)
        total += weight
        if _FLAGS[tokens[i, 1]] & _WHILE_FLAG:
            weight = min(2 * weight, MAX_STEPS)
            total += weight
        scratch[depth] = weight
        total = min(total, np.int64(MAX_STEPS))
    return total


@njit(cache=True, nogil=True)
def static_steps(tokens, scratch):  # type: ignore[no-untyped-def]
    """An upper bound on the trace length read off the visible loop counts, at most `MAX_STEPS`.

    Every line counts as often as the loops around it can run it. A loop runs `R` times if the line before it assigns
    `R` to its variable, as the sampler's loops do; one whose count cannot be seen is taken to run twice, as in T(x).
    """
    total = np.int64(1)
    for i in range(tokens.shape[0]):
        depth = tokens[i, 0] - _NUMBER
        weight = np.int64(1) if depth == 0 else scratch[depth - 1]
        total += weight
        if _FLAGS[tokens[i, 1]] & _WHILE_FLAG:
            rounds = np.int64(2)
            if i > 0 and tokens[i - 1, 1] == _ASSIGN and tokens[i - 1, 2] == tokens[i, 2]:
                rounds = np.int64(tokens[i - 1, 3] - _NUMBER)
                if rounds >= _BASE:  # a variable
                    rounds = np.int64(2)
                elif tokens.shape[1] > 4 and tokens[i - 1, 4]:
                    rounds = np.int64(MAX_STEPS)
            weight = min(weight * rounds, MAX_STEPS)
            total += weight
        scratch[depth] = weight
        total = min(total, np.int64(MAX_STEPS))
    return total
