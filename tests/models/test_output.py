"""What is recorded is asked for by name."""

import pytest
import torch

from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.models import MODELS, Recorded

from ..conftest import Make


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_recorded_unless_asked_for(make: Make, short: ProgramTable, name: str) -> None:
    model = make(name)
    batch = model.collate(short.slice(0, 6))  # beliefs of all at each step would be gigabytes
    output = model(batch)
    assert output.recorded == {}
    assert output.predictions.keys() == {"value"}
    wanted = model.records - {"dropped"}
    found = model(batch, record=wanted)
    assert found.recorded.keys() == wanted
    torch.testing.assert_close(found.logits, output.logits)
    sizes = {"step": int(batch.steps.max()), "node": len(batch.true), "program": len(batch)}
    for name, each in found.recorded.items():
        assert len(each.axes) == each.data.ndim
        for axis, size in zip(each.axes, each.data.shape, strict=True):
            if axis in sizes and model.name != "trace-rnn":
                assert size == sizes[axis], name


def test_unknown_quantities_are_refused_with_those_that_are_known(make: Make, short: ProgramTable) -> None:
    model = make("ipa-gnn")
    batch = model.collate(short)
    with pytest.raises(ValueError, match=r"does not record 'pionter'. Did you mean 'pointer'\?"):
        model(batch, record=("pionter",))
    with pytest.raises(ValueError, match=r"does not record 'pointer'. It records nothing"):
        make("line-rnn")(batch, record=("pointer",))
    assert model(batch, record="pointer").recorded.keys() == {"pointer"}
    with pytest.raises(KeyError, match="branch was not recorded"):
        model(batch, record=("pointer",))["branch"]


def test_axes_are_those_of_the_data() -> None:
    with pytest.raises(ValueError, match="2 axes, and 1 are named"):
        Recorded(torch.zeros(2, 3), ("step",))
