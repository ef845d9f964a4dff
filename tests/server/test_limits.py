"""What the server does not wait for: full queues, long programs, slow clients, work that nobody asked for any more."""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("fastapi", reason="fastapi is not installed; the extra `page` brings it")
from fastapi.testclient import TestClient

from ipagnn.inference.beliefs import walk
from ipagnn.inference.predict import true_result
from ipagnn.languages.arithmetic import Lengths, Sampler, control_flow_graph, format_program
from ipagnn.models import build_model, save_model
from ipagnn.server.app import _prepare, create_app
from ipagnn.server.limits import BusyError, Lane, Limits, TooLongError
from ipagnn.server.models import Offer
from ipagnn.server.schema import ProgramRequest

from .conftest import LOCALHOST, problem
from .page import LOOP


def endless() -> None:
    """Work of torch that only an exception ends."""
    x = torch.zeros(1)
    while True:
        x = x + 1


def test_a_full_queue_says_when_to_come_back(weights: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    gate, begun = threading.Event(), threading.Event()
    real = Offer.choose

    def slow(*arguments: Any) -> Any:
        begun.set()
        gate.wait(20)
        return real(*arguments)

    app = create_app(Offer(weights), Limits(queue=0))
    with TestClient(app, LOCALHOST) as client:
        monkeypatch.setattr(Offer, "choose", slow)
        answers: list[Any] = []
        first = threading.Thread(target=lambda: answers.append(client.post("/api/predict", json={"source": LOOP})))
        first.start()
        assert begun.wait(20)
        refused = client.post("/api/predict", json={"source": LOOP})
        assert client.get("/api/health").json()["busy"] == 1
        gate.set()
        first.join()
        assert client.get("/api/health").json()["busy"] == 0
    problem(refused, 503)
    assert int(refused.headers["retry-after"]) >= 1
    assert answers[0].status_code == 200


def test_a_request_may_not_take_forever(weights: list[Path]) -> None:
    with TestClient(create_app(Offer(weights[:1]), Limits(seconds=0.001)), LOCALHOST) as client:
        source = format_program(Sampler("full", Lengths.exact(30), seed=1).program(0)[0])
        answer = client.post("/api/explain", json={"source": source})
        assert answer.status_code in (422, 503)
        assert "second" in problem(answer, answer.status_code)["detail"]


def test_lanes_end_work_and_forget_it() -> None:
    async def check() -> None:
        lane = Lane("test", Limits(seconds=0.5, queue=1))
        began = time.monotonic()
        with pytest.raises(TooLongError):
            await lane.run(endless)
        assert time.monotonic() - began < 10
        first = asyncio.ensure_future(lane.run(lambda: time.sleep(0.8)))
        second = asyncio.ensure_future(lane.run(lambda: 1))
        await asyncio.sleep(0.01)
        with pytest.raises(BusyError):
            await lane.run(lambda: 2)
        await first
        with pytest.raises(BusyError):  # its time was over before its turn came
            await second
        assert await lane.run(lambda: 3) == 3
        await asyncio.sleep(0)
        assert lane.busy == 0
        lane.close()

    asyncio.run(check())


def test_fillings_of_masked_lines_end_with_the_time() -> None:
    """Loops in Python that compute with no tensor: those of the true result, and of the model's runs over tables."""
    model = Offer(["env-ipa-gnn-partial"]).choose(None, "partial")
    program = model.parse("v0 = 1\n[MASK]\n[MASK]")
    graph = control_flow_graph(program)
    loops = [lambda: true_result(program, model.grammar), lambda: walk(program, graph, model, 10)]

    async def check() -> None:
        lane = Lane("test", Limits(seconds=0.05))
        for loop in loops:
            loop()
            with pytest.raises(TooLongError):
                await lane.run(lambda loop=loop: (time.sleep(0.1), loop()))  # type: ignore[misc]
        lane.close()

    asyncio.run(check())


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_the_lane_is_chosen_by_what_a_program_costs(weights: list[Path], end: str) -> None:
    offer = Offer(weights[:1])

    def is_long(lines: list[str]) -> bool:
        return _prepare(ProgramRequest(source=end.join(lines), model=None), offer, Limits()).is_long

    assert not is_long(["v0 = 1", *["# no line"] * 100, *["v0 += 1"] * 30])
    assert is_long(["v0 = 1", *["v0 += 1"] * 60])
    nested = ["v0 = 1", *("  " * depth + "while v0 > 3:" for depth in range(12)), "  " * 12 + "v0 -= 1"]
    assert is_long(nested)


def test_many_fillings_of_masked_lines_wait_in_the_long_lane() -> None:
    offer = Offer(["env-ipa-gnn-partial"])
    one, two = ("v0 = 1\n" + "[MASK]\n" * masks for masks in (1, 2))
    assert [_prepare(ProgramRequest(source=s, model=None), offer, Limits()).is_long for s in (one, two)] == [
        False,
        True,
    ]


def test_a_trace_is_not_followed_without_bounds(tmp_path: Path) -> None:
    save_model(build_model("trace-rnn", hidden=4), tmp_path / "trace.safetensors")
    offer = Offer([tmp_path / "trace.safetensors"])
    endless = ProgramRequest(source="v0 = 1\nwhile v0 > 0:\n  v0 = 1", model=None)
    with pytest.raises(ValueError, match="The program executes more than 2,500 statements"):
        _prepare(endless, offer, Limits())
    _prepare(ProgramRequest(source="v0 = 1\nv0 += 1", model=None), offer, Limits())


def test_work_that_nobody_waits_for_is_given_up() -> None:
    async def check() -> None:
        lane = Lane("test", Limits(seconds=60, queue=4))
        begun = [asyncio.ensure_future(lane.run(work)) for work in (endless, lambda: ran.append(1))]
        await asyncio.sleep(0.05)
        assert lane.busy == 2
        for one in begun:
            one.cancel()
        assert await asyncio.wait_for(lane.run(lambda: 3), 10) == 3
        await asyncio.sleep(0.01)
        assert (lane.busy, ran) == (0, [])
        lane.close()

    ran: list[int] = []
    asyncio.run(check())


def test_a_slow_body_is_not_waited_for(weights: list[Path]) -> None:
    app = create_app(Offer(weights[:1]), Limits(body_seconds=0.05))
    sent: list[Any] = []

    async def receive() -> Any:
        await asyncio.sleep(60)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/api/predict", "headers": [(b"host", b"localhost")]}
    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 408


def test_too_many_open_requests(weights: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipagnn.server.guard.MOST_REQUESTS", 0)
    with TestClient(create_app(Offer(weights[:1])), LOCALHOST) as client:
        refused = client.get("/api/health")
    problem(refused, 503)
    assert refused.headers["retry-after"] == "1"
