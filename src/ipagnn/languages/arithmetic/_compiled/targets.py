"""Compiled running of any complete program for a bounded number of steps; `targets.py` is its plain interface."""

import numpy as np
from numba import njit

from ipagnn.languages.arithmetic import vocabulary as v
from ipagnn.languages.arithmetic._compiled.blocks import GIVEN_UP, block_starts
from ipagnn.languages.arithmetic._compiled.graph import GRAPH_SCRATCH, control_flow
from ipagnn.languages.arithmetic._compiled.statements import COMPARISON, MODULAR, apply, apply_modulo, condition_holds

_LARGEST_EXACT = 2**40
_NUMBER, _VARIABLE, _VARIABLES = v.NUMBER, v.VARIABLE, v.VARIABLES


@njit(cache=True, nogil=True)
def walk_all(line_offsets, line_tokens, modulus, condition_modulus, block_limit, limit):  # type: ignore[no-untyped-def]
    """The target of each program that ends within `limit` steps with values below 2**40; -1 for the others.

    Args:
        line_offsets, line_tokens: Complete programs of the language.
        modulus, condition_modulus, block_limit: See `Grammar`.
        limit: Steps.

    Returns:
        int64 [program].
    """
    programs = len(line_offsets) - 1
    longest = 0
    for b in range(programs):
        longest = max(longest, line_offsets[b + 1] - line_offsets[b])
    graph = np.empty((3, longest + 1), np.int32)
    scratch = np.empty((GRAPH_SCRATCH, longest + 1), np.int32)
    node_lines, true, false = graph[0], graph[1], graph[2]
    starts = np.zeros(longest, np.bool_)
    values = np.empty(_VARIABLES, np.int64)
    exact = np.empty(_VARIABLES, np.bool_)
    targets = np.full(programs, -1, np.int64)
    for b in range(programs):
        tokens = line_tokens[line_offsets[b] : line_offsets[b + 1]]
        exit_node = control_flow(tokens, node_lines, true, false, scratch) - 1
        if block_limit:
            starts[:exit_node] = block_starts(tokens, node_lines, true, false)
        values[:] = 0
        exact[:] = False  # variables that no condition compares as they are can be kept modulo `modulus`
        for n in range(exit_node):
            operation = tokens[node_lines[n], 1]
            if COMPARISON[operation] >= 0 and not MODULAR[operation]:
                exact[tokens[node_lines[n], 2] - _VARIABLE] = True
        node = blocks = steps = 0
        while node != exit_node and steps < limit:
            steps += 1
            if block_limit and starts[node]:
                blocks += 1
                if blocks > block_limit:
                    break
            line = node_lines[node]
            operation = tokens[line, 1]
            variable = tokens[line, 2] - _VARIABLE
            operand = np.int64(tokens[line, 3]) - _NUMBER
            if COMPARISON[operation] >= 0:
                holds = condition_holds(operation, values[variable], operand, condition_modulus)
                node = true[node] if holds else false[node]
                continue
            if exact[variable]:
                values[variable] = apply(operation, values[variable], operand)
                if abs(values[variable]) > _LARGEST_EXACT:
                    break
            else:
                values[variable] = apply_modulo(operation, values[variable], operand, modulus)
            node = true[node]
        if node == exit_node:
            targets[b] = values[0] % modulus
        elif block_limit and blocks > block_limit:
            targets[b] = GIVEN_UP % modulus
    return targets
