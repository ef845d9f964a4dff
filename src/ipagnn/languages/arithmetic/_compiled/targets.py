"""Compiled running of any complete program for a bounded number of steps; `targets.py` is its plain interface."""

import numpy as np
from numba import njit

from ipagnn.languages.arithmetic import vocabulary as v
from ipagnn.languages.arithmetic._compiled.blocks import GIVEN_UP, block_starts
from ipagnn.languages.arithmetic._compiled.graph import GRAPH_SCRATCH, control_flow
from ipagnn.languages.arithmetic._compiled.statements import (
    COMPARISON,
    apply,
    apply_modulo,
    condition_holds,
    operand_of,
    variable_of,
)
from ipagnn.languages.arithmetic._compiled.trace import compared

_LARGEST_EXACT = 2**40
_VARIABLES, _MULTIPLY = v.MAX_VARIABLES, v.MULTIPLY


@njit(cache=True, nogil=True)
def walk_all(  # type: ignore[no-untyped-def]
    line_offsets, line_tokens, modulus, condition_modulus, block_limit, limit, wrap=False, asked=0
):
    """The target of each program that ends within `limit` steps with values below 2**40; -1 for the others.

    Args:
        line_offsets, line_tokens: Complete programs of the language.
        modulus, condition_modulus, block_limit: See `Grammar`.
        limit: Steps.
        wrap, asked: `wrap` and `target_variable` of the grammar.

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
        if not wrap:
            compared(tokens, exact)
        node = blocks = steps = 0
        while node != exit_node and steps < limit:
            steps += 1
            if block_limit and starts[node]:
                blocks += 1
                if blocks > block_limit:
                    break
            line = node_lines[node]
            operation = tokens[line, 1]
            variable = variable_of(tokens[line, 2])
            operand = operand_of(tokens[line], values)
            if COMPARISON[operation] >= 0:
                holds = condition_holds(operation, values[variable], operand, condition_modulus)
                node = true[node] if holds else false[node]
                continue
            if exact[variable]:
                if operation == _MULTIPLY and abs(np.float64(values[variable]) * np.float64(operand)) > _LARGEST_EXACT:
                    break
                values[variable] = apply(operation, values[variable], operand)
                if abs(values[variable]) > _LARGEST_EXACT:
                    break
            else:
                values[variable] = apply_modulo(operation, values[variable], operand % modulus, modulus)
            node = true[node]
        if node == exit_node:
            targets[b] = values[asked] % modulus
        elif block_limit and blocks > block_limit:
            targets[b] = GIVEN_UP % modulus
    return targets
