"""Compiled hashes of programs, which decide what is withheld from training.

A program is withheld if the hash of what a model sees of it begins with six zero bits. Nobody keeps a list: training,
on disk or in an endless stream, never draws a withheld program, and validation draws nothing else, whatever their
seeds.
"""

import numpy as np
from numba import njit

from ipagnn.languages.arithmetic._compiled.random import mix

WITHHELD_BITS = 6
"""One program in 2**6 is withheld from training."""

_U = np.uint64
_START, _STEP, _SHIFT = _U(0x243F6A8885A308D3), _U(0x9E3779B97F4A7C15), _U(64 - WITHHELD_BITS)
_16, _32, _48, _0 = _U(16), _U(32), _U(48), _U(0)


@njit(cache=True, nogil=True)
def program_hash(tokens):  # type: ignore[no-untyped-def]
    """A 64-bit hash of one program. `tokens`: int16 [line, token]; padding does not count."""
    state = _START
    for i in range(len(tokens)):
        line = _U(tokens[i, 0]) | _U(tokens[i, 1]) << _16 | _U(tokens[i, 2]) << _32 | _U(tokens[i, 3]) << _48
        state = mix((state ^ line) + _STEP)
        for slot in range(4, tokens.shape[1]):
            if tokens[i, slot]:
                state = mix((state ^ _U(tokens[i, slot])) + _STEP)
    return state


@njit(cache=True, nogil=True)
def is_withheld(hashed):  # type: ignore[no-untyped-def]
    """Whether the program of this hash is withheld from training."""
    return hashed >> _SHIFT == _0


@njit(cache=True, nogil=True)
def program_hashes(line_offsets, line_tokens):  # type: ignore[no-untyped-def]
    """The hash of every program of a table, uint64 [program]."""
    hashes = np.empty(len(line_offsets) - 1, np.uint64)
    for i in range(len(hashes)):
        hashes[i] = program_hash(line_tokens[line_offsets[i] : line_offsets[i + 1]])
    return hashes
