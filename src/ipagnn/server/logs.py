"""Keeping the log short, whatever clients do."""

import asyncio
import logging
import time
from typing import Final

MOST_RECORDS: Final = 20
"""Messages that a logger may write in `WINDOW_SECONDS`."""
WINDOW_SECONDS: Final = 60.0
_LOGGERS: Final = ("uvicorn.error", "asyncio")


class FloodFilter(logging.Filter):
    """Lets so many records pass in a time, then none; the first record of the next time says how many were left out.

    Args:
        most: Records that pass.
        seconds: The time.
    """

    def __init__(self, most: int = MOST_RECORDS, seconds: float = WINDOW_SECONDS) -> None:
        super().__init__()
        self.most = most
        self.seconds = seconds
        self.began = float("-inf")
        self.count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is written."""
        if record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError):
            return False  # a request that was given up as the server ended
        now = time.monotonic()
        if now - self.began > self.seconds:
            left_out = self.count - self.most
            self.began, self.count = now, 0
            if left_out > 0:
                record.msg = f"{record.getMessage()} ({left_out:,} messages before this one were left out.)"
                record.args = ()
        self.count += 1
        return self.count <= self.most


def bound_logs() -> None:
    """Bound what the server's loggers write."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(one, FloodFilter) for one in logger.filters):
            logger.addFilter(FloodFilter())
