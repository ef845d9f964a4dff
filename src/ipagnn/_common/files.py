"""Files that are there completely or not at all, and directories that one process writes to."""

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

PICTURES: Final = (".svg", ".pdf", ".png")
"""How the names of pictures end."""

_LOOKS: Final = 5
_LOOK_SECONDS: Final = 0.05


def aside(path: Path) -> Path:
    """Where a file is written before it takes its name."""
    return path.with_name(f".{path.name}.part")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file aside, flush it to the disk, and rename it.

    Raises:
        OSError: It could not be written; what stood there before still does.
    """
    part = aside(path)
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def reason(error: OSError) -> str:
    """Why a file could not be written, to go into a sentence."""
    return "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else str(error.strerror).lower()


@contextmanager
def lock(directory: Path) -> Iterator[bool]:
    """Hold a directory's lock while the block runs. Nothing remains if the process is killed.

    Yields:
        Whether this process has the lock; False if another has. Windows has no such lock, so True.
    """
    if sys.platform == "win32":
        yield True
        return
    import fcntl

    handle = os.open(directory, os.O_RDONLY)
    try:
        held = _take(handle, fcntl.LOCK_EX)
        for _ in range(_LOOKS):  # somebody may only be looking
            if held:
                break
            time.sleep(_LOOK_SECONDS)
            held = _take(handle, fcntl.LOCK_EX)
        yield held
    finally:
        os.close(handle)


def is_locked(directory: Path) -> bool:
    """Whether a process holds a directory's lock. Looking keeps nobody from taking it.

    Windows has no such lock, so False.
    """
    if sys.platform == "win32":
        return False
    import fcntl

    handle = os.open(directory, os.O_RDONLY)
    try:
        return not _take(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)


def _take(handle: int, kind: int) -> bool:
    import fcntl

    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
