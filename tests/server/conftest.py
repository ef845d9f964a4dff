"""Servers in processes of their own, what is sent to them, and a browser that shows their page."""

import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ipagnn.languages.arithmetic import Grammar
from ipagnn.models import build_model, save_model

from ..modules import EXPERIMENTS, load
from .page import Open, ready

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
ARGUMENTS += ["--disable-component-update", "--disable-sync"]
"""Of chromium."""
LOCALHOST = "http://localhost:8000"


@pytest.fixture(scope="session")
def mutated() -> Callable[[int], Iterator[str]]:
    """Programs with some letters, lines and numbers changed; most are not programs any more."""
    mutations = load(EXPERIMENTS / "attack" / "mutations.py")
    return lambda count: islice(mutations.texts(random.Random(8)), count)


class Served(NamedTuple):
    url: str
    process: "subprocess.Popen[str]"
    weights: list[Path]


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[..., Served]]:
    """`serve([weights, …], "--queue", 1)`: the server in a process of its own, on a free port, killed in the end."""
    started: list[subprocess.Popen[str]] = []

    def start(weights: list[Path], *arguments: object) -> Served:
        models = [part for path in weights for part in ("--model", str(path))]
        command = [sys.executable, "-m", "ipagnn", "serve", "--port", "0", *models, *map(str, arguments)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONWARNINGS": ""}
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stderr is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found, process.stderr.read()
        return Served(found.group(), process, weights)

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def served(serve: Callable[..., Served], tmp_path_factory: pytest.TempPathFactory) -> Served:
    """A server of five small models: `tiny`, `tiny-partial`, `lines`, `values`, and `numbers` of a larger language."""
    pytest.importorskip("uvicorn", reason="uvicorn is not installed; the extra `page` brings it")
    folder = tmp_path_factory.mktemp("served")
    names = {"tiny": "ipa-gnn", "tiny-partial": "ipa-gnn", "lines": "line-rnn", "values": "env-ipa-gnn"}
    for seed, (name, model) in enumerate(names.items()):
        task = "partial" if name == "tiny-partial" else "full"
        save_model(build_model(model, hidden=16, seed=seed), folder / f"{name}.safetensors", task=task)
    language = Grammar(
        modulus=10**18, variables=3, initial_values=(0, 10**18 - 1), operand_variable=1, condition_variable=1, wrap=True
    )
    numbers = build_model("env-ipa-gnn", hidden=4, width=4, states=3, grammar=language)
    save_model(numbers, folder / "numbers.safetensors", task="full")
    return serve([folder / f"{name}.safetensors" for name in (*names, "numbers")])


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's chromium, driven by playwright."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed; the extra `test` brings it"
    )
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed; `make test` installs it where it may")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Any, served: Any) -> Iterator[Open]:
    """Opens the page; in the end, it must have asked nobody but its server and complained of nothing."""
    contexts, asked, complaints = [], [], []

    def visit_page(fragment: str = "", **options: Any) -> Any:
        options = {"viewport": {"width": 1280, "height": 860}} | options
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.goto(f"{served.url}{fragment}")
        ready(page)
        return page

    yield visit_page
    for context in contexts:
        context.close()
    assert not [url for url in asked if not url.startswith((served.url, "data:,"))]
    assert not [text for text in complaints if "status of 422" not in text]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("weights")
    paths = [folder / "tiny.safetensors", folder / "tiny-partial.safetensors", folder / "lines.safetensors"]
    for seed, (path, name) in enumerate(zip(paths, ("ipa-gnn", "ipa-gnn", "line-rnn"), strict=True)):
        task = "partial" if path.stem == "tiny-partial" else "full"
        save_model(build_model(name, hidden=8, seed=seed), path, task=task)
    return paths


def problem(answer: Any, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    document: dict[str, Any] = answer.json()
    assert set(document) == {"detail", "line", "column"}
    assert document["detail"].endswith((".", "?"))
    return document
