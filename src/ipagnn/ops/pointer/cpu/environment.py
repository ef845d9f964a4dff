"""The packed execution of an environment with beliefs over classes on a CPU; see `environment_forward`."""

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ipagnn.ops.pointer.cpu.environment_backward import backward
from ipagnn.ops.pointer.cpu.environment_forward import Memory, Plan, Weights, forward
from ipagnn.ops.pointer.cpu.math import product
from ipagnn.ops.pointer.environment import EnvironmentPlan


def can_follow(weight: Tensor) -> bool:
    """Whether there is compiled code for weights like this one."""
    plain = weight.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
    return plain and product(weight.dtype) is not None


def follow(
    plan: EnvironmentPlan, target: Tensor, *weights: Tensor, spare: list[dict[str, Tensor]], epsilon: float
) -> Tensor:
    """The probability that arrives at the exit of each program with v0 having the target. [program]

    Args:
        plan: What is computed when.
        target: Of each program.
        weights: E, W, the gates and offsets of all pairs, L and its bias, P and its bias (both times the root of D), c,
            and the Dense layer of decisions and its bias.
        spare: Memory of passes that are over. This one takes some and gives it back after its backward pass.
        epsilon: Added to the mass that mixtures are divided by.
    """
    if len(target) and int(target.min()) < 0:
        raise ValueError(
            "The target of a program is unknown (-1), so it has no likelihood; ask for predictions, or give targets."
        )
    result: Tensor = _Follow.apply(plan, target, spare, epsilon, *weights)  # type: ignore[no-untyped-call]
    return result


class _Follow(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, plan: EnvironmentPlan, target: Tensor, spare: Any, epsilon: float, *weights: Tensor
    ) -> Tensor:
        classes, read, gate, offset, layer, layer_bias, project, project_bias, output_bias, branch, branch_bias = (
            weight.detach().contiguous() for weight in weights
        )
        loaded = Weights(
            *(
                each.numpy()
                for each in (
                    *(classes, classes.T.contiguous(), read, read.T.contiguous(), gate, offset),
                    *(layer, layer.T.contiguous(), layer_bias, project, project.T.contiguous(), project_bias),
                    *(output_bias, branch.T.contiguous(), branch_bias),
                )
            )
        )
        arrays = _arrays(plan, target)
        buffers = spare.pop() if spare else {}
        memory = _memory(arrays, loaded, buffers, classes)
        forward(product(classes.dtype), loaded, arrays, memory, epsilon)
        ctx.held = loaded, arrays, memory, buffers, spare, epsilon
        return torch.from_numpy(memory.result.copy())

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        loaded, arrays, memory, buffers, spare, epsilon = ctx.held
        d_result = gradients[0].contiguous()
        backward(product(d_result.dtype), loaded, arrays, memory, d_result.numpy(), epsilon)
        m = Memory(*map(torch.from_numpy, memory))
        seen_views, seen, unseen = _places(arrays)
        scaled = m.d_views[seen_views] * m.scale[seen, None]
        d_classes = m.seen.T @ scaled
        d_classes.addmm_(m.d_logits.T, m.y[seen]).addmm_(m.unseen.T, m.y[unseen])
        d_classes[0] += m.d_views[0]
        stated = slice(arrays.literals, None)
        found = (
            d_classes,
            m.x[stated].T @ m.d_a[stated],
            m.d_gate.clone(),
            m.d_offset.clone(),
            m.h.T @ m.d_z,
            m.d_z.sum(0),
            m.z.T @ m.d_y,
            m.d_y.sum(0),
            m.d_logits.sum(0) + m.unseen.sum(0),
            m.z.T @ m.d_branch,
            m.d_branch.sum(0),
        )
        spare[:] = [buffers]
        return (None, None, None, None, *found)


def _arrays(plan: EnvironmentPlan, target: Tensor) -> Plan:
    def array(name: str) -> Any:
        value = getattr(plan, name)
        if isinstance(value, int):
            return value
        return np.array(value, np.int64) if isinstance(value, tuple) else value.numpy()

    return Plan(**{name: array(name) for name in Plan._fields[:-1]}, target=target.numpy())


def _places(plan: Plan) -> tuple[Tensor, Tensor, Tensor]:
    """Which views belong to what is written with one, and the numbers of what is written with and without one."""
    views, seen = [np.arange(plan.viewed_literals) + 1], [np.arange(plan.viewed_literals)]
    view = 1 + plan.viewed_literals
    for t, (first, _) in enumerate(pairwise(plan.statements.tolist())):
        view += plan.mixtures[t + 1] - plan.mixtures[t]
        views.append(view + np.arange(plan.viewed[t]))
        seen.append(plan.literals + first + np.arange(plan.viewed[t]))
        view += plan.viewed[t]
    with_view = np.concatenate(seen)
    others = np.ones(plan.literals + len(plan.statement_pair), np.bool_)
    others[with_view] = False
    return tuple(map(torch.from_numpy, (np.concatenate(views), with_view, np.flatnonzero(others))))  # type: ignore[return-value]


def _memory(plan: Plan, weights: Weights, buffers: dict[str, Tensor], like: Tensor) -> Memory:
    """Memory for a pass: what is in `buffers` where it is large enough. What is new replaces it."""
    classes, width = weights.classes.shape
    hidden, pairs = weights.layer.shape[0], len(weights.gate)
    conditions, queries = len(plan.condition_pair), len(plan.query_program)
    written = plan.literals + len(plan.statement_pair)
    rows, seen = written + conditions, plan.viewed_literals + int(plan.viewed.sum())
    views = 1 + seen + int(plan.mixtures[-1])
    steps, programs = len(plan.row_program), len(plan.arrival_offsets) - 1 - len(plan.row_program)
    shapes: dict[str, tuple[int, ...]] = {
        **dict.fromkeys(("x", "d_x", "d_y"), (rows, width)),
        **dict.fromkeys(("a", "h", "h_slope", "z", "z_slope", "d_z", "d_h", "d_a"), (rows, hidden)),
        "y": (written, width),
        **dict.fromkeys(("seen", "d_logits"), (seen, classes)),
        "unseen": (written - seen, classes),
        "scale": (written,),
        **dict.fromkeys(("views", "d_views"), (views, width)),
        **dict.fromkeys(("likelihood", "d_likelihood"), (queries,)),
        **dict.fromkeys(("shares", "d_shares"), (conditions, 2)),
        "d_branch": (rows, 2),
        **dict.fromkeys(("mass", "joint", "after", "d_mass", "d_joint", "d_after"), (steps,)),
        "result": (programs,),
        **dict.fromkeys(("d_gate", "d_offset"), (pairs, hidden)),
    }
    found = []
    for name in Memory._fields:
        first, *others = shapes[name]
        if name not in buffers or len(buffers[name]) < first or buffers[name].dtype != like.dtype:
            buffers[name] = like.new_empty(first + first // 8, *others)
        found.append(buffers[name][:first].numpy())
    return Memory(*found)
