"""Being asked to stop."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """The stop signals that came while the block runs; a second one interrupts at once."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # only the main thread may listen
        yield came
        return

    def note(number: int, _: object) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
