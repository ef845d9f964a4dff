import pytest

from ipagnn.languages.arithmetic import Lengths, ProgramTable, Sampler


@pytest.fixture(scope="session")
def mixed() -> ProgramTable:
    """Complete programs of many lengths, some with traces of thousands of steps."""
    return Sampler(lengths=Lengths.uniform((2, 3, 5, 10, 20, 30)), seed=4).table(0, 200)
