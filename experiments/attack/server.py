"""Attacks on the server: requests, those that take most memory, and connections that keep it waiting."""

import http.client
import json
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ipagnn.languages.arithmetic import Grammar, ProgramError, execute, parse
from ipagnn.languages.arithmetic.interpreter import ExecutionError
from ipagnn.models import available_models, load_model

from .mutations import mutated_values, texts
from .tally import HANG_SECONDS, Tally, peak_mb

PEAK_BYTES = 10**9


class Server:
    """The server in a process of its own, on a free port of 127.0.0.1."""

    def __init__(self, log: Path) -> None:
        models = [part for name in available_models() for part in ("--model", name)]
        command = [sys.executable, "-m", "ipagnn", "serve", "--port", "0", *models]
        self.log = log
        with log.open("w") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert self.process.stdout is not None
        found = re.search(r"http://\S+", self.process.stdout.readline())
        if not found:
            raise SystemExit(f"The server did not start: {log.read_text()[-500:]}")
        self.address = urlsplit(found.group())

    def ask(self, method: str, path: str, body: Any = None, timeout: float = HANG_SECONDS) -> tuple[int, bytes]:
        """Status and body of an answer."""
        with closing(http.client.HTTPConnection(self.address.netloc, timeout=timeout)) as connection:
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def end(self) -> float:
        """Seconds that it took to end in good order."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()
        return time.monotonic() - began


@contextmanager
def _unanswered(tally: Tally) -> Iterator[None]:
    """Count a request that got no answer, or none in time."""
    try:
        yield
    except TimeoutError:
        tally.hangs += 1
    except (OSError, http.client.HTTPException):
        tally.lost += 1


def _together(work: Callable[[int], None], clients: int, server: Server, tally: Tally) -> Tally:
    """Let so many clients work at once, each told its number, and count what it did to the server."""
    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tally.tracebacks = server.log.read_text().count("Traceback")
    tally.peak_mb = peak_mb(server.process.pid)
    tally.wrong += tally.peak_mb * 1e6 > PEAK_BYTES
    return tally


def _is_wrong(answer: dict[str, Any], source: str, grammars: dict[str, Grammar]) -> bool:
    """Whether an answer gives another true value than the program has."""
    with suppress(ProgramError, ExecutionError):
        grammar = grammars[answer["model"]]
        rules = {"wrap": grammar.wrap, "variable": grammar.target_variable}
        program = parse(source, grammar=grammar)
        true = execute(program, grammar.modulus, grammar.condition_modulus, 10_000, **rules).value
        said = answer["true_value"]  # text where JavaScript would round it
        return said is not None and int(said) != true
    return False


def attack_requests(server: Server, count: int, deadline: float, seed: int, clients: int = 4) -> Tally:
    """Send mutated programs to all models."""
    tally, lock = Tally("requests"), threading.Lock()
    models = available_models()
    grammars = {name: load_model(name).config.grammar for name in models}

    def work(rank: int) -> None:
        draw = random.Random(f"{seed} {rank}")
        for source in texts(draw):
            with lock:
                if tally.injected >= count or time.monotonic() > deadline:
                    return
                tally.injected += 1
            body: Any = {"source": source, "model": draw.choice((None, *models))}
            body = mutated_values(body, draw) if draw.random() < 0.05 else body
            with _unanswered(tally):
                status, answer = server.ask("POST", draw.choice(("/api/predict", "/api/explain")), body)
                with lock:
                    tally.refused += status in (400, 413, 422, 503)
                    tally.errors_5xx += status >= 500 and status != 503
                    tally.wrong += status == 200 and _is_wrong(json.loads(answer), source, grammars)

    return _together(work, clients, server, tally)


def large_programs() -> list[str]:
    """Programs with as many lines, steps, blocks or masked lines as the server takes."""

    def loops(rounds: int, depth: int, body: list[str]) -> str:
        head = [
            "  " * k + line
            for k in range(depth)
            for line in (f"v{k + 1} = {rounds}", f"while v{k + 1} > 0:", f"  v{k + 1} -= 1")
        ]
        return "\n".join(["v0 = 1", *head, *("  " * depth + line for line in body)])

    return [
        "v0 = 1\nwhile v0 > 0:\n  v0 = 1",
        "\n".join(["v0 = 1", *["v0 += 1"] * 199]),
        "\n".join(["v0 = 1", *["  " * k + "if v0 > 0:" for k in range(198)], "  " * 198 + "v0 += 1"]),
        loops(9, 1, ["v0 *= 3"] * 196),
        loops(9, 2, ["v0 *= 3"] * 190),
        loops(9, 3, ["v0 *= 3"] * 20),
        loops(999, 1, ["v0 *= 3"]),
        loops(9, 2, ["_", "_"]),
        "\n".join(["v0 = 1", *["_"] * 199]),
    ]


def attack_memory(server: Server, deadline: float) -> Tally:
    """For each model, the requests that take most memory; one in each lane of the server at a time."""
    tally, lock = Tally("memory"), threading.Lock()
    jobs = iter([(name, source) for source in large_programs() for name in available_models()])

    def work(_: int) -> None:
        while True:
            with lock:
                name, source = next(jobs, (None, ""))
                if name is None or time.monotonic() > deadline:
                    return
                tally.injected += 1
            with _unanswered(tally):
                status, _ = server.ask("POST", "/api/explain", {"source": source, "model": name}, 2 * HANG_SECONDS)
                with lock:
                    tally.refused += status in (422, 503)
                    tally.errors_5xx += status >= 500 and status != 503

    return _together(work, 3, server, tally)


def attack_connections(server: Server) -> Tally:
    """Idle and unread connections, during which others must be answered."""
    tally = Tally("connections")
    body = json.dumps({"source": "v0 = 7\nv1 = 9\nwhile v1 > 0:\n  v1 -= 1\n  v0 *= 2"})
    header = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    unread = f"POST /api/explain HTTP/1.1\r\n{header}{body}".encode() * 100
    half = b"POST /api/predict HTTP/1.1\r\nHost: loc"
    for count, first in ((1_100, half), (260, unread)):
        held = []
        for _ in range(count):
            one = socket.socket()
            one.settimeout(5)
            with suppress(OSError):
                one.connect((server.address.hostname, server.address.port))
                one.setblocking(False)
                one.send(first)
            held.append(one)
            tally.injected += 1
            if len(held) % 100 == 0:
                with _unanswered(tally):
                    status, _ = server.ask("GET", "/api/health", timeout=10)
                    tally.refused += status == 503
                    tally.lost += status not in (200, 503)
        for one in held:
            one.close()
    tally.tracebacks = server.log.read_text().count("Traceback")
    tally.peak_mb = peak_mb(server.process.pid)
    tally.hangs += server.end() > 12
    return tally
