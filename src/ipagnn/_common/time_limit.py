"""A limit on the time of a computation, which long loops in Python hold to.

Whoever sets the limit says what happens when it is over. The loops do not know who that is; they ask now and then.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_check: ContextVar[Callable[[], None] | None] = ContextVar("ipagnn_time_limit", default=None)


@contextmanager
def time_limit(check: Callable[[], None]) -> Iterator[None]:
    """Let `check` be asked within the block, in this thread; it raises what ends the computation."""
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


def check_time() -> None:
    """End the computation here if its time is over."""
    check = _check.get()
    if check is not None:
        check()
