"""A batch's rows in parts, one for each thread.

Programs do not depend on each other, so that threads which execute some programs each need not wait for each other at
every product, as threads that share products do. Only the gradients of the weights are added up.
"""

import ctypes
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Barrier, Lock
from typing import TypeVar

import torch
from torch import Tensor

from ipagnn.ops.pointer.cpu.inputs import PassWeights, Portion
from ipagnn.ops.pointer.cpu.packed_pass import PackedPass
from ipagnn.ops.pointer.rows import Rows, RowValues

Item = TypeVar("Item")
Result = TypeVar("Result")

LEAST_WORK = 1e6
"""Rows times H squared for each thread: with 2e6 in all a second one won nothing, with 4e6 a fifth of the step."""


class Parts:
    """One forward pass over the rows of a batch, and the backward pass that may follow it once.

    Args:
        rows: The plan.
        tokens: Rows of the token table for the statement of each row. [row, 4]
        programs: Number of programs in the batch.
        hard: Decide by arg max.
        normalise: Divide arriving states by the mass that arrived.
        keep: Keep the buffers of all rows, for a backward pass or for `values`.
        spare: Memory of passes that are over, which this one may use and gives back after its backward pass; None if
            it should not, as when somebody looks at the values.
    """

    def __init__(
        self,
        rows: Rows,
        tokens: Tensor,
        programs: int,
        *,
        hard: bool,
        normalise: bool,
        keep: bool,
        spare: list[Tensor] | None = None,
    ) -> None:
        self._rows, self._tokens, self._programs, self._spare = rows, tokens, programs, spare
        self._hard, self._normalise, self._keep = hard, normalise, keep
        self._passes: list[PackedPass] = []

    def forward(self, *weights: Tensor) -> Tensor:
        """From the weights in the order of `PassWeights.of` to the state of each exit. [program, 4 * hidden]"""
        with torch.autocast("cpu", enabled=False):
            loaded = PassWeights.of(*(weight.detach() for weight in weights))
        count = max(1, min(torch.get_num_threads(), int(len(self._rows) * loaded.hidden**2 / LEAST_WORK)))

        def execute(portion: Portion) -> PackedPass:
            memory = memories.pop()
            options = {"hard": self._hard, "normalise": self._normalise, "keep": self._keep}
            done = PackedPass(loaded, portion, **options, memory=memory)
            done.forward()
            return done

        portions = split(self._rows, self._tokens, self._programs, count)
        memories = self._borrow(len(portions), loaded.bias_2)
        self._passes = run_parallel(execute, portions)
        return torch.cat([done.final for done in self._passes])

    def backward(self, d_final: Tensor) -> list[Tensor]:
        """The gradients of the weights, from those of what `forward` gave."""
        counts = [done.portion.programs for done in self._passes]
        memories = [done.memory for done in self._passes]

        def back(part: tuple[PackedPass, Tensor]) -> list[Tensor]:
            done, gradient = part
            return done.backward(gradient)

        first, *others = run_parallel(back, zip(self._passes, d_final.split(counts), strict=True))
        if self._spare is not None:
            with _lock:
                self._spare[:] = [memory for memory in memories if memory is not None]
        for other in others:
            for total, part in zip(first, other, strict=True):
                total += part
        return first

    def _borrow(self, count: int, like: Tensor) -> list[Tensor | None]:
        """Memory for so many passes, or None for those that must allocate their own."""
        with _lock:
            spare = self._spare if self._keep and self._spare else []
            found = [spare.pop() for _ in range(min(count, len(spare)))]
        fits = [memory for memory in found if memory.dtype == like.dtype]
        return [*fits, *[None] * (count - len(fits))]

    def values(self) -> RowValues:
        """What was computed for all rows, in their order."""
        parts = [(done.mass, done.shares, done.before, done.after) for done in self._passes]
        if len(parts) == 1:
            return RowValues(*parts[0])
        order = torch.cat([done.portion.rows for done in self._passes if done.portion.rows is not None]).argsort()
        return RowValues(*(torch.cat(values)[order] for values in zip(*parts, strict=True)))


