"""Threads that run one compiled pass together.

A pass is a list of phases, and a phase so many chunks of work that do not depend on each other. Every thread goes
through all phases: it takes chunks until none is left, and waits until those that others have taken are done. A thread
that the system does not let run is only waited for if it is in the middle of a chunk.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from ipagnn.ops.pointer.cpu.math import jit
from ipagnn.ops.pointer.cpu.parts import run_parallel

_POLLS = 100
_APART = 16  # numbers between counters: two cache lines, which processors like to fetch together


def _define_add(context: Any, address: Any, value: Any) -> Any:
    """Add to the integer at an address, as no other thread can do meanwhile; returns what was there."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place = builder.inttoptr(values[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", place, values[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


_add: Any = intrinsic(_define_add)


def _define_read(context: Any, address: Any) -> Any:
    """The integer at an address that other threads may change."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place = builder.inttoptr(values[0], ir.IntType(64).as_pointer())
        return builder.load_atomic(place, "seq_cst", 8)

    return types.int64(types.int64), generate


_read: Any = intrinsic(_define_read)


def _define_call(context: Any, address: Any) -> Any:
    """Call the function without arguments at an address."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(32), [])
        builder.call(builder.inttoptr(values[0], kind.as_pointer()), [])
        return context.get_dummy_value()

    return types.void(types.int64), generate


_call: Any = intrinsic(_define_call)


@jit
def take(counters, phase, count):  # type: ignore[no-untyped-def]
    """A chunk of the phase that no thread has taken; -1 if none of its `count` chunks is left."""
    chunk = _add(counters.ctypes.data + phase * counters.strides[0], 1)
    return chunk if chunk < count else -1


@jit
def done(counters, phase):  # type: ignore[no-untyped-def]
    """Say that a chunk of the phase is done."""
    _add(counters.ctypes.data + phase * counters.strides[0] + counters.strides[1], 1)


@jit
def wait(counters, phase, count, give_way):  # type: ignore[no-untyped-def]
    """Until all chunks of the phase are done. `give_way` is from `YIELD`."""
    polls, address = 0, counters.ctypes.data + phase * counters.strides[0] + counters.strides[1]
    while _read(address) < count:
        polls += 1
        if polls > _POLLS and give_way != 0:
            _call(give_way)


def counters(phases: int) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """What threads count in: of each phase the chunks that are taken and those that are done."""
    return np.zeros((phases, 2, _APART), np.int64)


def _find_yield() -> int:
    try:
        return ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p).value or 0
    except (AttributeError, OSError, TypeError):  # not on this system
        return 0


YIELD = _find_yield()
"""Address of the function that lets other threads run; 0 where there is none."""


def run_together(work: Callable[[], None], threads: int) -> None:
    """Call `work` on so many threads at once, which treat numbers that are not normal as this one does."""
    if threads == 1:
        work()
        return
    flushed = not torch.tensor(1e-40).mul(1.0).item()

    def begin(_: int) -> None:
        torch.set_flush_denormal(flushed)
        work()

    run_parallel(begin, range(threads))
