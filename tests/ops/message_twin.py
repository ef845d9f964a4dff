"""Message passing over the rows of a plan, in plain torch: what the kernels for GPUs compute, without a GPU.

It gives the logits and gradients of the dense executions, which spell the paper; the kernels are held against both.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from ipagnn.models.base import ProgramModel
from ipagnn.models.message_passing import MessagePassing
from ipagnn.nn.control import InstructionPointer
from ipagnn.nn.execution import GatedUpdate
from ipagnn.ops.messages._compiled.rows import DECIDES, START
from ipagnn.ops.messages.triton.plan import KIND_OF_SLOT, MessagePlan
from ipagnn.ops.pointer.equations import branch_decisions, divide, two_edges


@dataclass(frozen=True, slots=True)
class _Step:
    """The messages of a step, with rows counted within it. [edge] each, but flags [row]"""

    rows: int
    source: Tensor
    kind: Tensor
    target: Tensor
    flags: Tensor

    @staticmethod
    def of(plan: MessagePlan, first: int, end: int, sent_from: int) -> "_Step":
        """Messages that arrive at rows first : end; they were sent from rows sent_from and later."""
        slots = plan.capacity.slots
        edges = slice(int(plan.arrival_offsets[first]), int(plan.arrival_offsets[end]))
        code = plan.arrivals[edges].long()
        return _Step(
            end - first,
            code // slots - sent_from,
            torch.tensor(KIND_OF_SLOT[slots])[code % slots],
            plan.targets[edges].long() - first,
            plan.flags[first:end],
        )


def run_rows(model: ProgramModel, plan: MessagePlan) -> Tensor:
    """Logits [program, class] of the plan's batch."""
    tokens = plan.tokens[: int(plan.waves[1])]
    h = model.cell(model.cell.zero_state(len(tokens)), tokens)[plan.statement[: int(plan.offsets[1])].long()]
    p = (plan.flags[: len(h)] & START != 0).to(h.dtype)
    states, pointers = [h], [p]
    absorbing = plan.capacity.kind == "absorbing"
    offsets = plan.offsets.tolist()[: -1 if absorbing else None]
    for first, end in pairwise(sorted(set(offsets))):
        h, p = _update(model, h, p, _Step.of(plan, first, end, first))
        following = plan.next[first:end].long() - end
        goes_on = following >= 0
        h = torch.zeros_like(h[goes_on]).index_copy(0, following[goes_on], h[goes_on])
        p = torch.zeros_like(p[goes_on]).index_copy(0, following[goes_on], p[goes_on])
        states.append(h)
        pointers.append(p)
    if absorbing:
        assert isinstance(model, MessagePassing)
        exits = _Step.of(plan, offsets[-1], int(plan.offsets[-1]), 0)
        final, _ = _gather(model, torch.cat(states), torch.cat(pointers), exits, plan.flags)
    else:
        final = torch.cat(states)[plan.final.long()]
    logits: Tensor = model.output(final)
    return logits


def _update(model: ProgramModel, h: Tensor, p: Tensor, step: _Step) -> tuple[Tensor, Tensor]:
    """The rows' states and pointer one step later."""
    assert isinstance(model, MessagePassing)
    proposal, p = _gather(model, h, p, step, step.flags)
    return model.execution.update(h, proposal), p


def _gather(model: MessagePassing, h: Tensor, p: Tensor, step: _Step, flags: Tensor) -> tuple[Tensor, Tensor]:
    """What arrives, h~, and its mass, from rows with states h, pointer p and these flags."""
    assert isinstance(model.execution, GatedUpdate)
    parts = h.view(len(h), -1, model.config.hidden)
    by_kind = torch.stack([dense(parts) for dense in model.execution.dense], dim=1).flatten(2)
    messages = by_kind[step.source, step.kind]
    nothing = h.new_zeros(step.rows, h.shape[1])
    if not isinstance(model.control, InstructionPointer):
        in_degree = nothing[:, 0].index_add(0, step.target, (step.kind < 2).to(p.dtype))
        return nothing.index_add(0, step.target, messages) / (2 + in_degree).sqrt()[:, None], p
    shares = branch_decisions(model.control.branch(h), two_edges(flags[: len(h)] & DECIDES != 0), hard=False)
    weight = p[step.source] * shares[step.source, step.kind]
    mass = nothing[:, 0].index_add(0, step.target, weight)
    total = nothing.index_add(0, step.target, weight[:, None] * messages)
    return divide(total, mass) if model.control.normalise else total, mass
