"""Small models and sets that the tests of this room share."""

import pytest

from ipagnn.data import test_set
from ipagnn.models import ModelConfig, ProgramModel, build_model
from ipagnn.programs import Grammar, ProgramTable

SMALL = Grammar(modulus=10)


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
