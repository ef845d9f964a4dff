"""Compiled code that runs programs of the sampler's shape exactly, in bounded time.

Such a program counts its loops down by variables that nothing else touches, and its conditions look at v0 modulo a
divisor of the modulus. A loop's result is therefore a function of v0 modulo the modulus at its entry: each loop runs at
most once for each of these values, however deep the nesting, and is looked up from then on.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

from ipagnn.languages.arithmetic import vocabulary as v
from ipagnn.languages.arithmetic._compiled.statements import COMPARISON, apply, compare

_V0, _NUMBER, _WHILE, _SUBTRACT = v.VARIABLE, v.NUMBER, v.WHILE_GREATER, v.SUBTRACT
EXECUTE_SCRATCH = 3
"""Rows of int64 scratch, each `VARIABLES` long, that `execute` needs."""


def new_memo(longest: int, modulus: int) -> npt.NDArray[np.int64]:
    """The table of loop results, int64 [loop, v0 at entry], for programs of up to `longest` lines.

    An entry is `2**32 * generation + result` and holds for the program of that generation only, so that nothing has to
    be erased between programs. Every loop has three nodes of its own, so the node of its header // 3 is its number.
    """
    return np.zeros((longest // 3 + 1, modulus), np.int64)


@njit(cache=True, nogil=True)
def execute(tokens, node_lines, true, false, modulus, condition_modulus, memo, generation, scratch):  # type: ignore[no-untyped-def]
    """The value of a complete program of the sampler's shape: v0 modulo `modulus` at the end.

    Args:
        tokens: int [line, 4].
        node_lines: Line of each node, from `control_flow`.
        true: Successor of each node where its condition holds.
        false: Successor of each node where it does not.
        modulus: The value is taken modulo this.
        condition_modulus: Conditions take v0 modulo this; divides `modulus`.
        memo: From `new_memo`.
        generation: Positive, and another one for each program run with the same memo.
        scratch: int64 [EXECUTE_SCRATCH, VARIABLES].
    """
    counters, headers, entries = scratch[0], scratch[1], scratch[2]  # the latter two: a stack of the loops entered
    stamp = generation << 32
    value = np.int64(0)
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
                value = apply(operation, value, operand) % modulus
            elif not compare(comparison, value % condition_modulus, operand):
                following = false[node]
        elif operation == _SUBTRACT:
            counters[variable] = apply(operation, counters[variable], operand)
        elif operation == _WHILE:
            if counters[variable] <= operand:
                following = false[node]
        else:  # a counter is set: its loop comes next
            known = memo[following // 3, value]
            if known >> 32 == generation:
                value = known & 0xFFFFFFFF
                following = false[following]
            else:
                counters[variable] = operand
                headers[entered] = following
                entries[entered] = value
                entered += 1
        # A loop is left by whichever edge leads to where its header leads when it is done; a `break` that goes on to
        # the `break` of the loop around it leaves both at once.
        while entered > 0 and following == false[headers[entered - 1]]:
            entered -= 1
            memo[headers[entered] // 3, entries[entered]] = stamp + value
        node = following
