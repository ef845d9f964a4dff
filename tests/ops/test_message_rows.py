"""Message passing over the rows that matter against the dense form: plan, logits and gradients."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ipagnn.data.collate import StepBudget
from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.models import MODELS as ALL
from ipagnn.models import ProgramModel
from ipagnn.ops.messages._compiled.rows import EXIT, RECEIVES
from ipagnn.ops.messages.triton.plan import MessagePlan

from ..conftest import Make
from .message_twin import run_rows

MODELS = ("ggnn", "no-execute")


@pytest.fixture(scope="module")
def some(mixed: ProgramTable, short: ProgramTable) -> ProgramTable:
    """Programs of 2 to 20 lines."""
    return ProgramTable.concatenate([mixed.take([i for i, x in enumerate(mixed) if len(x) <= 20]), short])


def gradients(model: ProgramModel, logits: Tensor, target: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    cross_entropy(logits, target, reduction="sum").backward()
    return {"logits": logits.detach(), **{n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}}


OPTIONS = [{}, {"normalise": False}, {"budget": StepBudget(factor=0.4)}]
EXTRA = [
    *((name, {}) for name in MODELS),
    ("no-execute", {"absorbing_exit": True}),
]
CASES = [
    (name, {**extra, **options})
    for name, extra in EXTRA
    for options in OPTIONS
    if all(hasattr(ALL[name].Config, option) for option in options)
]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_the_rows_that_matter_are_enough(make: Make, some: ProgramTable, name: str, options: dict) -> None:
    model = make(name, **options)
    batch = model.collate(some)
    dense = gradients(model, model(batch).logits, batch.target)
    plan = MessagePlan.build(batch.graphs, batch.node_tokens, model.kernels.kind)
    rows = gradients(model, run_rows(model, plan), batch.target)
    assert dense.keys() == rows.keys()
    for key, value in dense.items():
        assert value.abs().max() > 1e-9
        torch.testing.assert_close(rows[key], value, rtol=1e-9, atol=1e-11, msg=key)


@pytest.mark.parametrize(
    ("name", "options"), [("ggnn", {}), ("no-execute", {}), ("no-execute", {"absorbing_exit": True})]
)
def test_a_plan_is_sound(make: Make, some: ProgramTable, name: str, options: dict) -> None:
    model = make(name, **options)
    batch = model.collate(some)
    plan = MessagePlan.build(batch.graphs, batch.node_tokens, model.kernels.kind)
    slots, rows, steps = plan.capacity.slots, int(plan.offsets[-1]), plan.capacity.steps
    moving = rows - len(some) if options else rows  # exits that absorb stand apart
    assert int(plan.offsets[steps]) <= moving
    edges = int(plan.arrival_offsets[rows])
    assert plan.capacity.rows >= rows
    assert plan.capacity.edges >= edges > rows / 4
    following, previous = plan.next[:rows].long(), plan.previous[:rows].long()
    assert torch.equal(previous[following[following >= 0]], (following >= 0).nonzero()[:, 0])
    assert torch.equal((previous[:moving] < 0).nonzero()[:, 0], torch.arange(int(plan.offsets[1])))
    if options:
        assert int(plan.offsets[steps]) == moving
        assert torch.equal(plan.final.long(), torch.arange(moving, rows))
        assert (previous[moving:] == -1).all()
        assert (plan.flags[moving:rows] == EXIT).all()
        assert not (plan.flags[:moving] & EXIT).any()
    assert (following[plan.final.long()] == -1).all()
    step = torch.bucketize(torch.arange(rows), plan.offsets.long(), right=True)
    assert (step[following[following >= 0]] == step[following >= 0] + 1).all()
    source, target = plan.arrivals[:edges].long() // slots, plan.targets[:edges].long()
    within = target < moving
    assert torch.equal(step[source[within]], step[target[within]])
    assert (following[target[within]] >= 0).all()
    assert len(target[~within].unique()) == rows - moving
    assert (source < moving).all()
    departures = plan.departures[:edges].long()
    assert torch.equal(departures.sort().values, torch.arange(edges))
    left = torch.repeat_interleave(torch.arange(slots * rows), plan.departure_offsets[: slots * rows + 1].diff())
    assert torch.equal(plan.arrivals[departures].long(), left)
    if name == "no-execute":
        receives = plan.flags[:moving] & RECEIVES > 0
        assert torch.equal(receives, plan.arrival_offsets[: moving + 1].diff() > 0)
    sends = (plan.flags[:rows, None] >> torch.arange(slots)) & 1
    assert torch.equal(sends.flatten() > 0, plan.departure_offsets[: slots * rows + 1].diff() > 0)


def test_batches_of_a_kind_share_a_capacity(make: Make) -> None:
    from ipagnn.data.splits import training_sampler

    sampler, model = training_sampler("full", 10, 0), make("ggnn")
    batches = [model.collate(sampler.table(512 * k, 512)) for k in range(6)]
    plans = [MessagePlan.build(batch.graphs, batch.node_tokens, "neighbours") for batch in batches]
    assert len({plan.capacity for plan in plans}) <= 4
    assert len({len(plan.flat) for plan in plans}) <= 4
