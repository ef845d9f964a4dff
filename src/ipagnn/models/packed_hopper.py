"""The packed execution on a GPU with thread block clusters (Hopper and later), in bf16: see `packed_hopper.cu`."""

import ctypes
from functools import cache
from importlib.resources import files

import torch
import triton
from torch import Tensor

from ipagnn.models import packed_triton as kernels
from ipagnn.models.cuda_driver import Kernel, compile_cuda
from ipagnn.models.packed_cuda import TOKEN_CHUNK, Buffers, Plan
from ipagnn.models.pointer import EPSILON
from ipagnn.programs.vocabulary import VOCABULARY_SIZE

BLOCKS = 8
"""Blocks a cluster."""
ROWS = 32
"""Rows that half a cluster has in flight."""
THREADS = 512


def _structure(name: str, *fields: tuple[str, type]) -> type[ctypes.Structure]:
    return type(name, (ctypes.Structure,), {"_fields_": list(fields)})


_P = ctypes.c_void_p
_PLAN = _structure(
    "Plan",
    *((n, _P) for n in ("offsets", "tokens", "arrival_offsets", "arrivals", "row_true", "row_false", "branches", "total")),
    *((n, ctypes.c_int) for n in ("steps", "capacity")),
)
_STATE = _structure(
    "State",
    *((n, _P) for n in ("h", "gates", "c", "pointer", "decision", "table", "weights", "branch_weight", "branch_bias")),
)
_GRADIENTS = _structure(
    "Gradients",
    *((n, _P) for n in ("d_state", "d_pointer", "d_score", "final_state", "final_mass", "d_final", "partial")),
)


def shared_memory(padded: int) -> tuple[int, int]:
    """Bytes of shared memory that the forward and the backward kernel need in each block."""
    gates = padded // 2
    weights = 3 * gates * (padded + 8)
    return 2 * (weights + 4 * ROWS * (padded + 8)) + 16, 2 * (weights + 4 * ROWS * (gates + 16)) + 16


@cache
def _kernels(padded: int) -> tuple[Kernel, Kernel]:
    source = files("ipagnn.models").joinpath("packed_hopper.cu").read_text()
    code = compile_cuda(source, (f"-DP={padded}", "-std=c++17", "--gpu-architecture=sm_90"))
    forward, backward = shared_memory(padded)
    return Kernel(code, "packed_forward", forward), Kernel(code, "packed_backward", backward)


class HopperLauncher:
    """Launches one forward and backward pass over a plan whose rows are ordered by group; holds no data of its own."""

    def __init__(self, buffers: Buffers, plan: Plan, *, hard: bool, normalise: bool) -> None:
        self.buffers, self.plan = buffers, plan
        b = buffers
        self.groups = len(plan.offsets)
        self.partial = torch.empty(self.groups, 2, BLOCKS, ROWS, 2, b.padded, dtype=torch.bfloat16, device=b.h.device)
        self.flags = [ctypes.c_int(normalise), ctypes.c_int(hard), ctypes.c_float(EPSILON)]
        self.normalise, self.hard = normalise, hard
        self.blocks = BLOCKS * self.groups // 2
        self.forward_kernel, self.backward_kernel = _kernels(b.padded)
        at = Tensor.data_ptr
        self.plan_struct = _PLAN(
            at(plan.offsets), at(plan.tokens), at(plan.arrival_offsets), at(plan.arrivals), at(plan.true), at(plan.false),
            at(plan.branches), at(plan.total), plan.steps, b.rows,
        )  # fmt: skip
        self.state = _STATE(
            at(b.h), at(b.gates), at(b.c), at(b.pointer), at(b.decision), at(b.table), at(b.weights),
            at(b.branch_weight), at(b.branch_bias),
        )  # fmt: skip
        self.gradients = _GRADIENTS(
            at(b.d_state), at(b.d_pointer), at(b.d_score), at(b.final), at(b.final_mass), at(b.d_final), at(self.partial)
        )

    def forward(self) -> None:
        """From the loaded weights and the plan to `buffers.final`."""
        b, plan = self.buffers, self.plan
        self.forward_kernel(self.blocks, THREADS, [self.plan_struct, self.state, *self.flags])
        kernels.aggregate[(plan.programs,)](
            plan.total, 0, plan.arrival_offsets, plan.arrivals, plan.branches, b.branch_weight, b.branch_bias,
            b.pointer, b.decision, b.h, b.c, b.rows, b.final, b.final_mass, plan.programs, EPSILON,
            EXITS=True, NORMALISE=self.normalise, HARD=self.hard, P=b.padded,
            WIDTH=triton.next_power_of_2(b.padded), num_warps=2,
        )  # fmt: skip

    def backward(self) -> None:
        """From `buffers.d_final` to the gradients of all gates and of the token table."""
        b, plan = self.buffers, self.plan
        self.backward_kernel(self.blocks, THREADS, [self.plan_struct, self.state, self.gradients, *self.flags])
        wide = 4 * b.padded
        kernels.clear_tail[(min(b.rows, 1024),)](
            plan.total, 0, b.gates, b.d_score, b.rows, P4=wide, WIDTH=triton.next_power_of_2(wide)
        )
        columns = triton.cdiv(wide, 128)
        kernels.token_partials[(min(1024, len(b.partials)), columns)](
            plan.chunk_offsets, plan.chunks, plan.order, b.gates, b.partials, b.rows, P4=wide, N=128, M=TOKEN_CHUNK
        )
        kernels.token_sums[(VOCABULARY_SIZE, columns)](plan.first_chunk, b.partials, b.d_table, P4=wide, N=128)
