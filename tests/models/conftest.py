"""Programs and models for the tests of this room, small and in float64."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ipagnn.models import ModelConfig, ProgramModel, build_model
from ipagnn.programs.cfg import steps
from ipagnn.programs.grammar import Lengths
from ipagnn.programs.program import ProgramTable
from ipagnn.programs.sampler import Sampler

IP_MODELS = ("ipa-gnn", "hard-ip-rnn", "trace-rnn", "line-rnn")

Make = Callable[..., ProgramModel]


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
