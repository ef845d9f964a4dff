"""Compiled code that walks programs of languages past the paper's, statement by statement."""

from numba import njit

from ipagnn.languages.arithmetic._compiled.graph import control_flow
from ipagnn.languages.arithmetic._compiled.statements import (
    COMPARISON,
    apply,
    apply_modulo,
    condition_holds,
    operand_of,
    variable_of,
)


@njit(cache=True, nogil=True)
def walk(tokens, node_lines, true, false, modulus, condition_modulus, reduced, limit, values):  # type: ignore[no-untyped-def]
    """Run a complete program of the sampler's shape, of any grammar.

    Args:
        tokens: int [line, token].
        node_lines, true, false: From `control_flow`.
        modulus, condition_modulus: Of the grammar.
        reduced: Variables below this one are kept modulo `modulus`; the others are counters, which count loops down
            from numbers below 1,000 and are never operands of a product.
        limit: Statements after which the program is given up.
        values: int64 [MAX_VARIABLES] out; the values of all variables at the end.

    Returns:
        How many statements were executed; -1 if the program was given up.
    """
    values[:] = 0
    executed = 0
    node = 0
    while True:
        line = node_lines[node]
        if line == len(tokens):
            return executed
        if executed == limit:
            return -1
        executed += 1
        operation = tokens[line, 1]
        operand = operand_of(tokens[line], values)
        variable = variable_of(tokens[line, 2])
        node_after = true[node]
        if COMPARISON[operation] >= 0:
            if not condition_holds(operation, values[variable], operand, condition_modulus):
                node_after = false[node]
        elif variable < reduced:
            values[variable] = apply_modulo(operation, values[variable], operand, modulus)
        else:
            values[variable] = apply(operation, values[variable], operand)
        node = node_after


@njit(cache=True, nogil=True)
def finish_all(  # type: ignore[no-untyped-def]
    line_offsets, line_tokens, modulus, condition_modulus, reduced, limit, graph, graph_scratch, values
):
    """The values of all variables at the end of many programs, into `values`, int64 [program, MAX_VARIABLES].

    Args:
        line_offsets, line_tokens: The programs; `line_offsets[0]` need not be 0.
        modulus, condition_modulus, reduced, limit: As in `walk`.
        graph: int32 scratch [3, line + 1], by the longest program.
        graph_scratch: As in `control_flow`.

    Returns:
        The first program that was given up, or -1.
    """
    node_lines, true, false = graph[0], graph[1], graph[2]
    for i in range(len(values)):
        tokens = line_tokens[line_offsets[i] : line_offsets[i + 1]]
        control_flow(tokens, node_lines, true, false, graph_scratch)
        if walk(tokens, node_lines, true, false, modulus, condition_modulus, reduced, limit, values[i]) < 0:
            return i
    return -1
