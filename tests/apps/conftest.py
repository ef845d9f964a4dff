"""The command line, called in this process and as a process of its own."""

import io
import os
import pty
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch

from ipagnn.apps.cli import main
from ipagnn.models import ModelConfig, build_model, save_model
from ipagnn.programs import Lengths, Sampler, format_program


class Result(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Programs here are small: threads of torch would only wait for each other."""
    torch.set_num_threads(1)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("sample", "--length", "5", stdin=b"…")`: exit code and what was written."""

    def call(*arguments: object, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin)))
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Result(code, *capsys.readouterr())

    return call


@pytest.fixture
def run_process() -> Run:
    """The same in a process of its own."""

    def call(*arguments: object, stdin: bytes = b"") -> Result:
        command = [sys.executable, "-m", "ipagnn", *map(str, arguments)]
        done = subprocess.run(command, input=stdin, capture_output=True, check=False, timeout=300)
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    return call


@pytest.fixture
def run_terminal() -> Callable[..., str]:
    """The same on a terminal 160 columns wide: all that it showed, read while it ran, since a terminal holds 4 kB."""

    def call(*arguments: object) -> str:
        ours, theirs = pty.openpty()
        environment = {name: x for name, x in os.environ.items() if name != "NO_COLOR"}
        environment |= {"TERM": "xterm-256color", "COLUMNS": "160"}
        command = [sys.executable, "-m", "ipagnn", *map(str, arguments)]
        process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment)
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # what a terminal says when nobody writes to it any more
                break
        os.close(ours)
        assert process.wait(300) == 0
        return shown.decode()

    return call


@pytest.fixture
def is_sentence() -> Callable[[str], bool]:
    """Whether a text is what goes to standard error on bad input: one line that ends like a sentence."""

    def check(text: str) -> bool:
        return text.startswith("Error: ") and text.count("\n") == 1 and text.endswith((".\n", "?\n", "!\n"))

    return check


@pytest.fixture(scope="session")
def mutated() -> Callable[[int], Iterator[str]]:
    """Programs with some letters, lines and numbers changed; most are not programs any more."""

    def make(count: int) -> Iterator[str]:
        draw = random.Random(8)
        letters = "v0123456789 +-*/=<>%:\n\t[]_MASK#ifwhilebreakcontinuepasselse\u00e9\u2028\U0001f600\x00"
        tables = [Sampler(task, Lengths.uniform((5, 10, 20)), seed=4).table(0, 200) for task in ("full", "partial")]
        sources = [format_program(program) for table in tables for program in table]
        for _ in range(count):
            text = list(draw.choice(sources))
            for _ in range(draw.choice((0, 1, 1, 2, 5, 30))):
                at = draw.randrange(len(text) + 1)
                kind = draw.randrange(5)
                if kind == 0:
                    text.insert(at, draw.choice(letters))
                elif kind == 1:
                    del text[at : at + draw.randrange(1, 8)]
                elif kind == 2:
                    text[at : at + 1] = draw.choice(letters)
                elif kind == 3:
                    end = at + draw.randrange(1, 60)
                    text[at:at] = text[at:end]
                else:
                    text.insert(at, draw.choice(("999", "1000", "\nwhile v0 > 0:\n  v0 = 1", "\n_", "*= 999")))
            yield "".join(text)

    return make


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
    """A server of three small models: `tiny`, `tiny-partial` and `lines`."""
    pytest.importorskip("uvicorn", reason="uvicorn is not installed; the extra `page` brings it")
    folder = tmp_path_factory.mktemp("served")
    names = {"tiny": "ipa-gnn", "tiny-partial": "ipa-gnn", "lines": "line-rnn"}
    for seed, (name, model) in enumerate(names.items()):
        save_model(build_model(ModelConfig(name=model, hidden=16), seed), folder / f"{name}.safetensors")
    return serve([folder / f"{name}.safetensors" for name in names])
