"""The packed execution on a CUDA GPU: launches and gradients around the kernels of `packed_triton*`."""

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from ipagnn.models import packed_triton as kernels
from ipagnn.models import packed_triton_backward as backward_kernels
from ipagnn.models.packed_buffers import Buffers, Weights
from ipagnn.models.packed_plan import TOKEN_CHUNK, Plan
from ipagnn.models.pointer import EPSILON
from ipagnn.programs.vocabulary import VOCABULARY_SIZE

MAX_ROWS = 2_000_000
"""Most rows of a batch: their offsets must fit 32 bits."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """Block shapes of the matrix kernels; small batches want small ones, so that all multiprocessors have work."""

    rows: int
    units: int
    forward_inner: int
    backward_inner: int
    warps: int
    stages: int


LARGE_TILES = Tiles(rows=64, units=32, forward_inner=32, backward_inner=64, warps=4, stages=4)
SMALL_TILES = Tiles(rows=16, units=16, forward_inner=32, backward_inner=128, warps=2, stages=4)
SMALL_BATCH = 128
"""Programs up to which the small tiles are used (measured on an H200)."""


class Launcher:
    """Launches the kernels of one forward and backward pass over a plan of one group.

    Args:
        weights, buffers, plan: What they work on.
        hard: Decide by arg max.
        normalise: Divide arriving states by the mass that arrived.
        exact: Products of float32 in full precision rather than tf32.
    """

    def __init__(
        self, weights: Weights, buffers: Buffers, plan: Plan, *, hard: bool, normalise: bool, exact: bool
    ) -> None:
        if plan.capacity.rows > MAX_ROWS:
            raise ValueError(
                f"The batch has room for {plan.capacity.rows} rows; at most {MAX_ROWS} fit. Make it smaller."
            )
        self.weights, self.buffers, self.plan = weights, buffers, plan
        self.tiles = tiles = SMALL_TILES if plan.capacity.programs <= SMALL_BATCH else LARGE_TILES
        padded = weights.padded
        self._wide = {"P": padded, "WIDTH": triton.next_power_of_2(padded)}
        self._flags = {"NORMALISE": normalise, "HARD": hard, **self._wide}
        self._shape = {"P": padded, "M": tiles.rows, "N": tiles.units, "EXACT": exact}
        self._options = {"num_warps": tiles.warps, "num_stages": tiles.stages}
        multiprocessors = torch.cuda.get_device_properties(buffers.h.device).multi_processor_count
        most = 2 * (padded // tiles.units) * triton.cdiv(buffers.rows, tiles.rows)
        self._wave_blocks = min(4 * multiprocessors, most)
        self._row_blocks = min(16 * multiprocessors, buffers.rows)

    def forward(self) -> None:
        """From the loaded weights and the plan to `buffers.final`."""
        self._forward_rows()
        self._aggregate(self.plan.offsets.numel() - 1, exits=True)

    def _forward_rows(self) -> None:
        """All steps of all rows: from the plan to h, c and gates, pointer and decision."""
        w, b, plan = self.weights, self.buffers, self.plan
        kernels.begin[(self._row_blocks,)](plan.offsets, b.pointer, b.h, b.c, b.rows, **self._wide)
        for step in range(plan.capacity.steps):
            if step:
                self._aggregate(step, exits=False)
            for wave in range(5):
                kernels.wave_forward[(self._wave_blocks,)](
                    plan.offsets, step, plan.tokens, w.table, w.weights, b.h, b.c, b.gates, b.rows,
                    WAVE=wave, K=self.tiles.forward_inner, **self._shape, **self._options,
                )  # fmt: skip

    def _aggregate(self, step: int, *, exits: bool) -> None:
        w, b, plan = self.weights, self.buffers, self.plan
        kernels.aggregate[(plan.capacity.programs if exits else self._row_blocks,)](
            plan.offsets, step, plan.arrival_offsets, plan.arrivals, plan.branches, w.branch_weight, w.branch_bias,
            b.pointer, b.decision, b.h, b.c, b.rows, b.final, b.final_mass, plan.capacity.programs, EPSILON,
            EXITS=exits, **self._flags, num_warps=2,
        )  # fmt: skip

    def backward(self) -> tuple[Tensor, ...]:
        """From `buffers.d_final` to the gradients of the weights, in the order of `Weights.load`."""
        self._backward_rows()
        w, b, plan = self.weights, self.buffers, self.plan
        backward_kernels.clear_tail[(min(b.rows, 1024),)](
            plan.offsets, plan.offsets.numel() - 1, b.h, b.c, b.gates, b.d_score, b.rows, **self._wide
        )
        wide = 4 * w.padded
        columns = triton.cdiv(wide, 128)
        backward_kernels.token_partials[(min(1024, len(b.partials)), columns)](
            plan.chunk_offsets, plan.chunks, plan.order, b.gates, b.partials, b.rows, P4=wide, N=128, M=TOKEN_CHUNK
        )
        backward_kernels.token_sums[(VOCABULARY_SIZE, columns)](plan.first_chunk, b.partials, w.d_table, P4=wide, N=128)
        return self._weight_gradients()

    def _backward_rows(self) -> None:
        """All steps of all rows, last to first: from `buffers.d_final` to the gradients of gates and scores."""
        w, b, plan = self.weights, self.buffers, self.plan
        for step in reversed(range(plan.capacity.steps)):
            backward_kernels.aggregate_backward[(self._row_blocks,)](
                plan.offsets, step, plan.capacity.steps, plan.true, plan.false, plan.branches, w.branch_weight,
                b.pointer, b.decision, b.d_pointer, b.d_score, b.h, b.c, b.gates, b.d_state,
                b.final, b.final_mass, b.d_final, b.rows, EPSILON, **self._flags, num_warps=2,
            )  # fmt: skip
            for wave in (3, 2, 1, 0, -1):
                backward_kernels.wave_backward[(self._wave_blocks,)](
                    plan.offsets, step, w.weights, b.c, b.gates, b.d_state, b.rows,
                    WAVE=wave, K=self.tiles.backward_inner, **self._shape, **self._options,
                )  # fmt: skip

    def _weight_gradients(self) -> tuple[Tensor, ...]:
        """Each is one product over all rows and tokens."""
        w, b, size = self.weights, self.buffers, self.weights.hidden
        gates_1, gates_2 = b.gates.view(2, -1, 4 * w.padded)

        def product(states: Tensor, gates: Tensor) -> Tensor:
            left = states.reshape(-1, w.padded).T
            wide = torch.mm(left, gates) if w.dtype == torch.float32 else torch.mm(left, gates, out_dtype=torch.float32)
            return wide.view(w.padded, w.padded, 4)[:, :size].mT

        d_input_2 = product(b.h[0, 1:], gates_2)
        score = b.d_score[:, None]
        d_branch = torch.cat(
            [
                torch.mm(part.T, score.to(part.dtype))[:size].float()
                for part in (b.c[0, 4], b.h[0, 4], b.c[1, 4], b.h[1, 4])
            ]
        )
        d_bias = b.d_score.sum()[None]
        return (
            w.d_table[:, :size].mT.reshape(-1, 4 * size),
            product(b.h[0, :4], gates_1)[:size].reshape(size, 4 * size),
            d_input_2[:size].reshape(size, 4 * size),
            product(b.h[1, :4], gates_2)[:size].reshape(size, 4 * size),
            d_input_2[-1].reshape(4 * size),
            torch.cat([d_branch, -d_branch], dim=1),
            torch.cat([d_bias, -d_bias]),
        )


class _Execute(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, launcher: Launcher, *weights: Tensor) -> Tensor:
        ctx.launcher, size = launcher, launcher.weights.hidden
        launcher.weights.load(*weights)
        launcher.forward()
        return launcher.buffers.final[:, :, :size].reshape(-1, 4 * size)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        launcher, size = ctx.launcher, ctx.launcher.weights.hidden
        launcher.buffers.d_final[:, :, :size] = gradients[0].view(-1, 4, size)
        return (None, *launcher.backward())


def execute(launcher: Launcher, *weights: Tensor) -> Tensor:
    """Final states [program, 4 * hidden] of the launcher's plan, differentiable in the weights.

    The backward pass reads what the forward pass left in the buffers, so it must follow before these are used again.

    Args:
        launcher: Kernels with their weights, buffers and plan.
        weights: In the order of `Weights.load`.
    """
    return _Execute.apply(launcher, *weights)  # type: ignore[no-any-return, no-untyped-call]
