"""Endless fresh batches, made in background threads ahead of whoever consumes them."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from ipagnn.languages.arithmetic.program import ProgramTable

T = TypeVar("T")


class Source(Protocol):
    """Where programs come from: a `Sampler`, or anything else that numbers its programs without an end."""

    def table(self, start: int, count: int) -> ProgramTable:
        """The programs `start:start + count`; the same whenever they are asked for, from any thread."""


class Stream(Iterator[T], Generic[T]):
    """Batches of consecutive programs, in order, whatever the number of threads.

    Batch k has the programs `k * batch_size : (k + 1) * batch_size` of the source, counted from the first position. Of
    several processes, the one of `rank` takes every `world`-th batch, starting with its rank: together they take what
    one alone would, and none twice. `position` counts the programs that all of them have taken, so it is the same in
    all of them, can be saved with a checkpoint, and may be gone on from with another number of threads or processes.
    Batches that were only made ahead do not count.

    Use it as a context manager, or close it: its threads end with it.

    Args:
        source: Where programs come from. For training, a sampler that draws nothing withheld: `training_sampler`.
        batch_size: Programs a batch.
        collate: Makes a batch of a table, such as `model.collate`; it runs in the background too.
        position: Index of the first program, 0 or what another stream's `position` was.
        threads: Threads that make batches.
        ahead: Batches made ahead of the consumer.
        rank, world: Which of how many processes this is.
    """

    def __init__(
        self,
        source: Source,
        batch_size: int,
        collate: Callable[[ProgramTable], T],
        *,
        position: int = 0,
        threads: int = 1,
        ahead: int = 4,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        for name, value, least in (
            ("batch_size", batch_size, 1),
            ("position", position, 0),
            ("threads", threads, 1),
            ("ahead", ahead, 1),
            ("world", world, 1),
        ):
            if value < least:
                raise ValueError(f"{name} is {value}; a stream needs at least {least}.")
        if not 0 <= rank < world:
            raise ValueError(f"rank is {rank}; of {world} processes it is one of 0..{world - 1}.")
        self._source = source
        self._batch_size = batch_size
        self._collate = collate
        self._position = position
        self._ahead = ahead
        self._stride = batch_size * world
        self._next_start = position + batch_size * rank
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="stream")
        self._waiting: deque[Future[T]] = deque()
        self._closed = False

    @property
    def position(self) -> int:
        """Index of the first program that no process has taken yet."""
        return self._position

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        if self._closed:
            raise ValueError("The stream is closed; make another one from its position to go on.")
        while len(self._waiting) < self._ahead:
            self._waiting.append(
                self._pool.submit(_make_batch, self._source, self._next_start, self._batch_size, self._collate)
            )
            self._next_start += self._stride
        try:
            batch = self._waiting.popleft().result()
        except BaseException:
            self.close()  # the order would have a gap
            raise
        self._position += self._stride
        return batch

    def close(self) -> None:
        """End the threads. Batches made ahead are dropped; `position` stays."""
        self._closed = True
        self._waiting.clear()
        self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _make_batch(source: Source, start: int, count: int, collate: Callable[[ProgramTable], T]) -> T:
    return collate(source.table(start, count))
