"""Clients that hold connections without using them: half a header, half a body, answers that nobody reads."""

import contextlib
import http.client
import json
import logging
import re
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed; the extra `page` brings it")

from ipagnn.models import build_model, save_model
from ipagnn.server.logs import FloodFilter

BODY = json.dumps({"source": "v0 = 7\nv1 = 9\nwhile v1 > 0:\n  v1 -= 1\n  v0 *= 2"}).encode()
PIPELINED = b"POST /api/explain HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
PIPELINED += b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
FILES = b"GET /style.css HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100
ATTACKERS = 1_100


@pytest.fixture
def own(serve: Callable[..., Any], tmp_path: Path) -> Any:
    """A server for one test, which may end it."""
    path = tmp_path / "tiny.safetensors"
    save_model(build_model("ipa-gnn", hidden=4), path)
    return serve([path])


def sockets(served: Any, count: int, first: bytes, receive_buffer: int | None = None) -> Iterator[socket.socket]:
    """Connections that each send `first` and then nothing."""
    address = urlsplit(served.url)
    for _ in range(count):
        one = socket.socket()
        if receive_buffer:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        one.settimeout(10)
        one.connect((address.hostname, address.port))
        one.setblocking(False)
        try:
            one.send(first)
        except OSError:
            one.close()
            continue
        yield one


def healthy(served: Any, timeout: float = 3) -> bool:
    with closing(http.client.HTTPConnection(urlsplit(served.url).netloc, timeout=timeout)) as connection:
        connection.request("GET", "/api/health")
        return connection.getresponse().status == 200


def end(served: Any) -> tuple[float, str]:
    """Seconds from SIGTERM to the end, and what was written to standard error."""
    began = time.monotonic()
    served.process.send_signal(signal.SIGTERM)
    _, errors = served.process.communicate(timeout=60)
    return time.monotonic() - began, errors


def assert_answers_and_ends(served: Any, within: float) -> None:
    """That it answers others while connections are held, and then ends in order in this many seconds."""
    for _ in range(5):
        assert healthy(served)
    seconds, errors = end(served)
    assert seconds < within
    assert served.process.returncode == 0
    assert not errors


@pytest.mark.slow
def test_half_a_header_keeps_nobody_out(own: Any) -> None:
    # As many files as processes may usually have: a server that takes all connections in runs out of them.
    resource.prlimit(own.process.pid, resource.RLIMIT_NOFILE, (1_024, 1_024))
    with ExitStack() as stack:
        held = [stack.enter_context(one) for one in sockets(own, ATTACKERS, b"GET / HTTP/1.1\r\nHost: loc")]
        assert len(held) > 1_000
        assert_answers_and_ends(own, 3)


def test_a_new_connection_takes_the_place_of_an_idle_one(served: Any) -> None:
    with ExitStack() as stack:
        held = [stack.enter_context(one) for one in sockets(served, 140, b"GET / HTTP/1.1\r\nHost: loc")]
        assert healthy(served)
        closed = 0
        for one in held:
            with contextlib.suppress(BlockingIOError):
                try:
                    closed += not one.recv(1)
                except ConnectionResetError:
                    closed += 1
        assert closed >= 13  # 128 from an address, of whom one asked for the health


@pytest.mark.parametrize(
    ("sent", "limit", "answer"),
    [
        (b"", 5, b"HTTP/1.1 408 "),
        (b"GET / HTTP/1.1\r\nHost: loc", 5, b"HTTP/1.1 408 "),
        (b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{", 5, b"HTTP/1.1 408 "),
        (b"no HTTP at all\r\n\r\n", 0, b"HTTP/1.1 400 "),
    ],
    ids=["nothing", "half a header", "half a body", "not HTTP"],
)
@pytest.mark.slow
def test_requests_must_arrive_in_time(served: Any, sent: bytes, limit: float, answer: bytes) -> None:
    (one,) = sockets(served, 1, sent)
    with one:
        one.setblocking(True)
        one.settimeout(limit + 5)
        began = time.monotonic()
        read = b""
        while part := one.recv(65_536):
            read += part
    assert read.startswith(answer)
    assert set(json.loads(read.partition(b"\r\n\r\n")[2])) == {"detail", "line", "column"}
    assert limit - 0.5 < time.monotonic() - began < limit + 3


@pytest.mark.slow
def test_a_header_that_drips_is_not_waited_for(served: Any) -> None:
    (one,) = sockets(served, 1, b"GET / HTTP/1.1\r\n")
    with one:
        one.setblocking(True)
        one.settimeout(0.5)
        began = time.monotonic()
        while time.monotonic() - began < 9:
            try:
                one.send(b"x: y\r\n")
                if one.recv(100):
                    break
            except TimeoutError:
                pass
    assert 4 < time.monotonic() - began < 8


@pytest.mark.slow
def test_clients_that_never_read_keep_nobody_out(own: Any) -> None:
    with ExitStack() as stack:
        for one in sockets(own, 260, FILES, receive_buffer=2_048):
            stack.enter_context(one)
        time.sleep(2)
        assert_answers_and_ends(own, 5)


def test_an_answer_that_is_read_slowly_is_whole(served: Any) -> None:
    """Pausing and going on must lose nothing; the next request on the connection is answered too."""
    (one,) = sockets(served, 1, PIPELINED * 3, receive_buffer=2_048)
    with one:
        one.setblocking(True)
        one.settimeout(10)
        read = b""
        while read.count(b"HTTP/1.1 200") < 3 or not read.endswith(b"}"):
            read += one.recv(700)
            time.sleep(0.001)
    answers = re.split(rb"HTTP/1.1 200.*?\r\n\r\n", read, flags=re.DOTALL)[1:]
    assert len(answers) == 3
    assert len({json.loads(answer)["value"] for answer in answers}) == 1


@pytest.mark.slow
def test_a_flood_of_nonsense_writes_little(own: Any) -> None:
    for _ in range(5):
        with ExitStack() as stack:
            for one in sockets(own, 100, b"\x00\xff nonsense\r\n\r\n"):
                stack.enter_context(one)
    assert healthy(own)
    _, errors = end(own)
    assert len(errors) < 5_000
    assert "Traceback" not in errors


def test_the_log_says_how_much_it_left_out() -> None:
    flood = FloodFilter(most=2, seconds=0.05)
    records = [logging.LogRecord("x", logging.WARNING, "", 0, "said %d", (k,), None) for k in range(6)]
    assert [flood.filter(record) for record in records[:5]] == [True, True, False, False, False]
    time.sleep(0.06)
    assert flood.filter(records[5])
    assert records[5].getMessage() == "said 5 (3 messages before this one were left out.)"
