"""Files that are there completely or not at all, and folders that one process writes to."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class RunError(ValueError):
    """A run cannot begin, go on or be read; the text says why and what to do."""


def write_whole(path: Path, data: bytes) -> None:
    """Write a file aside, flush it to the disk, and rename it.

    Raises:
        RunError: It could not be written; what stood there before still does.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> RunError:
    """Why a file of a run could not be written, and what to do."""
    why = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else str(error.strerror).lower()
    return RunError(
        f"{path} could not be written, for {why}. The checkpoint before it is whole: once there is room, run the same "
        "command again and it goes on from there."
    )


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep a second process from writing to the directory at the same time. Nothing remains if this one is killed."""
    handle = _lock(directory)
    if handle is None:
        raise RunError(f"Another process is training in {directory}; wait for it to end, or choose another folder.")
    try:
        yield
    finally:
        os.close(handle)


def is_locked(directory: Path) -> bool:
    """Whether a process is writing to the directory now."""
    handle = _lock(directory)
    if handle is not None:
        os.close(handle)
    return handle is None


def _lock(directory: Path) -> int | None:
    """A handle that holds the lock until it is closed; None if another process has it."""
    if sys.platform == "win32":
        return os.open(os.devnull, os.O_RDONLY)
    import fcntl

    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle
