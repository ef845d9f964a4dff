"""Small models and sets that the tests of this room share."""

from collections.abc import Iterator

import pytest
import torch

from ipagnn.data import test_set
from ipagnn.models import ModelConfig, ProgramModel, build_model
from ipagnn.programs import ProgramTable


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Matrices here are small: a second thread costs more than it brings."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def ipa_gnn() -> ProgramModel:
    return build_model(ModelConfig(name="ipa-gnn", hidden=8), seed=1).eval()


@pytest.fixture(scope="session")
def full_programs() -> ProgramTable:
    """Programs of lengths 20 to 100, two of each."""
    return test_set("full", 2)


@pytest.fixture(scope="session")
def partial_programs() -> ProgramTable:
    return test_set("partial", 2)
