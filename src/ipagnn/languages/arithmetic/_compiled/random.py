"""Compiled random numbers: one stream for each (seed, index), exact integers only, the same on every machine."""

import numpy as np
from numba import njit

# Unsigned throughout: numba turns a sum of signed and unsigned integers into a float.
_U = np.uint64
_GOLDEN, _MIX_1, _MIX_2 = _U(0x9E3779B97F4A7C15), _U(0xBF58476D1CE4E5B9), _U(0x94D049BB133111EB)
_27, _30, _31, _32, _LOW_32 = _U(27), _U(30), _U(31), _U(32), _U(0xFFFFFFFF)
_17, _47, _49, _15, _21, _28, _36 = _U(17), _U(47), _U(49), _U(15), _U(21), _U(28), _U(36)


_PART = np.int64(2**30)
_PARTS = _PART * _PART


@njit(cache=True, nogil=True)
def mix(z):  # type: ignore[no-untyped-def]
    """The finaliser of splitmix64: a bijection in which every bit of the input touches every bit of the output."""
    z = (z ^ (z >> _30)) * _MIX_1
    z = (z ^ (z >> _27)) * _MIX_2
    return z ^ (z >> _31)


@njit(cache=True, nogil=True)
def seed_stream(random, seed, index):  # type: ignore[no-untyped-def]
    """Set the generator to the start of the stream of program `index`.

    For one seed the first word is a bijection of the index, so no two programs start alike.
    """
    random[0] = mix(mix(seed + _GOLDEN) + index * _GOLDEN)
    random[1] = mix(mix(seed ^ _GOLDEN) ^ mix(index + _MIX_1))


@njit(cache=True, nogil=True)
def below(random, bound):  # type: ignore[no-untyped-def]
    """A uniform integer in `0..bound - 1`, for `1 <= bound < 2**32`.

    The generator is xoroshiro128++. Lemire's method makes the number: the upper half of a 32 x 32 bit product, drawn
    again in the rare case that would favour some results; the division that finds this case is rarely needed either.
    """
    n = _U(bound)
    while True:
        a, b = random[0], random[1]
        total = a + b
        drawn = ((total << _17) | (total >> _47)) + a
        b ^= a
        random[0] = ((a << _49) | (a >> _15)) ^ b ^ (b << _21)
        random[1] = (b << _28) | (b >> _36)
        product = (drawn >> _32) * n
        low = product & _LOW_32
        if low >= n or low >= ((_LOW_32 - n) + _U(1)) % n:
            return np.int64(product >> _32)


@njit(cache=True, nogil=True)
def below_large(random, bound):  # type: ignore[no-untyped-def]
    """A uniform integer in `0..bound - 1`, for `1 <= bound <= 10**18`: up to 2**30 from one number."""
    if bound <= _PART:
        return below(random, bound)
    while True:
        drawn = below(random, _PART) * _PART + below(random, _PART)
        if drawn < _PARTS - _PARTS % bound:
            return drawn % bound
