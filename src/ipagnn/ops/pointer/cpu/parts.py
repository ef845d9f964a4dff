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

from ipagnn.data.contract import Rows
from ipagnn.ops.pointer.cpu.compiled_pass import CompiledPass
from ipagnn.ops.pointer.cpu.inputs import Portion, Weights
from ipagnn.ops.pointer.cpu.math import product
from ipagnn.ops.pointer.cpu.torch_pass import PackedPass

Item = TypeVar("Item")
Result = TypeVar("Result")

LEAST_WORK = 1e6
"""Rows times H squared for each thread: with 2e6 in all a second one won nothing, with 4e6 a fifth of the step."""


class Parts:
    """One forward pass over the rows of a batch, and the backward pass that may follow it once.

    Args:
        rows: The plan.
        programs: Number of programs in the batch.
        hard: Decide by arg max.
        normalise: Divide arriving states by the mass that arrived.
        keep: Keep the buffers of all rows, for a backward pass or for `told`.
        spare: Memory of passes that are over, which this one may use and gives back after its backward pass; None if
            it should not, as when somebody looks at what it told.
    """

    def __init__(
        self, rows: Rows, programs: int, *, hard: bool, normalise: bool, keep: bool, spare: list[Tensor] | None = None
    ) -> None:
        self._rows, self._programs, self._spare = rows, programs, spare
        self._hard, self._normalise, self._keep = hard, normalise, keep
        self._passes: list[PackedPass] = []

    def forward(self, *weights: Tensor) -> tuple[Tensor, Tensor]:
        """From the weights in the order of `Weights.of` to what programs end with.

        Returns:
            The state of each exit [program, 4 * hidden], and the loss of the decisions that the true traces take, as
            far as the rows tell them [program].
        """
        device = weights[0].device.type
        kind = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weights[1].dtype
        with torch.autocast(device, enabled=False):
            loaded = Weights.of(kind, *(weight.detach() for weight in weights))
        compiled = device == "cpu" and kind == loaded.bias_2.dtype and product(kind) is not None
        make = CompiledPass if compiled else PackedPass
        count = 1
        if device == "cpu":
            count = max(1, min(torch.get_num_threads(), int(len(self._rows) * loaded.hidden**2 / LEAST_WORK)))

        def execute(portion: Portion) -> PackedPass:
            memory = memories.pop()
            options = {"hard": self._hard, "normalise": self._normalise, "keep": self._keep}
            with torch.autocast(device, enabled=False):
                done = make(loaded, portion, **options, memory=memory)
                done.forward()
            return done

        portions = split(self._rows, self._programs, count)
        memories = self._borrow(len(portions), loaded.bias_2)
        self._passes = at_once(execute, portions, on_cpu=device == "cpu")
        losses = [done.trace_loss() for done in self._passes]
        return torch.cat([done.final for done in self._passes]), torch.cat(losses)

    def backward(self, d_final: Tensor, d_trace_loss: Tensor) -> list[Tensor]:
        """The gradients of the weights, from those of what `forward` gave."""
        counts = [done.portion.programs for done in self._passes]
        memories = [done.memory for done in self._passes]

        def back(part: tuple[PackedPass, Tensor, Tensor]) -> list[Tensor]:
            done, *gradients = part
            return done.backward(*gradients)

        given = zip(self._passes, d_final.split(counts), d_trace_loss.split(counts), strict=True)
        first, *others = at_once(back, given, on_cpu=d_final.device.type == "cpu")
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
        fits = [memory for memory in found if memory.dtype == like.dtype and memory.device == like.device]
        return [*fits, *[None] * (count - len(fits))]

    def told(self) -> tuple[Tensor, ...]:
        """mass, shares, states and proposals of all rows, in their order."""
        parts = [(done.mass, done.shares, done.before, done.after) for done in self._passes]
        if len(parts) == 1:
            return parts[0]
        order = torch.cat([done.portion.rows for done in self._passes if done.portion.rows is not None]).argsort()
        return tuple(torch.cat(values)[order] for values in zip(*parts, strict=True))


def split(rows: Rows, programs: int, parts: int) -> list[Portion]:
    """Up to `parts` portions of about equally many rows: programs that follow each other, at least one row each."""
    of_rows = rows.tokens, rows.program, rows.branches, rows.true, rows.false, rows.taken
    whole = Portion(rows.step_offsets, programs, *of_rows)
    if parts == 1:
        return [whole]
    total = len(rows)
    ends = torch.bincount(rows.program, minlength=programs).cumsum(dim=0)
    wanted = torch.arange(1, parts, device=ends.device) * total // parts
    chosen = {int(ends[i]): i + 1 for i in torch.searchsorted(ends, wanted).tolist()}  # rows so far: programs so far
    bounds = [0, *(chosen[end] for end in sorted(chosen) if 0 < end < total), programs]
    if len(bounds) == 2:
        return [whole]
    return [_portion(rows, first, last) for first, last in pairwise(bounds)]


def _portion(rows: Rows, first: int, last: int) -> Portion:
    """The rows of programs `first : last`."""
    here = ((rows.program >= first) & (rows.program < last)).nonzero().squeeze(1)
    offsets: list[int] = torch.searchsorted(here, torch.tensor(rows.step_offsets, device=here.device)).tolist()
    steps = tuple(offset for t, offset in enumerate(offsets) if t == 0 or offset > offsets[t - 1])
    # New places of all targets: -1 for none, then rows, then exits; -1 counts from the end.
    places = rows.true.new_full((len(rows) + last + 1,), -1)
    places[here] = torch.arange(len(here), dtype=places.dtype, device=places.device)
    exits = torch.arange(last - first, dtype=places.dtype, device=places.device)
    places[len(rows) + first : len(rows) + last] = len(here) + exits
    true, false = places[rows.true[here]], places[rows.false[here]]
    program = rows.program[here] - first
    taken = None if rows.taken is None else rows.taken[here]
    return Portion(steps, last - first, rows.tokens[here], program, rows.branches[here], true, false, taken, here)


_SOFTLY = 1  # omp_pause_soft
_end_waiting = getattr(ctypes.CDLL(torch._C.__file__), "omp_pause_resource_all", None)
"""Ends the threads that torch has used for its own operations: for some milliseconds after each they wait for the next
without leaving their core. The next operation that wants them begins new ones. None where OpenMP has no such call."""

_lock = Lock()
_pool: tuple[int, ThreadPoolExecutor] | None = None


def at_once(do: Callable[[Item], Result], items: Iterable[Item], *, on_cpu: bool) -> list[Result]:
    """`do` all items, each on a thread of its own."""
    items = list(items)
    if torch.get_num_threads() == 1 or not on_cpu:
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
