"""Compiled filling of masked lines; `holes.py` is its plain interface."""

import numpy as np
from numba import njit

from ipagnn.languages.arithmetic._compiled.blocks import GIVEN_UP, block_starts, exceeds_blocks
from ipagnn.languages.arithmetic._compiled.execute import execute
from ipagnn.languages.arithmetic._compiled.graph import control_flow, static_steps
from ipagnn.languages.arithmetic._compiled.random import below, seed_stream
from ipagnn.languages.arithmetic.vocabulary import MASK, VARIABLE


@njit(cache=True, nogil=True)
def best_guesses(  # type: ignore[no-untyped-def]
    line_offsets, line_tokens, operations, operands, samples, seed, first, modulus, condition_modulus, block_limit,
    program, graph, graph_scratch, memory, guess, probability, fillings,
):  # fmt: skip
    """The likeliest result of every program over the fillings of its masked lines.

    All fillings give a program one and the same graph, so it is built once.

    Args:
        line_offsets, line_tokens: The programs, of the sampler's shape but for the masked lines.
        operations, operands: The statements that a masked line may be, as token ids.
        samples: Random fillings that a guess is made from, and as many others that it is tried on, where there are too
            many to try them all: more than two masked lines and more than `2 * samples` fillings.
        seed, first: Random fillings of program `i` come from stream `first + i` of this seed.
        block_limit: See `Grammar`.
        program: int16 scratch, as long as the longest program.
        graph, graph_scratch, memory: As in the sampler.
        guess: int64 out [program]; the smallest of several.
        probability: float64 out [program]; its share of all fillings, or of the second `samples` random ones.
        fillings: int64 out [program]; random fillings behind `probability`, 0 where all were tried.

    Returns:
        The first program without a masked line, or -1.
    """
    node_lines, true, false = graph[0], graph[1], graph[2]
    unlimited = np.empty(0, np.bool_)
    random = np.empty(2, np.uint64)
    for i in range(len(guess)):
        start, stop = line_offsets[i], line_offsets[i + 1]
        tokens = program[: stop - start]
        tokens[:] = line_tokens[start:stop]
        holes = np.flatnonzero(tokens[:, 1] == MASK)
        if len(holes) == 0:
            return i
        control_flow(tokens, node_lines, true, false, graph_scratch)
        limited = block_limit > 0 and static_steps(tokens, graph_scratch[0]) > block_limit
        starts = block_starts(tokens, node_lines, true, false) if limited else unlimited
        count = np.int64(1)
        for _ in range(len(holes)):
            if count <= 2 * samples or len(holes) <= 2:
                count *= len(operations)
        exact = len(holes) <= 2 or count <= 2 * samples
        if not exact:
            count = np.int64(2 * samples)
            seed_stream(random, seed, first + np.uint64(i))
        values = np.empty(count, np.int64)
        for f in range(count):
            rest = f  # the number of the filling, its digits are the statements
            for line in holes:
                if exact:
                    chosen = rest % len(operations)
                    rest //= len(operations)
                else:
                    chosen = below(random, len(operations))
                tokens[line, 1] = operations[chosen]
                tokens[line, 2] = VARIABLE
                tokens[line, 3] = operands[chosen]
            values[f] = execute(tokens, node_lines, true, false, modulus, condition_modulus, memory)
            if limited and exceeds_blocks(
                tokens, node_lines, true, false, starts, modulus, condition_modulus, block_limit
            ):
                values[f] = GIVEN_UP % modulus
        tried = count if exact else np.int64(samples)
        guess[i], hits = likeliest(values[:tried])
        if not exact:  # of the fillings that made it the guess, it would have more than its share
            hits = (values[tried:] == guess[i]).sum()
        probability[i] = hits / tried
        fillings[i] = 0 if exact else tried
    return -1


@njit(cache=True, nogil=True)
def likeliest(values):  # type: ignore[no-untyped-def]
    """The most frequent of `values`, the smallest of several; and how often it is there."""
    ordered = np.sort(values)
    best, most, begins = ordered[0], 0, 0
    for i in range(1, len(ordered) + 1):
        if i == len(ordered) or ordered[i] != ordered[begins]:
            if i - begins > most:
                best, most = ordered[begins], i - begins
            begins = i
    return best, most
