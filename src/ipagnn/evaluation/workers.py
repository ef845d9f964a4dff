"""The threads on which models are evaluated.

On a CPU, numbers too small for float32's full precision are 0 on them. A trickle of pointer mass makes many of these,
and they are so slow that the largest programs of a test set took almost fifty times as long. The setting belongs to a
thread and to the threads it starts, so a new one is the only way to reach all that compute.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import Any

import torch


@contextmanager
def worker(device: torch.device) -> Iterator[Callable[..., Any]]:
    """Calls functions on a thread with as many threads for a product as torch is set to; on a GPU where it stands."""
    if device.type != "cpu":
        yield lambda function, *arguments: function(*arguments)
        return
    with ThreadPoolExecutor(1, initializer=torch.set_flush_denormal, initargs=(True,)) as pool:
        yield lambda function, *arguments: pool.submit(function, *arguments).result()


@contextmanager
def single_threads() -> Iterator[ThreadPoolExecutor]:
    """As many threads as torch is set to, each of which computes its products alone."""
    count = torch.get_num_threads()
    met = Barrier(count)

    def begin(_: int) -> None:
        torch.set_flush_denormal(True)
        torch.get_num_threads()  # a thread that torch has not met yet would soon be given as many as all have
        torch.set_num_threads(1)  # of this thread, but also of threads that begin later: see below
        met.wait()

    pool = ThreadPoolExecutor(count, thread_name_prefix="evaluate")
    try:
        list(pool.map(begin, range(count)))
        torch.set_num_threads(count)
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
