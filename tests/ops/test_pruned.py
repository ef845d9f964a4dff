import time

import pytest
import torch

from ipagnn.data.collate import StepBudget
from ipagnn.languages.arithmetic.grammar import Lengths
from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.languages.arithmetic.sampler import Sampler
from ipagnn.languages.arithmetic.text import parse
from ipagnn.models import build_model
from ipagnn.ops import PointerCall
from ipagnn.ops.call import Execute
from ipagnn.ops.pointer.cpu import statement
from ipagnn.ops.pointer.cpu.statement import ROWS, compile_execute

from ..conftest import Make


def count_rows(execute: Execute, rows: list[int]) -> Execute:
    """The same, with the number of rows noted."""
    return lambda state, node: (rows.append(len(node)), execute(state, node))[1]


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
    monkeypatch.setattr(statement, "compile_execute", lambda call: count_rows(compile_execute(call), rows))
    batch = model.collate(mixed)
    output = model(batch, record=("dropped",), prune=0.5)
    assert 0 < sum(rows) <= int(batch.steps.sum())
    assert not output["dropped"].any()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_compiled_statements_are_those_of_the_cell(
    make: Make, mixed: ProgramTable, dtype: torch.dtype, tolerance: float
) -> None:
    model = make("ipa-gnn", hidden=5).to(dtype).eval()
    batch, layer = model.collate(mixed), model.layer
    node = torch.arange(len(batch.true)).repeat(-(-2 * ROWS // len(batch.true)) + 1)[: 2 * ROWS + 7]
    state = torch.randn(len(node), 20, dtype=dtype, generator=torch.Generator().manual_seed(0))
    given = state.clone()
    with torch.no_grad():
        call = PointerCall(
            graphs=batch.graphs,
            initial=state.new_zeros(len(batch), 20),
            execute=layer._execute(batch.node_tokens),
            decide=None,
            lstm=layer._lstm(batch.graphs, batch.node_tokens),
        )
        execute = compile_execute(call)
        assert execute is not call.execute
        found = execute(state, node)
        torch.testing.assert_close(found, call.execute(state, node), rtol=0, atol=tolerance)
        torch.testing.assert_close(execute(state[:1], node[:1]), found[:1], rtol=0, atol=tolerance)
    assert torch.equal(state, given), "the states before are left as they were"


def test_nothing_is_followed_that_comes_too_late(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a loop that the steps are used up in, only rounds from which the exit can be reached are run."""
    program = parse("v0 = 3\nv1 = 9\nwhile v1 > 0:\n  v1 -= 1\n  v0 += 1\nv0 += 2\nv0 += 3\nv0 += 4")
    model = make("ipa-gnn", budget=StepBudget(factor=0.6)).eval()
    batch = model.collate([program])
    rows: list[int] = []
    monkeypatch.setattr(statement, "compile_execute", lambda call: count_rows(compile_execute(call), rows))
    found = model(batch, record=("dropped", "exit_mass"), prune=1e-300)
    steps = int(batch.steps[0])
    assert steps - 3 <= len(rows) <= steps
    assert rows[-3:] == [1, 1, 1], "the last three lines, each at the last step that is early enough"
    assert found["dropped"].item() < 1e-250
    expected = model(batch, record=("exit_mass",))
    torch.testing.assert_close(found.logits, expected.logits, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found["exit_mass"], expected["exit_mass"], rtol=1e-9, atol=1e-12)
    assert 0 < found["exit_mass"].item() < 1


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
    record = ("dropped", "pointer", "exit_mass")
    wanted = model(batch, record=record, prune=0.1, execution="reference")
    found = model(batch, record=record, prune=0.1, execution="pruned")
    torch.testing.assert_close(found["exit_mass"], wanted["exit_mass"], rtol=1e-9, atol=1e-12)
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
