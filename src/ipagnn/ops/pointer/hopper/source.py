"""The source of the persistent kernels (`*.cu`), and what they are given."""

import ctypes
from importlib.resources import files

from torch import Tensor

from ipagnn.ops.pointer.equations import EPSILON
from ipagnn.ops.pointer.triton.buffers import Buffers, KernelWeights
from ipagnn.ops.pointer.triton.plan import Plan

UNITS = 32
"""Hidden units whose weights one block keeps."""
THREADS = 512
"""Threads a block."""
FORWARD, BACKWARD = "forward.cu", "backward.cu"


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


def shared_memory(padded: int) -> tuple[int, int]:
    """Bytes of shared memory that the forward and the backward kernel need in each block."""
    rows = 32 if padded <= 224 else 16
    slices = 3 * 256 * padded  # of the weights
    forward = 4 * 2 * padded * rows + 4 * 8 * 64 + 2 * 8 * rows
    backward = 4 * 128 * rows + 4 * (padded // UNITS) * UNITS * rows + 4 * (32 * rows + 12 * 64)
    return slices + forward + 96, slices + backward + 96


def source(name: str, instructions: str | None = None) -> str:
    """All of a kernel's source as one text.

    Args:
        name: `FORWARD` or `BACKWARD`.
        instructions: What to put in place of `ptx.cuh`.
    """
    package = files("ipagnn.ops.pointer.hopper")
    text = package.joinpath(name).read_text()
    text = text.replace('#include "common.cuh"', package.joinpath("common.cuh").read_text())
    if instructions is None:
        instructions = package.joinpath("ptx.cuh").read_text()
    return text.replace('#include "ptx.cuh"', instructions)


def arguments(
    weights: KernelWeights, buffers: Buffers, plan: Plan, *, hard: bool, normalise: bool
) -> tuple[ctypes.Structure, ctypes.Structure, ctypes.Structure]:
    """What the kernels are given: plan and state both, gradients only the backward one."""
    at, b, w = Tensor.data_ptr, buffers, weights
    total = at(plan.offsets) + plan.offsets.itemsize * (plan.offsets.numel() - 1)
    return (
        _PLAN(
            at(plan.offsets), at(plan.tokens), at(plan.arrival_offsets), at(plan.arrivals), at(plan.true),
            at(plan.false), at(plan.branches), total, plan.capacity.groups, plan.capacity.steps, b.rows,
        ),
        _STATE(
            at(b.h), at(b.gates), at(b.c), at(b.pointer), at(b.decision), at(b.scores), at(w.table), at(w.weights),
            at(w.branch_weight), at(w.branch_bias), normalise, hard, EPSILON,
        ),
        _GRADIENTS(
            at(b.d_state), at(b.d_pointer), at(b.d_score), at(b.along), at(b.final_mass), at(b.d_final),
            at(b.along_final),
        ),
    )  # fmt: skip
