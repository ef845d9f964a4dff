"""The packed execution of an environment with beliefs over classes on a CPU; see `environment_forward`."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ipagnn.ops.pointer.cpu.environment_backward import backward
from ipagnn.ops.pointer.cpu.environment_forward import forward
from ipagnn.ops.pointer.cpu.environment_gradients import Gradients
from ipagnn.ops.pointer.cpu.environment_layout import Layout, Memory, NetworkWeights, PlanArrays, lay_out
from ipagnn.ops.pointer.cpu.team import YIELD, counters, run_together
from ipagnn.ops.pointer.cpu.tiles import padded, panels_for
from ipagnn.ops.pointer.environment import EnvironmentPlan

LEAST_WORK = 1e5
"""Rows times H for each thread; with less a second one wins nothing."""


def can_follow(weight: Tensor) -> bool:
    """Whether there is compiled code for weights like this one."""
    plain = weight.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
    return plain and weight.dtype in (torch.float32, torch.float64)


def follow(
    plan: EnvironmentPlan, target: Tensor, *weights: Tensor, spare: list[dict[str, Tensor]], epsilon: float
) -> Tensor:
    """The probability that arrives at the exit of each program with v0 having the target. [program]

    Args:
        plan: What is computed when.
        target: Of each program.
        weights: As in `Gradients`.
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
        found = [weight.detach().contiguous() for weight in weights]
        arrays, buffers = _arrays(plan, target), spare.pop() if spare else {}
        layout = Layout(*lay_out(arrays))
        loaded = _weights(found, buffers)
        memory = _memory(arrays, layout, loaded, buffers, found[0])
        threads = max(1, min(torch.get_num_threads(), int(len(layout.pair) * len(loaded.layer) / LEAST_WORK)))
        count = counters(2 * len(arrays.steps) + 1)
        run_together(lambda: forward(count, YIELD, loaded, arrays, layout, memory, epsilon), threads)
        ctx.held = loaded, arrays, layout, memory, buffers, spare, epsilon, threads
        return torch.from_numpy(memory.result.copy())

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        loaded, arrays, layout, memory, buffers, spare, epsilon, threads = ctx.held
        d_result = gradients[0].contiguous().numpy()
        sums = Gradients(*(np.empty_like(getattr(loaded, name)) for name in Gradients._fields))
        sums = sums._replace(branch=np.empty_like(loaded.branch.T, order="C"))
        count = counters(2 * len(arrays.steps) + 2)
        run_together(lambda: backward(count, YIELD, loaded, arrays, layout, memory, sums, d_result, epsilon), threads)
        spare[:] = [buffers]
        return (None, None, None, None, *map(torch.from_numpy, sums))


def _arrays(plan: EnvironmentPlan, target: Tensor) -> PlanArrays:
    def array(name: str) -> Any:
        value = getattr(plan, name)
        if isinstance(value, int):
            return value
        return np.array(value, np.int64) if isinstance(value, tuple) else value.numpy()

    return PlanArrays(**{name: array(name) for name in PlanArrays._fields[:-1]}, target=target.numpy())


def _weights(found: list[Tensor], buffers: dict[str, Any]) -> NetworkWeights:
    """The weights, and memory for those that rows are multiplied with."""
    arrays = dict(zip(Gradients._fields, (each.numpy() for each in found), strict=True))
    arrays["branch"] = np.ascontiguousarray(arrays["branch"].T)
    classes, (width, hidden), kind = len(arrays["output_bias"]), arrays["read"].shape, arrays["read"].dtype
    if "panels" not in buffers or buffers["panels"][0].dtype != kind:
        shapes = (
            *((width + 1, classes), (classes, width), (width, hidden), (hidden, width), (width, hidden)),
            *((hidden, width), (width + 1, hidden), (hidden, width), (hidden + 1, hidden), (hidden, hidden)),
            *((hidden + 1, width), (width, hidden)),
        )
        buffers["panels"] = [panels_for(inner, columns, kind) for inner, columns in shapes]
    return NetworkWeights(*arrays.values(), *buffers["panels"])


def _memory(plan: PlanArrays, layout: Layout, weights: NetworkWeights, buffers: dict[str, Any], like: Tensor) -> Memory:
    """Memory for a pass: what is in `buffers` where it is large enough. What is new replaces it."""
    size = like.itemsize
    classes = padded(len(weights.output_bias), size)
    width, hidden = (padded(columns + 1, size) for columns in weights.read.shape)
    pairs = len(plan.pair_operand) - plan.literals
    conditions, queries, steps = len(plan.condition_pair), len(plan.query_program), len(plan.row_program)
    rows, written, seen = len(layout.pair), len(layout.written), len(layout.place)
    views = 1 + seen + int(plan.mixtures[-1])
    shapes: dict[str, tuple[int, ...]] = {
        **dict.fromkeys(("x", "d_x"), (rows, width)),
        **dict.fromkeys(("a", "h", "h_slope", "z", "z_slope", "d_z", "d_h", "d_a"), (rows, hidden)),
        **dict.fromkeys(("y", "weighted", "d_y"), (written, width)),
        "belief": (written, classes),
        "d_logits": (seen, classes),
        "scale": (written,),
        **dict.fromkeys(("number", "d_number"), (pairs, width)),
        **dict.fromkeys(("gate", "offset", "d_gate", "d_offset"), (pairs, hidden)),
        **dict.fromkeys(("views", "d_views"), (views, width)),
        **dict.fromkeys(("likelihood", "d_likelihood"), (queries,)),
        **dict.fromkeys(("shares", "d_shares"), (conditions, 2)),
        "d_branch": (conditions,),
        **dict.fromkeys(("mass", "joint", "after", "d_mass", "d_joint", "d_after"), (steps,)),
        "result": (len(plan.arrival_offsets) - 1 - steps,),
    }
    found = []
    for name in Memory._fields:
        first, *others = shapes[name]
        if name not in buffers or len(buffers[name]) < first or buffers[name].dtype != like.dtype:
            buffers[name] = like.new_empty(first + first // 8, *others)
        found.append(buffers[name][:first].numpy())
    return Memory(*found)
