"""Programs and models for the tests of this room, small and in float64."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from ipagnn.models import ModelConfig, ProgramModel, build_model, packed_parts
from ipagnn.models.packed_step import PackedPass
from ipagnn.programs.cfg import steps
from ipagnn.programs.grammar import Lengths
from ipagnn.programs.program import ProgramTable
from ipagnn.programs.sampler import Sampler

IP_MODELS = ("ipa-gnn", "hard-ip-rnn", "trace-rnn", "line-rnn")

Make = Callable[..., ProgramModel]

EXACT = {"rtol": 1e-10, "atol": 1e-12}

HOWS = ("torch", "compiled", "parts")
"""The ways in which the packed step runs on a CPU; see `how`."""


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def mixed() -> ProgramTable:
    """Programs of 2 to 60 lines, loops inside loops among them."""
    chosen = []
    for length in (2, 5, 10, 20, 40, 60):
        drawn = Sampler(lengths=Lengths.exact(length), seed=length).table(0, 50)
        quick = [i for i, program in enumerate(drawn) if steps(program) <= 200]  # of the dense execution's time
        chosen.append(drawn.take(quick[:2]))
    table = ProgramTable.concatenate(chosen)
    assert any(steps(program) > 8 * len(program) // 3 for program in table), "loops inside loops are part of the test"
    return table


@pytest.fixture(scope="session")
def short() -> ProgramTable:
    """Programs of the training lengths."""
    return Sampler(seed=7).table(0, 24)


@pytest.fixture(scope="session")
def make() -> Make:
    """A small model in float64, whose decisions are far from even (fresh ones are all close to one half)."""

    def model(name: str, hidden: int = 6, seed: int = 0, **options: Any) -> ProgramModel:
        made = build_model(ModelConfig(name=name, hidden=hidden, **options), seed).double()
        with torch.no_grad():
            for key, parameter in made.named_parameters():
                if "branch.weight" in key:
                    parameter *= 4
        return made

    return model


@pytest.fixture
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """In plain torch, in compiled code, or that on three threads."""
    if request.param == "torch":
        monkeypatch.setattr(packed_parts, "CompiledPass", PackedPass)
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
