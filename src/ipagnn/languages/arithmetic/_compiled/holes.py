"""Compiled filling of holes; `ceiling.py` is its plain interface."""

import numpy as np
from numba import njit

from ipagnn.languages.arithmetic._compiled.blocks import GIVEN_UP, block_starts, exceeds_blocks
from ipagnn.languages.arithmetic._compiled.execute import execute
from ipagnn.languages.arithmetic._compiled.graph import control_flow, static_steps
from ipagnn.languages.arithmetic.vocabulary import MASK, VARIABLE


@njit(cache=True, nogil=True)
def fill_holes(  # type: ignore[no-untyped-def]
    line_offsets,
    line_tokens,
    operations,
    operands,
    modulus,
    condition_modulus,
    block_limit,
    program,
    graph,
    graph_scratch,
    memo,
    execution,
    values,
):
    """The value of every program under every statement in its hole.

    All statements give a program one and the same graph, so it is built once.

    Args:
        line_offsets, line_tokens: The programs, of the sampler's shape but for one masked line.
        operations, operands: The statements, as token ids.
        block_limit: See `Grammar`.
        program: int16 scratch, as long as the longest program.
        graph, graph_scratch, memo, execution: As in the sampler.
        values: int32 out [program, statement].

    Returns:
        The first program that has not exactly one masked line, or -1.
    """
    node_lines, true, false = graph[0], graph[1], graph[2]
    generation = 0
    unlimited = np.empty(0, np.bool_)
    for i in range(len(values)):
        start, stop = line_offsets[i], line_offsets[i + 1]
        tokens = program[: stop - start]
        hole = -1
        holes = 0
        for line in range(stop - start):
            for k in range(4):
                tokens[line, k] = line_tokens[start + line, k]
            if tokens[line, 1] == MASK:
                hole = line
                holes += 1
        if holes != 1:
            return i
        control_flow(tokens, node_lines, true, false, graph_scratch)
        tokens[hole, 2] = VARIABLE
        limited = block_limit > 0 and static_steps(tokens, graph_scratch[0]) > block_limit
        starts = block_starts(tokens, node_lines, true, false) if limited else unlimited
        for s in range(len(operations)):
            tokens[hole, 1] = operations[s]
            tokens[hole, 3] = operands[s]
            generation += 1
            values[i, s] = execute(
                tokens, node_lines, true, false, modulus, condition_modulus, memo, generation, execution
            )
            if limited and exceeds_blocks(
                tokens, node_lines, true, false, starts, modulus, condition_modulus, block_limit
            ):
                values[i, s] = GIVEN_UP % modulus
    return -1


@njit(cache=True, nogil=True)
def likeliest(values, modulus, guess, count):  # type: ignore[no-untyped-def]
    """The value that most statements give, the smallest of several; and how many give it. Both are int32 out."""
    seen = np.zeros(modulus, np.int32)
    for i in range(len(values)):
        for value in values[i]:
            seen[value] += 1
        best = values[i, 0]
        for value in values[i]:
            if seen[value] > seen[best] or (seen[value] == seen[best] and value < best):
                best = value
        guess[i] = best
        count[i] = seen[best]
        for value in values[i]:
            seen[value] = 0
