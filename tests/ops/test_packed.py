"""The hand-written packed step against the dense form, and its ways of running against each other."""

import os
import signal
import threading
from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ipagnn.data.collate import StepBudget
from ipagnn.languages.arithmetic.grammar import Lengths
from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.languages.arithmetic.sampler import Sampler
from ipagnn.models import ProgramModel
from ipagnn.ops.pointer.cpu import backend
from ipagnn.ops.pointer.cpu import parts as packed_parts
from ipagnn.ops.pointer.cpu.math import product
from ipagnn.ops.pointer.cpu.packed_pass import PackedPass
from ipagnn.ops.pointer.rows import plan_rows

from ..conftest import IP_CASES, Make, reference
from .conftest import EXACT, HOWS, assert_same


def gradients(model: ProgramModel, table: ProgramTable) -> dict[str, Tensor]:
    """The logits and the gradients of everything."""
    model.zero_grad()
    batch = model.collate(table)
    logits = model(batch).logits
    cross_entropy(logits, batch.target, reduction="sum").backward()
    return {"logits": logits.detach(), **{n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}}


@pytest.mark.parametrize("how", HOWS, indirect=True)
@pytest.mark.parametrize(("name", "options"), IP_CASES)
def test_gradients_are_those_of_the_dense_form(
    make: Make, some: ProgramTable, name: str, options: dict, how: str
) -> None:
    model = make(name, **options)
    if name == "trace-rnn":  # dense runs statement by statement: keep to traces of a bearable length
        some = some.take([i for i, program in enumerate(some) if len(model.collate([program]).trace) <= 100])
    ours = gradients(model, some)
    assert all(value.abs().max() > 1e-9 for value in ours.values())
    assert_same(ours, gradients(reference(model), some), **EXACT)


@pytest.mark.parametrize("how", HOWS, indirect=True)
@pytest.mark.parametrize("name", ["ipa-gnn", "hard-ip-rnn"])
@pytest.mark.parametrize("factor", [0.02, 0.1, 0.4])
def test_budgets_too_small_for_some_programs(
    make: Make, some: ProgramTable, name: str, factor: float, how: str
) -> None:
    model = make(name, budget=StepBudget(factor=factor))
    reached = len(model.collate(some).graphs.plan(plan_rows).graph.unique())
    assert reached < len(some)
    assert bool(reached) == (factor >= 0.1)
    ours, theirs = gradients(model, some), gradients(reference(model), some)
    if not reached:  # nothing was executed: the dense form has gradients of 0, the packed one none
        assert not any(value.any() for key, value in theirs.items() if key not in ours)
        theirs = {key: theirs[key] for key in ours}
    assert_same(ours, theirs, **EXACT)


@pytest.mark.parametrize("how", HOWS, indirect=True)
def test_gradients_are_slopes(make: Make, how: str) -> None:
    model = make("ipa-gnn", hidden=3)
    batch = model.collate(Sampler(lengths=Lengths.exact(8), seed=3).table(0, 5))

    def loss() -> Tensor:
        return cross_entropy(model(batch).logits, batch.target, reduction="sum")

    loss().backward()
    generator = torch.Generator().manual_seed(0)
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None
        way = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        with torch.no_grad():
            parameter += 1e-5 * way
            above = loss()
            parameter -= 2e-5 * way
            below = loss()
            parameter += 1e-5 * way
        slope = float(above - below) / 2e-5
        assert slope == pytest.approx(float((parameter.grad * way).sum()), rel=1e-6, abs=1e-8), key


@pytest.mark.parametrize("how", HOWS, indirect=True)
def test_two_forward_passes_before_the_backward_passes(make: Make, short: ProgramTable, how: str) -> None:
    model = make("ipa-gnn")
    first, second = short.slice(0, 10), short.slice(10, 24)
    expected = [gradients(model, table) for table in (first, second)]  # which also leaves memory to be used again
    model.zero_grad()
    batches = [model.collate(table) for table in (first, second)]
    losses = [cross_entropy(model(batch).logits, batch.target, reduction="sum") for batch in batches]
    (losses[0] + losses[1]).backward()
    for key, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[0][key] + expected[1][key], **EXACT)


def test_a_second_backward_pass_is_refused(make: Make, short: ProgramTable) -> None:
    model = make("ipa-gnn")
    total = model(model.collate(short)).logits.sum()
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="backwards once only"):
        total.backward()


