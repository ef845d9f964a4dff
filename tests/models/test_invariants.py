"""What must hold for every model, whatever its weights."""

import numpy as np
import pytest
import torch

from ipagnn.data.collate import StepBudget
from ipagnn.languages.arithmetic.grammar import Grammar, Lengths
from ipagnn.languages.arithmetic.interpreter import trace
from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.languages.arithmetic.sampler import Sampler
from ipagnn.languages.arithmetic.text import parse
from ipagnn.models import MODELS, build_model, model_config

from ..conftest import Make

EXACT = {"rtol": 1e-9, "atol": 1e-12}


def test_the_registry_holds_the_papers_eight_models() -> None:
    names = {"ipa-gnn", "hard-ip-rnn", "trace-rnn", "line-rnn", "no-control", "no-execute", "ggnn", "r-gat"}
    assert names <= MODELS.keys()
    assert MODELS["trace-rnn"].tasks == ("full",)


@pytest.mark.parametrize("name", ["ipa-gnn", "hard-ip-rnn", "no-execute"])
def test_mass_sums_to_one_and_the_exit_absorbs(make: Make, mixed: ProgramTable, name: str) -> None:
    model = make(name, dense=True)
    batch = model.collate(mixed)
    pointer = model(batch, record=("pointer",))["pointer"]
    program = batch.node_program.long().expand_as(pointer)
    mass = pointer.new_zeros(len(pointer), len(batch)).scatter_add(1, program, pointer)
    torch.testing.assert_close(mass, torch.ones_like(mass))
    assert (pointer >= 0).all()
    at_exit = pointer[:, batch.exits]
    assert (at_exit.diff(dim=0) >= -1e-12).all(), "what has arrived stays"
    assert (at_exit[-1] > 0).any()


def test_an_exit_that_absorbs_has_no_need_to_wait(make: Make) -> None:
    straight = Sampler(grammar=Grammar(stmt_if=0, stmt_if_else=0, stmt_repeat=0), seed=3).table(0, 5)
    for absorb in (True, False):
        logits = []
        for factor in (1.0, 4.0):
            model = make("no-execute", absorbing_exit=absorb, budget=StepBudget(factor=factor))
            logits.append(model(model.collate(straight)).logits)
        assert torch.allclose(*logits, **EXACT) is absorb
        assert logits[0].std(dim=0).max() > 1e-3, "programs differ in what reaches the exit"


@pytest.mark.parametrize("name", sorted(MODELS))
def test_batch_mates_and_their_order_change_nothing(make: Make, name: str) -> None:
    model = make(name)
    table = Sampler(seed=4).table(0, 12)
    alone = model(model.collate(table)).logits
    order = np.random.default_rng(0).permutation(12)
    torch.testing.assert_close(model(model.collate(table.take(order))).logits, alone[order], **EXACT)
    longer = Sampler(lengths=Lengths.exact(25), seed=1).table(0, 3)
    among = model(model.collate(ProgramTable.concatenate([longer, table, longer]))).logits
    torch.testing.assert_close(among[3:-3], alone, **EXACT)


@pytest.mark.parametrize(("name", "task"), [(name, task) for name in sorted(MODELS) for task in MODELS[name].tasks])
def test_every_parameter_is_finite_used_and_gets_a_gradient(make: Make, name: str, task: str) -> None:
    model = make(name, **({"heads": 2} if name == "r-gat" else {}))
    count = 8 if task == "partial" and model.can_tabulate else 64  # it runs a masked program 27 times
    batch = model.collate(Sampler(task=task, seed=9).table(0, count))  # type: ignore[arg-type]
    output = model(batch)
    assert output.logits.shape == (count, 1000)
    torch.nn.functional.cross_entropy(output.logits, batch.target).backward()
    for key, parameter in model.named_parameters():
        if (name, task, key) == ("env-ipa-gnn", "full", "mask_weights"):  # nothing is masked
            continue
        assert parameter.isfinite().all(), key
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        assert parameter.grad.abs().max() > 1e-12, key
        before = parameter.detach().clone()
        with torch.no_grad():
            parameter += 0.1 * torch.randn(
                parameter.shape, dtype=parameter.dtype, generator=torch.Generator().manual_seed(0)
            )
            assert not torch.equal(model(batch).logits, output.logits), key
            parameter.copy_(before)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_only_the_declared_fields_matter(make: Make, name: str) -> None:
    """Targets are there for the loss; a model that looked at them would be cheating."""
    model = make(name)
    table = Sampler(seed=2).table(0, 8)
    blind = ProgramTable(table.line_offsets, table.line_tokens, np.full_like(table.target, -1))
    assert torch.equal(model(model.collate(table)).logits, model(model.collate(blind)).logits)


