import errno
import fcntl
import os
import sys
import threading
from pathlib import Path

import pytest

from ipagnn._common.files import aside, is_locked, lock, reason, write_whole


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write_whole(path, b"old")

    def full(_: int) -> None:
        assert aside(path).read_bytes() == b"new"
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_whole(path, b"new")
    assert reason(caught.value) == "the disk is full"
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupt_while_writing_leaves_nothing_half_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "a.json", b"new")
    assert not list(tmp_path.iterdir())


def test_other_reasons_are_those_of_the_system() -> None:
    assert reason(OSError(errno.EACCES, "Permission denied")) == "permission denied"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such lock")
def test_a_lock_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    with lock(tmp_path) as first:
        assert first
        with lock(tmp_path) as second:
            assert not second
        with lock(tmp_path) as third:  # the one that did not get it has let go of nothing
            assert not third
    with lock(tmp_path) as again:
        assert again


def test_looking_at_a_lock_keeps_nobody_from_taking_it(tmp_path: Path) -> None:
    looking = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)  # as `is_locked` does for a moment
    assert not is_locked(tmp_path)
    threading.Timer(0.1, os.close, (looking,)).start()
    with lock(tmp_path) as held:
        assert held
        assert is_locked(tmp_path)
        with lock(tmp_path) as second:
            assert not second
    assert not is_locked(tmp_path)
