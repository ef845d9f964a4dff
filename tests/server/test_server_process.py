"""The server as people run it: a process, a port, many at once, an end."""

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings

pytest.importorskip("uvicorn", reason="uvicorn is not installed; the extra `page` brings it")

from ipagnn.inference.predict import predict
from ipagnn.languages.arithmetic import Lengths, Sampler, format_program
from ipagnn.models import build_model, save_model

Run = Callable[..., Any]


@contextmanager
def connect(url: str) -> Iterator[http.client.HTTPConnection]:
    with closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)) as connection:
        yield connection


def busy(connection: http.client.HTTPConnection) -> int:
    connection.request("GET", "/api/health")
    count: int = json.loads(connection.getresponse().read())["busy"]
    return count


def post(connection: http.client.HTTPConnection, path: str, source: str) -> tuple[int, dict[str, Any]]:
    connection.request("POST", path, json.dumps({"source": source}), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    found: dict[str, Any] = json.loads(answer.read())
    return answer.status, found


def programs(length: int, count: int, seed: int = 0) -> list[str]:
    return [format_program(program) for program in Sampler("full", Lengths.exact(length), seed=seed).table(0, count)]


def load(url: str, sources: list[str], connections: int) -> tuple[list[tuple[int, dict[str, Any]]], list[float]]:
    """All of `sources` over so many connections at once: the answers in order, and the seconds each took."""
    answers: list[Any] = [None] * len(sources)
    seconds = [0.0] * len(sources)

    def work(first: int) -> None:
        with connect(url) as connection:
            for i in range(first, len(sources), connections):
                began = time.monotonic()
                answers[i] = post(connection, "/api/predict", sources[i])
                seconds[i] = time.monotonic() - began

    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(work, range(connections)))
    return answers, seconds


def check_load(served: Any, count: int) -> list[float]:
    sources = programs(10, count)
    answers, seconds = load(served.url, sources, 8)
    for source, (status, found) in zip(sources, answers, strict=True):
        assert status == 200, found
        expected = predict(source, served.weights[0]).to_dict()
        assert found["true_value"] == expected["true_value"]
        assert found["lines"] == expected["lines"]
        assert found["top"][0]["probability"] == pytest.approx(expected["top"][0]["probability"], rel=1e-4)
    return sorted(seconds)


def test_many_at_once(served: Any) -> None:
    check_load(served, 40)


@pytest.mark.slow
def test_two_hundred_requests_over_eight_connections(served: Any, capsys: pytest.CaptureFixture[str]) -> None:
    seconds = check_load(served, 200)
    with capsys.disabled():
        print(f"\n200 requests, 8 connections: median {seconds[100] * 1e3:.0f} ms, p99 {seconds[197] * 1e3:.0f} ms")
    assert seconds[-1] < 10


def test_answers_are_sent_at_once(served: Any) -> None:
    with connect(served.url) as connection:
        seconds = []
        for _ in range(30):
            began = time.monotonic()
            busy(connection)
            seconds.append(time.monotonic() - began)
    assert min(seconds[1:]) < 0.03  # a socket that waits for more to send takes 40 ms every time


def memory(process: "subprocess.Popen[str]") -> int:
    status = Path(f"/proc/{process.pid}/status")
    if not status.exists():
        pytest.skip("memory of another process is read from /proc, which is not there")
    return int(next(line for line in status.read_text().splitlines() if line.startswith("VmRSS")).split()[1]) * 1024


@pytest.mark.slow
def test_ten_thousand_mutated_programs(served: Any, mutated: Callable[[int], Iterator[str]]) -> None:
    seen: dict[int, int] = {}
    before = 0
    with connect(served.url) as connection:
        for i, source in enumerate(mutated(10_000)):
            if i == 2_000:
                before = memory(served.process)
            status, found = post(connection, ("/api/predict", "/api/explain")[i % 2], source)
            seen[status] = seen.get(status, 0) + 1
            if status != 200:
                assert found["detail"].endswith((".", "?")), found
    assert set(seen) <= {200, 413, 422}
    assert seen[200] > 500
    assert seen[422] > 500
    assert memory(served.process) - before < 64 * 2**20


def test_short_questions_do_not_wait_for_long_ones(served: Any) -> None:
    def ask_long() -> list[int]:
        with connect(served.url) as connection:
            return [post(connection, "/api/explain", source)[0] for source in programs(100, 3, seed=2)]

    slowest = 0.0
    with ThreadPoolExecutor(1) as pool, connect(served.url) as connection:
        long = pool.submit(ask_long)
        while not long.done() or not slowest:
            began = time.monotonic()
            busy(connection)
            assert post(connection, "/api/predict", "v0 = 1\nv0 += 1")[1]["true_value"] == 2
            slowest = max(slowest, time.monotonic() - began)
        assert long.result() == [200] * 3
    assert slowest < 2


def test_what_has_begun_is_finished(serve: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "slow.safetensors"
    save_model(build_model("ipa-gnn", hidden=64), path)
    served = serve([path], "--max-seconds", 60)
    (source,) = programs(100, 1, seed=2)
    with connect(served.url) as connection, connect(served.url) as watching:
        body = json.dumps({"source": source})
        connection.request("POST", "/api/explain", body, {"Content-Type": "application/json"})
        while not busy(watching):
            pass
        served.process.send_signal(signal.SIGTERM)
        answer = connection.getresponse()
        assert answer.status == 200
        assert json.loads(answer.read())["lines"]
    _, errors = served.process.communicate(timeout=30)
    assert served.process.returncode == 0
    assert not errors


def test_a_port_that_is_taken(run: Run, served: Any, is_sentence: Callable[[str], bool]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("serve", "--model", served.weights[0], "--port", taken.getsockname()[1])
    assert done.code == 2
    assert is_sentence(done.err)
    assert "choose another with --host and --port" in done.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--host", "0.0.0.0"], "--allow-host"),
        (["--host", "no.such.host.invalid"], "Nothing can be served at no.such.host.invalid"),
        (["--port", "70000"], "--port"),
        (["--model", "missing"], "There is no file and no model 'missing'"),
    ],
)
def test_bad_options(
    run: Run, served: Any, is_sentence: Callable[[str], bool], arguments: list[str], sentence: str
) -> None:
    done = run("serve", "--model", served.weights[0], *arguments)
    assert done.code == 2
    assert is_sentence(done.err)
    assert sentence in done.err


def test_nothing_to_serve(run: Run, is_sentence: Callable[[str], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipagnn.server.models.available_models", list)
    done = run("serve")
    assert done.code == 2
    assert is_sentence(done.err)
    assert "There is no model to serve" in done.err


def test_without_the_extra() -> None:
    script = "import sys; sys.modules['uvicorn'] = None; from ipagnn.cli.main import main; sys.exit(main(['serve']))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False, text=True)
    assert done.returncode == 2
    assert "pip install 'ipagnn[page]'" in done.stderr


@pytest.mark.slow
def test_the_description_tells_the_truth(served: Any) -> None:
    schemathesis = pytest.importorskip(
        "schemathesis", reason="schemathesis is not installed; `make test-all` brings it"
    )

    from schemathesis.specs.openapi import checks

    schema = schemathesis.openapi.from_url(f"{served.url}api/openapi.json")
    for operation in (found.ok() for found in schema.get_all_operations()):

        @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(operation.as_strategy())
        def ask(case: Any) -> None:
            # No schema can tell which texts are programs: those that are not are refused, as it says.
            case.call_and_validate(excluded_checks=[checks.positive_data_acceptance])

        ask()
