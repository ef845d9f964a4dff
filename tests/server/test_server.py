"""The HTTP API: answers, refusals, and what a browser may do with it."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="fastapi is not installed; the extra `page` brings it")
from fastapi.testclient import TestClient

from ipagnn.inference.explain import explain
from ipagnn.inference.predict import predict
from ipagnn.languages.arithmetic import Grammar, Lengths, Sampler, format_program
from ipagnn.languages.arithmetic.card import FORMS
from ipagnn.models import EnvIPAGNN, available_models, build_model, save_model
from ipagnn.server import schema
from ipagnn.server.app import create_app
from ipagnn.server.guard import LOCAL, Guard
from ipagnn.server.models import Offer

from .conftest import LOCALHOST, problem

LOOP = "v0 = 7\nv1 = 3\nwhile v1 > 0:\n  v1 -= 1\n  v0 *= 2\n"
MASKED = "v0 = 3\n[MASK]\nv0 *= 2\n"
NESTED = "v0 = 1\n" + "".join("  " * k + "while v0 > 0:\n" for k in range(40)) + "  " * 40 + "v0 -= 1"


@pytest.fixture(scope="module")
def app(weights: list[Path]) -> Guard:
    return create_app(Offer(weights))


@pytest.fixture(scope="module")
def client(app: Guard) -> Iterator[TestClient]:
    with TestClient(app, LOCALHOST, raise_server_exceptions=False) as opened:
        yield opened


def test_answers_are_those_of_the_command(client: TestClient, weights: list[Path]) -> None:
    for route, function in (("predict", predict), ("explain", explain)):
        for source, path in ((LOOP, weights[0]), (MASKED, weights[1])):
            answer = client.post(f"/api/{route}", json={"source": source})
            assert answer.status_code == 200, answer.text
            expected = json.loads(json.dumps(function(source, path).to_dict()))
            assert answer.json() == expected | {"model": path.stem}


def test_a_named_model_answers(client: TestClient) -> None:
    answer = client.post("/api/explain", json={"source": LOOP, "model": "lines"}).json()
    assert answer["model"] == "lines"
    assert answer["pointer"] is None
    assert answer["true_value"] == 56


def test_numbers_beyond_2_to_53_are_text(client: TestClient) -> None:
    answer = schema.PredictionAnswer.model_validate(
        predict("v0 = 1\nv0 += 2", EnvIPAGNN(hidden=4, width=4, states=3, grammar=Grammar(modulus=10**18))).to_dict()
    )
    edge = answer.model_copy(update={"value": 2**53 - 1, "true_value": 2**53})
    told = json.loads(edge.model_dump_json())
    assert (told["value"], told["true_value"], told["modulus"]) == (2**53 - 1, str(2**53), str(10**18))
    described = client.get("/api/openapi.json").json()["components"]["schemas"]["PredictionAnswer"]["properties"]
    assert {each["type"] for each in described["value"]["anyOf"]} == {"integer", "string"}


def test_the_language_card(client: TestClient) -> None:
    answer = client.get("/api/language").json()
    assert [form["text"] for form in answer["forms"]] == [form.text for form in FORMS]
    for example in answer["examples"]:
        assert client.post("/api/predict", json={"source": example["source"]}).status_code == 200


def test_models_sample_and_health(client: TestClient) -> None:
    answer = client.get("/api/models").json()
    assert [(m["name"], m["architecture"], m["task"]) for m in answer] == [
        ("tiny", "ipa-gnn", "full"),
        ("tiny-partial", "ipa-gnn", "partial"),
        ("lines", "line-rnn", "full"),
    ]
    drawn = client.get("/api/sample", params={"length": 12, "seed": 3}).json()
    assert drawn["source"] == format_program(Sampler("full", Lengths.exact(12), seed=3).program(0)[0])
    again = client.get("/api/sample", params={"length": 12}).json()
    assert client.get("/api/sample", params={"length": 12, "seed": again["seed"]}).json() == again
    assert "[MASK]" in client.get("/api/sample", params={"task": "partial"}).json()["source"]
    assert client.get("/api/health").json()["status"] == "ok"


def test_a_bad_program_is_told_with_its_place(client: TestClient) -> None:
    shown = problem(client.post("/api/predict", json={"source": "v0 = 1\nv0 /= 2"}), 422)
    assert (shown["line"], shown["column"]) == (2, 4)
    assert "found `/=`" in shown["detail"]


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ({}, 422, "source: Field required"),
        ({"source": 1}, 422, "source"),
        ({"source": "v0 = 1", "model": "../../etc/passwd"}, 422, "There is no model '../../etc/passwd'"),
        ({"source": "v0 = 1", "more": 1}, 422, "more"),
        ({"source": "v0 = 1\n" * 201}, 422, "201 lines"),
        ({"source": "v0 = 1\n" + "#" * 70_000}, 413, "larger than 65,536 bytes"),
        ({"source": NESTED}, 422, "steps"),
    ],
)
def test_bad_requests(client: TestClient, body: dict[str, Any], status: int, sentence: str) -> None:
    assert sentence in problem(client.post("/api/explain", json=body), status)["detail"]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[" * 60_000, b"\xff\xfe", b'{"source": NaN}', b'{"source": "\\ud800"}', b"null"]
)
def test_bodies_that_are_not_json(client: TestClient, content: bytes) -> None:
    answer = client.post("/api/predict", content=content, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    problem(answer, answer.status_code)


def test_text_is_not_taken_for_json(client: TestClient) -> None:
    # Forms and texts are what another site's page could send without asking first.
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        answer = client.post("/api/predict", content=json.dumps({"source": LOOP}), headers={"content-type": kind})
        problem(answer, 422)


def test_unknown_places_and_methods(client: TestClient) -> None:
    problem(client.get("/api/nothing"), 404)
    problem(client.get("/../pyproject.toml"), 404)
    problem(client.get("/api/predict"), 405)
    problem(client.get("/api/sample", params={"length": 101}), 422)
    problem(client.get("/api/sample", params={"length": 2, "task": "partial", "model": "x"}), 422)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "localhost:8000"}, 200),
        ({"host": "127.0.0.1"}, 200),
        ({"host": "[::1]:8000"}, 200),
        ({"host": "evil.example"}, 400),
        ({"host": "localhost.evil.example:8000"}, 400),
        ({"host": ""}, 400),
        ({"origin": LOCALHOST}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://localhost:9999"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
    ],
)
def test_who_may_ask(client: TestClient, headers: dict[str, str], status: int) -> None:
    answer = client.get("/api/health", headers=headers)
    assert answer.status_code == status
    if status != 200:
        problem(answer, status)


def test_headers_keep_the_page_to_itself(client: TestClient) -> None:
    for path in ("/", "/api/health", "/nothing"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
    assert client.get("/api/health").headers["cache-control"] == "no-store"


def test_the_page_loads_nothing_from_another_host(client: TestClient) -> None:
    page = client.get("/").text
    loaded = [client.get(f"/{name}").text for name in re.findall(r'(?:src|href)="/?([\w.]+\.(?:js|css))"', page)]
    loaded += [client.get(f"/{name}").text for name in re.findall(r'from "\./([\w.]+)"', "".join(loaded))]
    assert len(loaded) > 5
    for text in (re.sub(r'<a href="https://[^"]*"', "", page), *loaded):  # links load nothing until they are followed
        assert "http" not in text.replace("http://www.w3.org/", "")
    assert "<script>" not in page
    assert "style=" not in page
    assert "onclick" not in page


def test_a_mistake_of_ours_is_a_sentence_too(weights: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipagnn.server.app._prepare", lambda *_: 1 / 0)
    with TestClient(create_app(Offer(weights[:1])), LOCALHOST, raise_server_exceptions=False) as client:
        found = problem(client.post("/api/predict", json={"source": LOOP}), 500)
    assert "division" not in found["detail"]


def test_names_of_models_are_short_and_differ(tmp_path: Path, weights: list[Path]) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "model.safetensors").write_bytes(weights[0].read_bytes())
    offer = Offer([run, run / "model.safetensors", weights[0]])
    assert list(offer.models) == ["run", "run-2", "tiny"]
    with pytest.raises(ValueError, match="no model to serve"):
        Offer([])
    trace = tmp_path / "trace.safetensors"
    save_model(build_model("trace-rnn", hidden=4), trace)
    with pytest.raises(ValueError, match="masked line"):
        Offer([trace]).choose(None, "partial")


def test_who_names_no_model_gets_the_environment_ipa_gnn_of_the_package() -> None:
    offer = Offer.packaged()
    assert set(offer.models) == set(available_models())
    assert [offer.choose(None, task).name for task in ("full", "partial")] == [
        "env-ipa-gnn-full",
        "env-ipa-gnn-partial",
    ]


def test_the_description_lists_all_answers(client: TestClient) -> None:
    document = client.get("/api/openapi.json").json()
    assert set(document["paths"]) == {
        f"/api/{name}" for name in ("predict", "explain", "sample", "models", "language", "health")
    }
    assert "HTTPValidationError" not in document["components"]["schemas"]
    for path in document["paths"].values():
        for operation in path.values():
            for status, answer in operation["responses"].items():
                if status != "200":
                    schema = answer["content"]["application/json"]["schema"]
                    assert schema == {"$ref": "#/components/schemas/Problem"}
            assert {"200", "400", "403", "413", "422", "503"} <= set(operation["responses"])


def test_mutated_programs_are_answered_or_refused(client: TestClient, mutated: Callable[[int], Iterator[str]]) -> None:
    seen = {client.post("/api/predict", json={"source": source}).status_code for source in mutated(150)}
    assert seen <= {200, 422}
    assert len(seen) == 2


def test_hosts_are_what_was_allowed(weights: list[Path]) -> None:
    app = create_app(Offer(weights[:1]), hosts={*LOCAL, "my.example"})
    with TestClient(app, "http://my.example:8000") as client:
        assert client.get("/api/health").status_code == 200


@pytest.mark.skipif("env-ipa-gnn-extended" not in available_models(), reason="this installation comes without weights")
@pytest.mark.parametrize("model", [None, "tiny"])
def test_the_error_names_a_model_here_that_reads_more(weights: list[Path], model: str | None) -> None:
    asked = {"source": "v0 = 12345\nv1 = 3\nv0 -= v1"} | ({} if model is None else {"model": model})
    say = "accepted: a whole number from 0 to 999. The model env-ipa-gnn-extended reads such programs."
    with TestClient(create_app(Offer([*weights, "env-ipa-gnn-extended"])), LOCALHOST) as opened:
        assert problem(opened.post("/api/predict", json=asked), 422)["detail"].endswith(say)
        proved = opened.post("/api/predict", json=asked | {"model": "env-ipa-gnn-extended"}).json()
        assert (proved["value"], proved["proved"], proved["warnings"]) == (12342, True, [])
    with TestClient(create_app(Offer(weights)), LOCALHOST) as opened:
        assert problem(opened.post("/api/predict", json=asked), 422)["detail"].endswith("from 0 to 999.")
