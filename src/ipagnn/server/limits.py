"""What a request may cost, and how requests wait for their turn."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from torch.overrides import TorchFunctionMode

from ipagnn._common.time_limit import time_limit

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request may cost.

    Attributes:
        connections: Connections that may be open.
        connections_per_address: The same from one address.
        header_seconds: How long a request's header may take to arrive.
        body_bytes: Size of a request's body.
        body_seconds: How long it may take to arrive.
        send_seconds: How long a client may take to read an answer.
        unsent_bytes: Answers that may wait to be read, all together.
        lines: Lines of a program.
        steps: Steps that a model is given for it.
        traced: Statements that it may execute where the model follows its true trace, all of which are in memory.
        truth_steps: Steps that finding its true result may take.
        seconds: From a request's arrival to its answer.
        long_lines: Programs of more lines wait in a lane of their own, so that short ones never wait for them.
        long_node_steps: The same for programs of more nodes times steps.
        workers: Threads of each lane.
        queue: Requests that may wait in each lane; further ones are sent away.
    """

    connections: int = 256
    connections_per_address: int = 128
    header_seconds: float = 5.0
    body_bytes: int = 64 * 1024
    body_seconds: float = 5.0
    send_seconds: float = 20.0
    unsent_bytes: int = 32 * 2**20
    lines: int = 200
    steps: int = 20_000
    traced: int = 2_500
    truth_steps: int = 100_000
    seconds: float = 10.0
    long_lines: int = 40
    long_node_steps: int = 100_000
    workers: int = 1
    queue: int = 32


class BusyError(Exception):
    """Too much is waiting already."""


class TooLongError(Exception):
    """A request took longer than it may."""


class Deadline(TorchFunctionMode):
    """Ends a computation of the thread that enters it, at the first tensor operation or `check_time` past the time.

    Attributes:
        end: The time; another thread may bring it forward.
    """

    def __init__(self, end: float) -> None:
        super().__init__()
        self.end = end

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Carry out the operation, if there is time."""
        self.check()
        return func(*args, **(kwargs or {}))

    def check(self) -> None:
        """Raise `TooLongError` if the time is over."""
        if time.monotonic() > self.end:
            raise TooLongError


class Lane:
    """Threads that work off requests in order, and a bounded queue before them.

    Args:
        name: Of the threads.
        limits: Gives their number, the length of the queue and the time a request may take.

    Attributes:
        busy: Requests being worked on or waiting.
    """

    def __init__(self, name: str, limits: Limits) -> None:
        self.limits = limits
        self.busy = 0
        self.pool = ThreadPoolExecutor(limits.workers, thread_name_prefix=name)

    async def run(self, work: Callable[[], _Answer], began: float | None = None) -> _Answer:
        """Do `work` in a thread and give its answer. If whoever asked leaves, it is not begun, or given up.

        Args:
            work: What to do.
            began: When the request came, if not now.

        Raises:
            BusyError: The queue is full, or the time was over before the work could begin.
            TooLongError: The time was over before the work was done.
        """
        if self.busy >= self.limits.workers + self.limits.queue:
            raise BusyError
        deadline = Deadline((time.monotonic() if began is None else began) + self.limits.seconds)

        def timed() -> _Answer:
            if time.monotonic() > deadline.end:
                raise BusyError
            with deadline, time_limit(deadline.check):
                return work()

        loop = asyncio.get_running_loop()
        self.busy += 1
        job = self.pool.submit(timed)
        # Not when the answer is taken but when the thread is free again: whoever asked may have left before.
        job.add_done_callback(lambda _: self._free(loop))
        try:
            return await asyncio.shield(asyncio.wrap_future(job))
        except asyncio.CancelledError:
            deadline.end = float("-inf")
            job.cancel()
            raise

    def _free(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # the loop has ended, as the server does
            loop.call_soon_threadsafe(self._done)

    def _done(self) -> None:
        self.busy -= 1

    def close(self) -> None:
        """Finish what has begun."""
        self.pool.shutdown()