@pytest.mark.parametrize("name", ["no-control", "no-execute", "ggnn", "r-gat", "ipa-gnn"])
def test_states_stay_bounded_over_hundreds_of_steps(make: Make, name: str) -> None:
    model = make(name)
    table = Sampler(lengths=Lengths.exact(50), seed=6).table(0, 3)
    batch = model.collate(table)
    assert batch.steps.max() > 100
    with torch.no_grad():
        states = model(batch, record=("states",))["states"].abs()
    assert states.max() < 2 * states[:10].max()


def test_a_trace_holds_the_states_of_models_without_a_pointer(make: Make, short: ProgramTable) -> None:
    for name, width in (("ggnn", 24), ("no-control", 24), ("r-gat", 6)):
        model = make(name)
        batch = model.collate(short)
        output = model(batch, record=("states",))
        with pytest.raises(ValueError, match="does not record 'pointer'"):
            model(batch, record=("pointer",))
        assert output["states"].shape == (batch.steps.max() + 1, len(batch.true), width)
        torch.testing.assert_close(model.output(output["states"][-1, batch.exits]), output.logits)


def test_the_trace_rnns_pointer_is_the_trace(make: Make, short: ProgramTable) -> None:
    model = make("trace-rnn")
    batch = model.collate(short)
    pointer = model(batch, record=("pointer",))["pointer"]
    assert set(pointer.unique().tolist()) == {0.0, 1.0}
    for program, first, end in zip(short, batch.starts.tolist(), batch.exits.tolist(), strict=True):
        steps, nodes = pointer[:, first : end + 1].nonzero(as_tuple=True)
        assert steps.tolist() == list(range(len(pointer))), "it is at one node at each step"
        visited = [step.line for step in trace(program)]
        rest = [-1] * (len(pointer) - len(visited))  # at the exit
        assert batch.node_line[first : end + 1][nodes].tolist() == visited + rest


ARMS = "v0 = 417\nif v0 % 10 < 5:\n  {}\nelse:\n  {}\nv0 *= 3"


@pytest.mark.parametrize("bidirectional", [True, False])
def test_no_control_tells_arms_apart_by_edge_types_alone(bidirectional: bool) -> None:
    """The graph of one program is that of the other but for which edge is the true one."""
    arms = "v0 += 5", "v0 -= 2"
    first, second = parse(ARMS.format(*arms)), parse(ARMS.format(*reversed(arms)))
    for edge_types in (False, True):
        config = model_config("no-control", hidden=12, bidirectional=bidirectional, edge_types=edge_types)
        model = build_model(config, seed=1).double()
        one, other = (model(model.collate([program])).logits for program in (first, second))
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-12) != edge_types


def test_edge_types_that_change_nothing_are_none() -> None:
    plain = build_model("no-control", hidden=12, bidirectional=False, seed=1)
    typed = build_model("no-control", hidden=12, bidirectional=False, edge_types=True, seed=1)
    shared = plain.state_dict()
    for name, parameter in typed.named_parameters():
        with torch.no_grad():
            if name in shared:
                parameter.copy_(shared[name])
            else:
                parameter.copy_(torch.eye(12) if parameter.ndim == 2 else torch.zeros(12))
    batch = plain.collate(Sampler(lengths=Lengths.exact(8), seed=5).table(0, 20))
    torch.testing.assert_close(typed(batch).logits, plain(batch).logits)
    typed(batch).logits.sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in typed.parameters())
