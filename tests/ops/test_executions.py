"""dense = packed = one program at a time."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipagnn import ops
from ipagnn.data.collate import StepBudget
from ipagnn.data.contract import check_batch
from ipagnn.languages.arithmetic.grammar import Lengths
from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.languages.arithmetic.sampler import Sampler
from ipagnn.languages.arithmetic.text import parse
from ipagnn.models import Output, ProgramModel
from ipagnn.ops.pointer.rows import plan_rows, steps_of_rows

from ..conftest import IP_CASES, IP_MODELS, Make, reference

EXACT = {"rtol": 1e-9, "atol": 1e-12}


def gradients(model: ProgramModel, table: ProgramTable) -> tuple[Output, dict[str, torch.Tensor]]:
    model.zero_grad()
    batch = model.collate(table)
    check_batch(batch)
    output = model(batch, record=model.records & {"pointer", "branch"})
    torch.nn.functional.cross_entropy(output.logits, batch.target, reduction="sum").backward()
    return output, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(("name", "options"), IP_CASES)
def test_dense_equals_packed(make: Make, mixed: ProgramTable, name: str, options: dict) -> None:
    packed = make(name, **options)
    if name == "trace-rnn":  # dense runs statement by statement: keep to traces of a bearable length
        lengths = [len(packed.collate([p]).trace) for p in mixed]  # type: ignore[arg-type]
        mixed = mixed.take([i for i, n in enumerate(lengths) if n <= 150])
    dense = reference(packed)
    ours, our_gradients = gradients(packed, mixed)
    theirs, their_gradients = gradients(dense, mixed)
    torch.testing.assert_close(ours.logits, theirs.logits, **EXACT)
    assert our_gradients.keys() == their_gradients.keys() == dict(packed.named_parameters()).keys()
    for key, gradient in our_gradients.items():
        assert gradient.abs().max() > 1e-9, key
        torch.testing.assert_close(gradient, their_gradients[key], **EXACT, msg=lambda m, key=key: f"{key}: {m}")


@pytest.mark.parametrize("name", ["ipa-gnn", "hard-ip-rnn"])
def test_dense_and_packed_tell_the_same_trace(make: Make, mixed: ProgramTable, name: str) -> None:
    packed = make(name)
    batch = packed.collate(mixed)
    rows = batch.graphs.plan(plan_rows)
    ours = packed(batch, record=("pointer", "branch", "states"))
    theirs = reference(packed)(batch, record=("pointer", "branch", "states"))
    assert ours["pointer"].shape == theirs["pointer"].shape == (batch.steps.max() + 1, len(batch.true))
    assert ours["branch"].shape == theirs["branch"].shape == (batch.steps.max(), len(batch.true))
    assert ours["states"].shape == theirs["states"].shape

    computed = torch.zeros_like(ours["pointer"], dtype=torch.bool)
    computed[steps_of_rows(rows), rows.node.long()] = True
    computed[:, batch.exits] = True
    torch.testing.assert_close(ours["pointer"][computed], theirs["pointer"][computed], **EXACT)
    torch.testing.assert_close(ours["states"][computed], theirs["states"][computed], **EXACT)
    assert not ours["pointer"][~computed].any()
    decided = ~ours["branch"].isnan()
    assert decided.any()
    assert torch.equal(decided, computed[:-1] & (batch.true != batch.false))
    torch.testing.assert_close(ours["branch"][decided], theirs["branch"][decided], **EXACT)


@pytest.mark.parametrize("name", IP_MODELS)
def test_batch_equals_one_program_at_a_time(make: Make, mixed: ProgramTable, name: str) -> None:
    model = make(name)
    together, sums = gradients(model, mixed)
    alone: dict[str, torch.Tensor] = {}
    for i in range(len(mixed)):
        output, gradient = gradients(model, mixed.slice(i, i + 1))
        torch.testing.assert_close(output.logits[0], together.logits[i], **EXACT)
        if "pointer" in together.recorded and name != "trace-rnn":
            batch = model.collate(mixed)
            nodes = slice(int(batch.node_offsets[i]), int(batch.node_offsets[i + 1]))
            torch.testing.assert_close(output["pointer"], together["pointer"][: len(output["pointer"]), nodes], **EXACT)
        for key, value in gradient.items():
            alone[key] = alone.get(key, torch.zeros_like(value)) + value
    for key, value in sums.items():
        torch.testing.assert_close(value, alone[key], **EXACT)


def test_packed_computes_at_most_a_fifth_of_the_dense_node_steps(make: Make) -> None:
    batch = make("ipa-gnn").collate(Sampler(seed=11).table(0, 2000))
    dense = int((batch.node_offsets.diff() * batch.steps).sum())
    packed = len(batch.graphs.plan(plan_rows))
    print(f"node-steps a program: {packed / 2000:.1f} packed, {dense / 2000:.1f} dense, {dense / packed:.1f} times")
    assert packed * 5 <= dense


@given(data=st.data())
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
def test_any_program_of_the_language(make: Make, sources: st.SearchStrategy[str], data: st.DataObject) -> None:
    """Dead code, loops without end, branches that meet at once; and budgets too small to reach the exit."""
    programs = [parse(data.draw(sources)) for _ in range(2)]
    budget = StepBudget(factor=data.draw(st.sampled_from([0.1, 0.5, 1.0])))
    for name in ("ipa-gnn", "hard-ip-rnn"):
        packed = make(name, hidden=3, budget=budget)
        dense = reference(packed)
        torch.testing.assert_close(
            packed(packed.collate(programs)).logits, dense(dense.collate(programs)).logits, **EXACT
        )


@pytest.mark.parametrize("kind", ["factor", "static"])
def test_step_budgets_reach_the_model(make: Make, kind: str) -> None:
    table = Sampler(lengths=Lengths.exact(12), seed=5).table(0, 6)
    budget = StepBudget(factor=2.0) if kind == "factor" else StepBudget(kind="static", cap=500)
    model, plain = make("ipa-gnn", budget=budget), make("ipa-gnn")
    batch, plain_batch = model.collate(table), plain.collate(table)
    assert not torch.equal(batch.steps, plain_batch.steps)
    logits = model(batch).logits
    torch.testing.assert_close(logits, reference(model)(batch).logits, **EXACT)
    assert not torch.allclose(logits, plain(plain_batch).logits)


def test_what_cannot_be_run_is_refused_in_a_sentence(make: Make, short: ProgramTable) -> None:
    with pytest.raises(ValueError, match="has no true traces, which the Trace RNN reads"):
        make("trace-rnn")(make("ipa-gnn").collate(short))
    model = make("ipa-gnn")
    batch = model.collate(short)
    with pytest.raises(ValueError, match="'streaming' cannot run this: it has no gradients"):
        model(batch, execution="streaming")
    with pytest.raises(ValueError, match="'compiled' cannot run this: gradients do not flow"):
        model(batch, execution="compiled", record=("pointer",))
    with pytest.raises(ValueError, match="has one execution, the reference; 'rows'"):
        make("r-gat")(batch, execution="rows")
    with pytest.raises(ValueError, match="There is no execution 'rows'"):
        make("ggnn")(batch, execution="rows")
    with pytest.raises(ValueError, match="'triton' cannot run this: the weights are on cpu"):
        make("ggnn")(batch, execution="triton")
    with pytest.raises(ValueError, match="'triton' cannot run this: its kernels are for messages through Dense layers"):
        make("no-control")(batch, execution="triton")
    with torch.no_grad(), pytest.raises(ValueError, match="'triton' cannot run this: it keeps the states of all steps"):
        make("no-execute")(batch, execution="triton")
    with pytest.raises(ValueError, match=r"prune is 1.5"):
        model(batch, prune=1.5)


def test_the_choice_is_logged_once(make: Make, short: ProgramTable, caplog: pytest.LogCaptureFixture) -> None:
    ops._note.cache_clear()
    model = make("ipa-gnn")
    with caplog.at_level("INFO", logger="ipagnn.ops"):
        for _ in range(2):
            model(model.collate(short))
    (line,) = (record.message for record in caplog.records if "Execution" in record.message)
    assert line.startswith(
        "Execution: compiled (not streaming, as it has no gradients; not hopper, as the weights are on cpu"
    )


@pytest.mark.parametrize("name", IP_MODELS)
@pytest.mark.parametrize("execution", [each.name for each in ops.BACKENDS])
def test_every_backend_computes_the_reference(make: Make, short: ProgramTable, name: str, execution: str) -> None:
    model = make(name).eval()
    batch = model.collate(short)
    with torch.no_grad():
        expected = model(batch, execution="reference").logits
        prune = 1e-300 if execution == "pruned" else 0.0
        if execution in ("streaming", "triton", "hopper") or (prune and not model.can_prune):
            with pytest.raises(ValueError, match=r"weights are on cpu|cannot prune"):
                model(batch, execution=execution, prune=prune)
        else:
            torch.testing.assert_close(model(batch, execution=execution, prune=prune).logits, expected, **EXACT)


@pytest.mark.parametrize("name", ["ipa-gnn", "line-rnn", "ggnn", "r-gat"])
def test_an_empty_batch_has_no_logits(make: Make, name: str) -> None:
    model = make(name)
    assert model(model.collate([])).logits.shape == (0, 1000)