def test_without_records_nothing_is_kept_of_the_rows(
    make: Make, some: ProgramTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, sizes = make("ipa-gnn"), []
    batch = model.collate(some)
    rows = batch.graphs.plan(plan_rows)
    with torch.no_grad():
        kept = model(batch, record=("pointer",), execution="compiled")
        original = PackedPass.forward
        monkeypatch.setattr(PackedPass, "forward", lambda self: (sizes.append(self.memory.numel()), original(self)))
        alone = model(batch, execution="compiled")
    torch.testing.assert_close(alone.logits, kept.logits, **EXACT)
    widest = max(b - a for a, b in pairwise(rows.step_offsets))
    assert widest * 10 < len(rows)
    assert 0 < sum(sizes) <= 300 * model.config.hidden * widest  # 54 H numbers a row, of one step at a time


@pytest.mark.parametrize("how", ["parts"], indirect=True)
def test_parts_record_what_the_whole_records(make: Make, some: ProgramTable, how: str) -> None:
    model = make("hard-ip-rnn")
    batch = model.collate(some)
    record = ("pointer", "branch", "states")
    with torch.no_grad():
        parts = model(batch, record=record, execution="compiled")
        torch.set_num_threads(1)
        whole = model(batch, record=record, execution="compiled")
    for name in record:
        torch.testing.assert_close(parts[name], whole[name], **EXACT, equal_nan=True)


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 100])
def test_portions_share_the_rows_out(make: Make, some: ProgramTable, parts: int) -> None:
    batch = make("ipa-gnn", budget=StepBudget(factor=0.4)).collate(some)
    rows = batch.graphs.plan(plan_rows)
    tokens = batch.node_tokens[rows.node]
    portions = packed_parts.split(rows, tokens, len(some), parts)
    assert 1 <= len(portions) <= parts
    assert sum(portion.programs for portion in portions) == len(some)
    assert sum(portion.steps[-1] for portion in portions) == len(rows)
    first = 0
    for portion in portions:
        assert portion.steps[0] == 0
        assert all(a < b for a, b in pairwise(portion.steps))
        if portion.rows is None:
            continue
        assert torch.equal(portion.tokens, tokens[portion.rows])
        back = torch.cat([portion.rows, len(rows) + first + torch.arange(portion.programs), torch.tensor([-1])])
        assert torch.equal(back[portion.true], rows.target[portion.rows, 0].long())
        assert torch.equal(back[portion.false], rows.target[portion.rows, 1].long())
        first += portion.programs


@pytest.mark.parametrize("how", ["parts"], indirect=True)
def test_threads_of_parts_have_no_threads_of_their_own(how: str) -> None:
    x = torch.zeros(400, 400)

    def threads_of_torch(_: int) -> tuple[int, int]:
        torch.mm(x, x).exp_()  # torch may set up a thread when it is first used
        return threading.get_ident(), torch.get_num_threads()

    for _ in range(2):
        found = packed_parts.run_parallel(threads_of_torch, range(3))
        assert threading.get_ident() not in {name for name, _ in found}
        assert {count for _, count in found} == {1}
        assert torch.get_num_threads() == 3
        x.exp_()  # begins torch's own threads again


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("how", ["parts"], indirect=True)
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of a fork beside threads, which is the point
def test_a_forked_process_begins_threads_of_its_own(how: str) -> None:
    packed_parts.run_parallel(lambda item: item, range(3))
    torch.zeros(400, 400).exp_()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        found = packed_parts.run_parallel(lambda item: item + 1, range(3))
        os._exit(0 if found == [1, 2, 3] else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("how", ["parts"], indirect=True)
def test_the_same_bits_each_time(make: Make, some: ProgramTable, how: str) -> None:
    model = make("ipa-gnn", hidden=40).float()
    ours, again = gradients(model, some), gradients(model, some)
    assert all(torch.equal(value, again[key]) for key, value in ours.items())


def test_plain_torch_runs_where_it_brings_no_product(
    make: Make, short: ProgramTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make("ipa-gnn")
    ours = gradients(model, short)
    monkeypatch.setattr(backend, "product", lambda _: None)
    assert_same(ours, gradients(model, short), **EXACT)


def test_there_is_no_product_in_half_precision() -> None:
    assert product(torch.float32)
    assert product(torch.float64)
    assert product(torch.bfloat16) is None


@pytest.mark.parametrize("name", ["ipa-gnn", "trace-rnn"])
def test_compiled_code_in_float32_is_torch_to_rounding(
    make: Make, short: ProgramTable, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(name, hidden=40).float()
    ours = gradients(model, short)
    monkeypatch.setattr(backend, "product", lambda _: None)
    theirs = gradients(model, short)
    for key, value in ours.items():
        assert (value - theirs[key]).norm() < 5e-6 * theirs[key].norm(), key


def test_products_in_bf16(make: Make, short: ProgramTable) -> None:
    model = make("ipa-gnn", hidden=40).float()
    full = gradients(model, short)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = gradients(model, short)
    for key, value in half.items():
        distance = (value.float() - full[key]).norm() / full[key].norm()
        assert 1e-5 < distance < 0.1, key


def test_what_is_not_a_number_stays_so(make: Make, short: ProgramTable) -> None:
    model = make("ipa-gnn").float()
    with torch.no_grad():
        model.cell.hidden_1[0, 0] = torch.nan
    assert model(model.collate(short)).logits.isnan().all()


def test_compiled_code_is_what_runs_on_a_cpu(make: Make, short: ProgramTable, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    original = PackedPass.forward
    monkeypatch.setattr(PackedPass, "forward", lambda self: (ran.append(self), original(self)))
    model = make("line-rnn")
    model(model.collate(short))
    assert ran
