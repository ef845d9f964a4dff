import time

import pytest
import torch

from ipagnn.data.collate import StepBudget
from ipagnn.languages.arithmetic.grammar import Lengths
from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.languages.arithmetic.sampler import Sampler
from ipagnn.models import build_model

from ..conftest import Make


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("name", ["ipa-gnn", "hard-ip-rnn"])
def test_pruning_next_to_nothing_changes_nothing(make: Make, mixed: ProgramTable, name: str, normalise: bool) -> None:
    packed = make(name, normalise=normalise).eval()
    batch = packed.collate(mixed)
    expected = packed(batch, record=("pointer", "branch"))
    found = packed(batch, record=("pointer", "branch", "dropped"), prune=1e-300)
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
    model = make("ipa-gnn", budget=StepBudget(factor=50.0)).eval()
    batch = model.collate(mixed)
    output = model(batch, record=("pointer", "branch", "dropped"), prune=1e-3)
    assert batch.graphs.plans == {}, "no rows are planned"
    assert output["dropped"].max() > 1e-3
    torch.testing.assert_close(
        output["pointer"][-1, batch.exits] + output["dropped"], torch.ones_like(output["dropped"])
    )
    assert len(output["branch"]) < batch.steps.max() / 4, "it ends when nothing is left to follow"


def test_a_hard_pointer_costs_one_row_a_step(make: Make, mixed: ProgramTable, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("hard-ip-rnn").eval()
    rows: list[int] = []
    forward = model.cell.forward
    monkeypatch.setattr(model.cell, "forward", lambda state, *more: (rows.append(len(state)), forward(state, *more))[1])
    batch = model.collate(mixed)
    output = model(batch, record=("dropped",), prune=0.5)
    assert 0 < sum(rows) <= int(batch.steps.sum())
    assert not output["dropped"].any()


def test_pruning_is_for_inference(make: Make, short: ProgramTable) -> None:
    model = make("ipa-gnn")
    batch = model.collate(short)
    with pytest.raises(RuntimeError, match=r"call model.eval\(\) first"):
        model(batch, prune=1e-4)
    model.eval()
    assert model(batch, record=("dropped",), prune=1e-4)["dropped"].shape == (len(short),)
    with pytest.raises(ValueError, match="'pruned' cannot run this: it does not record states"):
        model(batch, record=("states",), execution="pruned", prune=1e-4)


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("name", ["ipa-gnn", "hard-ip-rnn"])
def test_pruning_is_what_the_reference_prunes(make: Make, short: ProgramTable, name: str, normalise: bool) -> None:
    model = make(name, normalise=normalise).eval()
    batch = model.collate(short)
    wanted = model(batch, record=("dropped", "pointer"), prune=0.1, execution="reference")
    found = model(batch, record=("dropped", "pointer"), prune=0.1, execution="pruned")
    torch.testing.assert_close(found.logits, wanted.logits, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found["dropped"], wanted["dropped"], rtol=1e-9, atol=1e-12)
    ours, theirs = (each["pointer"][:, batch.exits] for each in (found, wanted))
    torch.testing.assert_close(ours, theirs[: len(ours)], rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_twenty_programs_of_length_100_in_twenty_seconds() -> None:
    """In seconds of one core, which a busy machine does not stretch."""
    table = Sampler(lengths=Lengths.exact(100), seed=0).table(0, 20)
    model = build_model("ipa-gnn", hidden=200).eval()
    model(model.collate(table.slice(0, 1)), prune=1e-4)
    start = time.process_time()
    found = model(model.collate(table), record=("dropped",), prune=1e-4)
    seconds = time.process_time() - start
    with torch.no_grad():
        expected = model(model.collate(table))
    print(f"{seconds:.1f} s; at most {found['dropped'].max():.4f} of the mass dropped")
    assert torch.equal(found.logits.argmax(1), expected.logits.argmax(1))
    assert seconds < 20
