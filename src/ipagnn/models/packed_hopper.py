"""The packed execution on a Hopper GPU in bf16, as two persistent kernels: see `packed_hopper.cu`."""

import ctypes
from functools import cache
from importlib.resources import files

import torch
from torch import Tensor

from ipagnn.models.cuda_driver import Kernel, compile_cuda
from ipagnn.models.packed_cuda import Buffers, Launcher, Weights
from ipagnn.models.packed_plan import Plan
from ipagnn.models.pointer import EPSILON

UNITS = 32
"""Hidden units whose weights one block keeps."""
MOST_BLOCKS = 8
"""Largest cluster of blocks that every Hopper GPU runs."""
THREADS = 512
PROGRAMS_ALONE = 5
"""Programs up to which a cluster runs them as one group."""
_HOPPER = (9, 0)


def _structure(name: str, *fields: tuple[str, type]) -> type[ctypes.Structure]:
    return type(name, (ctypes.Structure,), {"_fields_": list(fields)})


_POINTER, _INT, _FLOAT = ctypes.c_void_p, ctypes.c_int, ctypes.c_float
_PLAN = _structure(
    "Plan",
    *(
        (name, _POINTER)
        for name in ("offsets", "tokens", "arrival_offsets", "arrivals", "true", "false", "branches", "total")
    ),
    ("groups", _INT),
    ("steps", _INT),
    ("capacity", _INT),
)
_STATE = _structure(
    "State",
    *(
        (name, _POINTER)
        for name in (
            "h", "gates", "c", "pointer", "decision", "scores", "table", "weights", "branch_weight", "branch_bias"
        )
    ),
    ("normalise", _INT),
    ("hard", _INT),
    ("eps", _FLOAT),
)  # fmt: skip
_GRADIENTS = _structure(
    "Gradients",
    *(
        (name, _POINTER)
        for name in ("d_state", "d_pointer", "d_score", "along", "final_mass", "d_final", "along_final")
    ),
)


def fits(weights: Weights) -> bool:
    """Whether the kernels run these weights, where they are."""
    device = weights.table.device
    return (
        device.type == "cuda"
        and weights.dtype == torch.bfloat16
        and weights.padded <= UNITS * MOST_BLOCKS
        and torch.cuda.get_device_capability(device) == _HOPPER
    )


def groups(weights: Weights, programs: int) -> int:
    """How many groups to make of a batch: one for each cluster that runs at a time, or two if there is work for both.

    Products cost the same for 8 rows as for 32, so two groups pay only when one would have more rows in a step.
    """
    forward, _ = _kernels(weights.padded)
    clusters = forward.clusters(weights.padded // UNITS, THREADS)
    return clusters if programs <= PROGRAMS_ALONE * clusters else 2 * clusters


def shared_memory(padded: int) -> tuple[int, int]:
    """Bytes of shared memory that the forward and the backward kernel need in each block."""
    rows = 32 if padded <= 224 else 16
    slices = 3 * 256 * padded  # of the weights
    forward = 4 * 2 * padded * rows + 4 * 8 * 64 + 2 * 8 * rows
    backward = 4 * 128 * rows + 4 * (padded // UNITS) * UNITS * rows + 4 * 16 * rows
    return slices + forward + 96, slices + backward + 96


@cache
def _kernels(padded: int) -> tuple[Kernel, Kernel]:
    package = files("ipagnn.models")
    common = package.joinpath("packed_hopper.cuh").read_text()

    def kernel(file: str, name: str, memory: int) -> Kernel:
        source = package.joinpath(file).read_text().replace('#include "packed_hopper.cuh"', common)
        code = compile_cuda(source, (f"-DP={padded}", "-std=c++17", "--gpu-architecture=sm_90a"))
        return Kernel(code, name, memory)

    forward, backward = shared_memory(padded)
    return (
        kernel("packed_hopper.cu", "packed_forward", forward),
        kernel("packed_hopper_backward.cu", "packed_backward", backward),
    )


class HopperLauncher(Launcher):
    """A `Launcher` for a plan of many groups: every cluster runs two of them from the first step to the last."""

    def __init__(
        self, weights: Weights, buffers: Buffers, plan: Plan, *, hard: bool, normalise: bool, exact: bool = False
    ) -> None:
        super().__init__(weights, buffers, plan, hard=hard, normalise=normalise, exact=exact)
        blocks = weights.padded // UNITS
        clusters = _kernels(weights.padded)[0].clusters(blocks, THREADS)
        self._blocks = min(plan.capacity.groups, clusters) * blocks
        self._kernels = _kernels(weights.padded)
        at, b, w = Tensor.data_ptr, buffers, weights
        total = at(plan.offsets) + plan.offsets.itemsize * (plan.offsets.numel() - 1)
        self._plan = _PLAN(
            at(plan.offsets), at(plan.tokens), at(plan.arrival_offsets), at(plan.arrivals), at(plan.true),
            at(plan.false), at(plan.branches), total, plan.capacity.groups, plan.capacity.steps,
            b.rows,
        )  # fmt: skip
        self._state = _STATE(
            at(b.h), at(b.gates), at(b.c), at(b.pointer), at(b.decision), at(b.scores), at(w.table), at(w.weights),
            at(w.branch_weight), at(w.branch_bias), normalise, hard, EPSILON,
        )  # fmt: skip
        self._gradients = _GRADIENTS(
            at(b.d_state), at(b.d_pointer), at(b.d_score), at(b.along), at(b.final_mass), at(b.d_final),
            at(b.along_final),
        )  # fmt: skip

    def _forward_rows(self) -> None:
        self._kernels[0](self._blocks, THREADS, [self._plan, self._state])

    def _backward_rows(self) -> None:
        b = self.buffers
        torch.sum(b.final * b.d_final, dim=(1, 2), out=b.along_final)
        self._kernels[1](self._blocks, THREADS, [self._plan, self._state, self._gradients])
