"""Message passing over the rows of a `MessagePlan`, in plain torch: what the kernels for GPUs compute, to be read.

It gives the logits and gradients of the dense executions, which spell the paper; the kernels are held against both.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from ipagnn.models.base import ProgramModel
from ipagnn.models.control import AllNeighbours, InstructionPointer
from ipagnn.models.execution import GatedUpdate
from ipagnn.models.message_kernels import DECIDES, EXIT, START
from ipagnn.models.message_passing import MessagePassing
from ipagnn.models.message_plan import MessageKind, MessagePlan
from ipagnn.models.pointer import EPSILON, branch_decisions, divide
from ipagnn.models.r_gat import LEAK, RGAT, softmax_at

KIND_OF_SLOT = {2: (0, 1), 4: (0, 2, 1, 3)}
"""The edge type of each slot, where there are two or four. The rarer types come last."""


def message_kind(model: ProgramModel) -> MessageKind | None:
    """The rows that a model's message passing needs; None if it is none of those that have kernels."""
    if isinstance(model, RGAT):
        return "neighbours"
    if not isinstance(model, MessagePassing) or type(model).forward is not MessagePassing.forward:
        return None
    gated = isinstance(model.execution, GatedUpdate)
    if isinstance(model.control, InstructionPointer):
        return "pointer" if gated and not (model.control.exit_keeps or model.control.hard) else None
    return "neighbours" if gated else "statements"


@dataclass(frozen=True, slots=True)
class _Step:
    """The messages of a step, with rows counted within it. [edge] each, but flags [row]"""

    rows: int
    source: Tensor
    kind: Tensor
    target: Tensor
    flags: Tensor


def run_rows(model: ProgramModel, plan: MessagePlan) -> Tensor:
    """Logits [program, class] of the plan's batch."""
    hidden, slots = model.config.hidden, plan.capacity.slots
    kinds = torch.tensor(KIND_OF_SLOT[slots])
    if plan.capacity.kind == "statements":
        h = model.cell.zero_state(int(plan.offsets[1]))
    else:
        tokens = plan.tokens[: int(plan.waves[1])]
        h = model.cell(model.cell.zero_state(len(tokens)), tokens)[plan.statement[: int(plan.offsets[1])].long()]
        h = h[:, -hidden:] if isinstance(model, RGAT) else h
    p = (plan.flags[: len(h)] & START != 0).to(h.dtype)
    states = [h]
    offsets = [x for t, x in enumerate(plan.offsets.tolist()) if t == 0 or x != int(plan.offsets[t - 1])]
    for first, end in pairwise(offsets):
        edges = slice(int(plan.arrival_offsets[first]), int(plan.arrival_offsets[end]))
        code = plan.arrivals[edges].long()
        step = _Step(
            end - first,
            code // slots - first,
            kinds[code % slots],
            plan.targets[edges].long() - first,
            plan.flags[first:end],
        )
        tokens = plan.tokens[first:end] if plan.capacity.kind == "statements" else plan.tokens[:0]
        h, p = _update(model, h, p, step, tokens)
        following = plan.next[first:end].long() - end
        goes_on = following >= 0
        h = torch.zeros_like(h[goes_on]).index_copy(0, following[goes_on], h[goes_on])
        p = torch.zeros_like(p[goes_on]).index_copy(0, following[goes_on], p[goes_on])
        states.append(h)
    logits: Tensor = model.output(torch.cat(states)[plan.final.long()])
    return logits


def _update(model: ProgramModel, h: Tensor, p: Tensor, step: _Step, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """The rows' states and pointer one step later."""
    if isinstance(model, RGAT):
        return _attend(model, h, step), p
    assert isinstance(model, MessagePassing)
    gated = isinstance(model.execution, GatedUpdate)
    if isinstance(model.execution, GatedUpdate):
        parts = h.view(len(h), -1, model.config.hidden)
        by_kind = torch.stack([dense(parts) for dense in model.execution.dense], dim=1).flatten(2)
        messages = by_kind[step.source, step.kind]
    else:
        executed = model.cell(h, tokens)
        messages = torch.where((step.flags & EXIT != 0)[:, None], h, executed)[step.source]
    if isinstance(model.control, InstructionPointer):
        shares = branch_decisions(model.control.branch(h), step.flags & DECIDES != 0, hard=False)
        weight = p[step.source] * shares[step.source, step.kind]
        mass = torch.zeros_like(p).index_add(0, step.target, weight)
        total = torch.zeros_like(h).index_add(0, step.target, weight[:, None] * messages)
        proposal, p = divide(total, mass) if model.control.normalise else total, mass
    else:
        assert isinstance(model.control, AllNeighbours)
        total = torch.zeros_like(h).index_add(0, step.target, messages)
        proposal = total / divisor(model.control, step.target, step.kind, step.rows).to(h.dtype)[:, None]
    return (model.execution.update(h, proposal) if gated else proposal), p


def divisor(control: AllNeighbours, target: Tensor, kind: Tensor, rows: int) -> Tensor:
    """What the sums are divided by. [row]"""
    counted = (kind < 2).double() if control.divisor == "root" else torch.ones_like(kind, dtype=torch.float64)
    count = counted.new_zeros(rows).index_add(0, target, counted)
    if control.divisor == "root":
        return (2 + count).sqrt()
    return torch.where(count > 0, count + EPSILON, 1.0) if control.divisor == "mass" else torch.ones_like(count)


def _attend(model: RGAT, h: Tensor, step: _Step) -> Tensor:
    attention = model.attention
    g = torch.einsum("nh,rho->nro", h, attention.kernel).unflatten(2, (attention.heads, -1))
    query, key = (g * attention.query).sum(-1), (g * attention.key).sum(-1)
    logits = query[step.target, step.kind] + key[step.source, step.kind]
    weights = softmax_at(nn.functional.leaky_relu(logits, LEAK), step.target, step.rows)
    messages = (weights[..., None] * g[step.source, step.kind]).flatten(1)
    proposal = torch.zeros_like(h).index_add(0, step.target, messages) + attention.bias
    return nn.functional.layer_norm(h + nn.functional.elu(proposal), (h.shape[1],))
