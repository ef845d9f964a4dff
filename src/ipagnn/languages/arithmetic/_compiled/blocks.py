"""Compiled code for basic blocks, in which the authors' pipeline measured how long a program runs.

Their blocks are those of python_graphs. It merges a block with the one it leads to, if that has no other predecessor,
going through a list of blocks from which it takes the merged ones as it goes. Taking one from before the place it has
come to makes it pass over the next, which then stays unmerged; of programs of 100 lines, one in a hundred has such a
block. For their labels (`Grammar.block_limit`) to come out exactly, the same is done here.
"""

import numpy as np
from numba import njit

from ipagnn.languages.arithmetic import vocabulary as v
from ipagnn.languages.arithmetic._compiled.statements import COMPARISON, apply, apply_modulo, condition_holds

_ELSE, _BREAK, _CONTINUE = v.ELSE, v.BREAK, v.CONTINUE
_NUMBER, _V0 = v.NUMBER, v.VARIABLE
GIVEN_UP = 1
"""The target of a program that runs beyond the limit."""
_WHILE = np.zeros(v.VOCABULARY_SIZE, np.bool_)
_WHILE[list(v.WHILE_OPERATIONS)] = True


@njit(cache=True, nogil=True)
def _block_places(tokens, node_lines, exit_node):  # type: ignore[no-untyped-def]
    """The place in python_graphs' list of the block that each node is written to: int32 [node].

    The list is in the order of creation, but that what follows a loop moves to its end when the loop is complete. An
    `if` makes the block after it and that of its body, an `else` that of its own, a `while` that of its condition and
    that of its body.
    """
    places = np.empty(exit_node, np.int32)
    current = np.zeros(len(tokens) + 1, np.int32)  # by depth: the block that the next line there is written to
    in_loop = np.zeros(len(tokens) + 1, np.bool_)  # by depth: whether the latest header there is a `while`
    made = 1
    deeper = 0
    node = 0
    for i in range(len(tokens)):
        depth = tokens[i, 0] - _NUMBER
        operation = tokens[i, 1]
        for closed in range(deeper - 1, depth - 1, -1):
            if in_loop[closed]:
                current[closed] = made
                made += 1
        deeper = depth
        condition = COMPARISON[operation] >= 0
        if condition:
            in_loop[depth] = _WHILE[operation]
            if in_loop[depth]:
                current[depth] = made
                made += 1
        if node_lines[node] == i:
            places[node] = current[depth]
            node += 1
        if operation in (_BREAK, _CONTINUE) or (condition and not in_loop[depth]):
            current[depth] = made
            made += 1
        if condition or operation == _ELSE:
            current[depth + 1] = made
            made += 1
    return places


@njit(cache=True, nogil=True)
def block_starts(tokens, node_lines, true, false):  # type: ignore[no-untyped-def]
    """Which nodes are the first of a basic block.

    Args:
        tokens: int [line, 4]; a masked line is as good as a complete one.
        node_lines, true, false: From `control_flow`.

    Returns:
        bool [node], the exit left out.
    """
    exit_node = 0
    while node_lines[exit_node] != len(tokens):
        exit_node += 1
    places = _block_places(tokens, node_lines, exit_node)
    starts = np.zeros(exit_node, np.bool_)
    last = np.empty(exit_node, np.int32)  # by first node
    order = np.empty(exit_node, np.int32)  # first nodes of the blocks, as they stand in the list
    predecessors = np.zeros(exit_node + 1, np.int32)
    count = 0
    first = 0
    for node in range(exit_node):
        if node == 0 or places[node] != places[node - 1]:
            first = node
            starts[node] = True
            at = count
            while at > 0 and places[order[at - 1]] > places[node]:
                order[at] = order[at - 1]
                at -= 1
            order[at] = node
            count += 1
        last[first] = node
    for k in range(count):
        end = last[order[k]]
        predecessors[true[end]] += 1
        if false[end] != true[end]:
            predecessors[false[end]] += 1
    k = 0
    while k < count:
        first = order[k]
        while True:
            end = last[first]
            following = true[end]
            if following != false[end] or following == exit_node or predecessors[following] != 1:
                break
            starts[following] = False
            last[first] = last[following]
            at = 0
            while order[at] != following:
                at += 1
            count -= 1
            for moved in range(at, count):
                order[moved] = order[moved + 1]
        k += 1  # also where a block before this one was taken out: one block is passed over
    return starts


@njit(cache=True, nogil=True)
def exceeds_blocks(tokens, node_lines, true, false, starts, modulus, condition_modulus, limit):  # type: ignore[no-untyped-def]
    """Whether a complete program of the sampler's shape executes more than `limit` basic blocks.

    Args:
        tokens, node_lines, true, false: As in `execute`.
        starts: From `block_starts`.
        modulus, condition_modulus: As in `execute`.
        limit: How many blocks may be executed, the empty one at the exit not counted.
    """
    values = np.zeros(v.VARIABLES, np.int64)
    blocks = 0
    node = 0
    while node < len(starts):
        if starts[node]:
            blocks += 1
            if blocks > limit:
                return True
        line = node_lines[node]
        operation = tokens[line, 1]
        operand = np.int64(tokens[line, 3]) - _NUMBER
        variable = tokens[line, 2] - _V0
        following = true[node]
        if COMPARISON[operation] >= 0:
            if not condition_holds(operation, values[variable], operand, condition_modulus):
                following = false[node]
        else:
            value = values[variable]
            values[variable] = (
                apply_modulo(operation, value, operand, modulus) if variable == 0 else apply(operation, value, operand)
            )  # the others are counters
        node = following
    return False