def split(rows: Rows, tokens: Tensor, programs: int, parts: int) -> list[Portion]:
    """Up to `parts` portions of about equally many rows: programs that follow each other, at least one row each."""
    true, false = rows.target.t().contiguous()
    fields = (tokens, rows.graph, rows.edges[:, 1].contiguous(), true, false)
    whole = Portion(rows.step_offsets, programs, *fields)
    if parts == 1:
        return [whole]
    total = len(rows)
    ends = torch.bincount(rows.graph, minlength=programs).cumsum(dim=0)
    wanted = torch.arange(1, parts) * total // parts
    chosen = {int(ends[i]): i + 1 for i in torch.searchsorted(ends, wanted).tolist()}  # rows so far: programs so far
    bounds = [0, *(chosen[end] for end in sorted(chosen) if 0 < end < total), programs]
    if len(bounds) == 2:
        return [whole]
    return [_portion(whole, first, last) for first, last in pairwise(bounds)]


def _portion(whole: Portion, first: int, last: int) -> Portion:
    """The rows of programs `first : last`."""
    here = ((whole.program >= first) & (whole.program < last)).nonzero().squeeze(1)
    offsets: list[int] = torch.searchsorted(here, torch.tensor(whole.steps)).tolist()
    steps = tuple(offset for t, offset in enumerate(offsets) if t == 0 or offset > offsets[t - 1])
    # New places of all targets: -1 for none, then rows, then exits; -1 counts from the end.
    rows = whole.steps[-1]
    places = whole.true.new_full((rows + last + 1,), -1)
    places[here] = torch.arange(len(here), dtype=places.dtype)
    places[rows + first : rows + last] = len(here) + torch.arange(last - first, dtype=places.dtype)
    true, false = places[whole.true[here]], places[whole.false[here]]
    program = whole.program[here] - first
    return Portion(steps, last - first, whole.tokens[here], program, whole.branches[here], true, false, here)


_SOFTLY = 1  # omp_pause_soft
_end_waiting = getattr(ctypes.CDLL(torch._C.__file__), "omp_pause_resource_all", None)
"""Ends the threads that torch has used for its own operations: for some milliseconds after each they wait for the next
without leaving their core. The next operation that wants them begins new ones. None where OpenMP has no such call."""

_lock = Lock()
_pool: tuple[int, ThreadPoolExecutor] | None = None


def run_parallel(do: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Call `do` with all items, each on a thread of its own."""
    items = list(items)
    if torch.get_num_threads() == 1:
        return [do(item) for item in items]

    def quietly(item: Item) -> Result:
        with torch.no_grad():  # holds for one thread only
            return do(item)

    threads = _threads(len(items))
    if _end_waiting is not None and len(items) > 1:
        _end_waiting(_SOFTLY)
    return list(threads.map(quietly, items))


def _threads(count: int) -> ThreadPoolExecutor:
    """At least so many threads, on which torch runs products without further threads."""
    global _pool
    with _lock:
        if _pool is None or _pool[0] < count:
            before, met = torch.get_num_threads(), Barrier(count)

            def begin(_: int) -> None:
                torch.get_num_threads()  # a thread that torch has not met yet would soon be given as many as all have
                torch.set_num_threads(1)  # of this thread, but also of threads that begin later: see below
                met.wait()

            pool = ThreadPoolExecutor(count, thread_name_prefix="packed")
            list(pool.map(begin, range(count)))
            torch.set_num_threads(before)
            _pool = count, pool
        return _pool[1]


def _forget() -> None:
    """A forked process has none of the threads: not ours, and not those of torch, whose end it would wait for."""
    global _pool, _lock, _end_waiting
    _pool, _lock, _end_waiting = None, Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
