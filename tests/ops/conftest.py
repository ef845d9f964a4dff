"""Ways in which rows run on a CPU, and how close their results are."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from ipagnn.languages.arithmetic import ProgramTable
from ipagnn.ops.pointer.cpu import backend
from ipagnn.ops.pointer.cpu import parts as packed_parts

EXACT = {"rtol": 1e-10, "atol": 1e-12}

HOWS = ("rows", "compiled", "parts")
"""The ways in which rows run on a CPU; see `how`."""


@pytest.fixture
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """In plain torch, in compiled code, or that on three threads."""
    if request.param == "rows":
        monkeypatch.setattr(backend, "product", lambda kind: None)
    if request.param == "parts":
        monkeypatch.setattr(packed_parts, "LEAST_WORK", 1e-3)
        torch.set_num_threads(3)
    yield request.param
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def some(mixed: ProgramTable) -> ProgramTable:
    """Programs of 2 to 40 lines."""
    return mixed.take([i for i, program in enumerate(mixed) if len(program) <= 40])


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor], **tolerance: float) -> None:
    assert ours.keys() == theirs.keys()
    for key, value in ours.items():
        torch.testing.assert_close(value, theirs[key], **tolerance, msg=lambda m, key=key: f"{key}: {m}")
