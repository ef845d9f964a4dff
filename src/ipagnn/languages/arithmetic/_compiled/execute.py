"""Compiled code that runs programs of the sampler's shape exactly, in bounded time, for any modulus up to 10**18.

Such a program counts its loops down by variables that nothing else touches, and its conditions look at v0 modulo a
divisor of the modulus. So two things follow from v0 modulo that divisor (10 in the paper) at the entry of a loop: which
statements the loop executes, and, since each of these adds a constant or multiplies by one, numbers a and b such that
it makes a * v0 + b of v0. Each loop runs at most once for each of these few remainders, however deep the nesting and
however large the modulus, and a and b are looked up from then on.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from ipagnn.languages.arithmetic import vocabulary as v
from ipagnn.languages.arithmetic._compiled.graph import control_flow
from ipagnn.languages.arithmetic._compiled.statements import COMPARISON, apply_modulo, compare, multiply_modulo

_V0, _NUMBER, _WHILE, _SUBTRACT, _MULTIPLY = v.VARIABLE, v.NUMBER, v.WHILE_GREATER, v.SUBTRACT, v.MULTIPLY
_ASSIGN = v.ASSIGN


class Memory(NamedTuple):
    """Working memory of `execute`, for one thread.

    Every loop has three nodes of its own, so the node of its header // 3 is its number.

    Attributes:
        generation: int64 [1]; how many programs have been run with it.
        stamps: int64 [loop, remainder]; the generation that the entry of `factors` and `terms` belongs to, so that
            nothing has to be erased between programs.
        factors, terms: int64 [loop, remainder]; a and b of the loop for v0 of this remainder at its entry.
        counters: int64 [variable]; values of the counters.
        headers, remainders: int64 [depth]; a stack of the loops entered: node of the header, and remainder at entry.
        outer: int64 [depth, 2]; what was done to v0 since the loop around was entered, until this one was.
    """

    generation: npt.NDArray[np.int64]
    stamps: npt.NDArray[np.int64]
    factors: npt.NDArray[np.int64]
    terms: npt.NDArray[np.int64]
    counters: npt.NDArray[np.int64]
    headers: npt.NDArray[np.int64]
    remainders: npt.NDArray[np.int64]
    outer: npt.NDArray[np.int64]


def new_memory(longest: int, condition_modulus: int) -> Memory:
    """Working memory for programs of up to `longest` lines."""
    loops = longest // 3 + 1

    def table(*shape: int) -> npt.NDArray[np.int64]:
        return np.zeros(shape, np.int64)

    stamps, factors, terms = (table(loops, condition_modulus) for _ in range(3))
    counters, headers, remainders = (table(v.VARIABLES) for _ in range(3))
    return Memory(table(1), stamps, factors, terms, counters, headers, remainders, table(v.VARIABLES, 2))


@njit(cache=True, nogil=True)
def execute(tokens, node_lines, true, false, modulus, condition_modulus, memory):  # type: ignore[no-untyped-def]
    """The value of a complete program of the sampler's shape: v0 modulo `modulus` at the end.

    Args:
        tokens: int [line, 4].
        node_lines: Line of each node, from `control_flow`.
        true: Successor of each node where its condition holds.
        false: Successor of each node where it does not.
        modulus: The value is taken modulo this, at most 10**18.
        condition_modulus: Conditions take v0 modulo this; divides `modulus`.
        memory: From `new_memory`.
    """
    stamps, factors, terms, counters = memory.stamps, memory.factors, memory.terms, memory.counters
    headers, remainders, outer = memory.headers, memory.remainders, memory.outer
    memory.generation[0] += 1
    generation = memory.generation[0]
    value = np.int64(0)
    # What was done to v0 since the innermost loop was entered: it became factor * v0 + term.
    factor, term = np.int64(1 % modulus), np.int64(0)
    entered = 0
    node = 0
    while True:
        line = node_lines[node]
        if line == len(tokens):
            return value
        operation = tokens[line, 1]
        operand = np.int64(tokens[line, 3]) - _NUMBER
        variable = tokens[line, 2] - _V0
        following = true[node]
        if variable == 0:
            comparison = COMPARISON[operation]
            if comparison < 0:
                value = apply_modulo(operation, value, operand, modulus)
                if entered > 0:
                    term = apply_modulo(operation, term, operand, modulus)
                    if operation == _MULTIPLY:
                        factor = apply_modulo(operation, factor, operand, modulus)
                    elif operation == _ASSIGN:
                        factor = np.int64(0)
            elif not compare(comparison, value % condition_modulus, operand):
                following = false[node]
        elif operation == _SUBTRACT:
            counters[variable] -= operand
        elif operation == _WHILE:
            if counters[variable] <= operand:
                following = false[node]
        else:  # a counter is set: its loop comes next
            loop, remainder = following // 3, value % condition_modulus
            if stamps[loop, remainder] == generation:
                a, b = factors[loop, remainder], terms[loop, remainder]
                value = (multiply_modulo(value, a, modulus) + b) % modulus
                if entered > 0:
                    factor = multiply_modulo(factor, a, modulus)
                    term = (multiply_modulo(term, a, modulus) + b) % modulus
                following = false[following]
            else:
                counters[variable] = operand
                headers[entered], remainders[entered] = following, remainder
                outer[entered, 0], outer[entered, 1] = factor, term
                factor, term = np.int64(1 % modulus), np.int64(0)
                entered += 1
        # A loop is left by whichever edge leads to where its header leads when it is done; a `break` that goes on to
        # the `break` of the loop around it leaves both at once.
        while entered > 0 and following == false[headers[entered - 1]]:
            entered -= 1
            loop, remainder = headers[entered] // 3, remainders[entered]
            stamps[loop, remainder], factors[loop, remainder], terms[loop, remainder] = generation, factor, term
            a, b = outer[entered, 0], outer[entered, 1]
            if entered > 0:
                term = (multiply_modulo(b, factor, modulus) + term) % modulus
                factor = multiply_modulo(a, factor, modulus)
        node = following


@njit(cache=True, nogil=True)
def execute_all(  # type: ignore[no-untyped-def]
    line_offsets, line_tokens, modulus, condition_modulus, graph, graph_scratch, memory, values
):
    """The values of many programs of the sampler's shape, into `values`, int64 [program].

    Args:
        line_offsets, line_tokens: The programs; `line_offsets[0]` need not be 0.
        modulus, condition_modulus, memory: As in `execute`.
        graph: int32 scratch [3, line + 1], by the longest program.
        graph_scratch: As in `control_flow`.
    """
    node_lines, true, false = graph[0], graph[1], graph[2]
    for i in range(len(values)):
        tokens = line_tokens[line_offsets[i] : line_offsets[i + 1]]
        control_flow(tokens, node_lines, true, false, graph_scratch)
        values[i] = execute(tokens, node_lines, true, false, modulus, condition_modulus, memory)
