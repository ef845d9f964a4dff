"""The command line, called in this process and as a process of its own."""

import io
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch

from ipagnn.apps.cli import main


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
def is_sentence() -> Callable[[str], bool]:
    """Whether a text is what goes to standard error on bad input: one line that ends like a sentence."""

    def check(text: str) -> bool:
        return text.startswith("Error: ") and text.count("\n") == 1 and text.endswith((".\n", "?\n", "!\n"))

    return check
