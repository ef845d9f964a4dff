"""Servers in processes of their own, and what is sent to them."""

import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pytest

from ipagnn.languages.arithmetic import Grammar
from ipagnn.models import build_model, save_model

from ..modules import EXPERIMENTS, load


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
