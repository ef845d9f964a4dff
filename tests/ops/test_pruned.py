import time

import pytest
import torch

from ipagnn.data.collate import StepBudget
from ipagnn.languages.arithmetic.grammar import Lengths
from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.languages.arithmetic.sampler import Sampler
from ipagnn.models import build_model
from ipagnn.models.ipa_gnn import IPAGNN
from ipagnn.ops.pointer.streaming.pruned import run_pruned

from ..conftest import Make


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("name", ["ipa-gnn", "hard-ip-rnn"])
def test_pruning_next_to_nothing_changes_nothing(make: Make, mixed: ProgramTable, name: str, normalise: bool) -> None:
    packed = make(name, normalise=normalise).eval()
    pruned = packed.with_config(prune=1e-300)
    batch = packed.collate(mixed)
    expected = packed(batch, record=("pointer", "branch"))
    found = pruned(pruned.collate(mixed), record=("pointer", "branch", "dropped"))
    torch.testing.assert_close(found.logits, expected.logits, rtol=1e-9, atol=1e-12)
    steps = len(found["branch"])
    exits = batch.exits
    torch.testing.assert_close(
        found["pointer"][:, exits], expected["pointer"][: steps + 1, exits], rtol=1e-9, atol=1e-12
    )
    computed = ~expected["branch"][:steps].isnan() & (expected["pointer"][:steps] > 0)
    torch.testing.assert_close(found["branch"][computed], expected["branch"][:steps][computed], rtol=1e-9, atol=1e-12)
    assert found["dropped"].max() < 1e-250


def test_dropped_mass_is_what_never_arrives(make: Make, mixed: ProgramTable) -> None:
    """With a budget that outlasts every loop, mass is at the exit or was dropped."""
    model = make("ipa-gnn", prune=1e-3, budget=StepBudget(factor=50.0)).eval()
    batch = model.collate(mixed)
    assert batch.rows is None
    output = model(batch, record=("pointer", "branch", "dropped"))
    assert output["dropped"].max() > 1e-3
    torch.testing.assert_close(
        output["pointer"][-1, batch.exits] + output["dropped"], torch.ones_like(output["dropped"])
    )
    assert len(output["branch"]) < batch.steps.max() / 4, "it ends when nothing is left to follow"


def test_a_hard_pointer_costs_one_row_a_step(make: Make, mixed: ProgramTable) -> None:
    model = make("hard-ip-rnn", prune=0.5).eval()
    assert isinstance(model, IPAGNN)
    batch = model.collate(mixed)
    pruned = run_pruned(model.cell, model.control.branch, batch, prune=0.5, hard=True)
    assert pruned.rows <= int(batch.steps.sum())
    assert not pruned.dropped.any()


def test_pruning_is_for_inference(make: Make, short: ProgramTable) -> None:
    model = make("ipa-gnn", prune=1e-4)
    with pytest.raises(RuntimeError, match=r"call model.eval\(\) first"):
        model(model.collate(short))
    model.eval()
    assert model(model.collate(short), record=("dropped",))["dropped"].shape == (len(short),)
    with pytest.raises(ValueError, match="does not record states"):
        model(model.collate(short), record=("pointer", "branch", "states"))


@pytest.mark.slow
def test_twenty_programs_of_length_100_in_twenty_seconds() -> None:
    """In seconds of one core, which a busy machine does not stretch."""
    table = Sampler(lengths=Lengths.exact(100), seed=0).table(0, 20)
    model = build_model("ipa-gnn", hidden=200).eval()
    quick = model.with_config(prune=1e-4)
    quick(quick.collate(table.slice(0, 1)))
    start = time.process_time()
    found = quick(quick.collate(table), record=("dropped",))
    seconds = time.process_time() - start
    with torch.no_grad():
        expected = model(model.collate(table))
    print(f"{seconds:.1f} s; at most {found['dropped'].max():.4f} of the mass dropped")
    assert torch.equal(found.logits.argmax(1), expected.logits.argmax(1))
    assert seconds < 20
