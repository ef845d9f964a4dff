"""Files and folders of runs: what cannot be written or shared is a `RunError`."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ipagnn._common import files


class RunError(ValueError):
    """A run cannot be started, resumed or read; the text says why and what to do."""


def write_whole(path: Path, data: bytes) -> None:
    """Write a file completely or not at all.

    Raises:
        RunError: It could not be written; what stood there before still does.
    """
    try:
        files.write_whole(path, data)
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> RunError:
    """Why a file of a run could not be written, and what to do."""
    return RunError(
        f"{path} could not be written, for {files.reason(error)}. The checkpoint before it is whole: once there is "
        "room, run the same command again and it goes on from there."
    )


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep a second process from writing to the directory at the same time."""
    with files.lock(directory) as held:
        if not held:
            raise RunError(f"Another process is training in {directory}; wait for it to end, or choose another folder.")
        yield


@contextmanager
def claimed(directory: Path) -> Iterator[None]:
    """Make a directory if need be, and lock it. If the block fails, no empty directory that was made here remains."""
    made = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"The folder {directory} cannot be made: {files.reason(error)}.") from error
    try:
        with locked(directory):
            yield
    except BaseException:
        for path in made:
            with suppress(OSError):
                path.rmdir()
        raise


def is_locked(directory: Path) -> bool:
    """Whether a process is writing to the directory now."""
    return files.is_locked(directory)
