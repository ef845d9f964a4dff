"""The packed execution on a CUDA GPU: launches and gradients around the kernels of `forward` and `backward`."""

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from ipagnn.languages.arithmetic.vocabulary import VOCABULARY_SIZE
from ipagnn.ops.pointer.equations import EPSILON
from ipagnn.ops.pointer.triton import backward as backward_kernels
from ipagnn.ops.pointer.triton import forward as kernels
from ipagnn.ops.pointer.triton import weights as weight_kernels
from ipagnn.ops.pointer.triton.buffers import Buffers, KernelWeights
from ipagnn.ops.pointer.triton.plan import TOKEN_CHUNK, Plan

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


BRANCH_SHARES = 128
"""Programs that sum the branch layer's gradient over a share of the rows each."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """What the packed execution is differentiable in, or its gradients; float32, contiguous.

    Shapes: table [token, 4 H]; hidden_1, input_2, hidden_2 [H, 4 H]; bias_2 [4 H]; branch [4 H, 2]; branch_bias [2].
    """

    table: Tensor
    hidden_1: Tensor
    input_2: Tensor
    hidden_2: Tensor
    bias_2: Tensor
    branch: Tensor
    branch_bias: Tensor

    def all(self) -> tuple[Tensor, ...]:
        """In the order in which kernels take them."""
        return (
            self.table, self.hidden_1, self.input_2, self.hidden_2, self.bias_2, self.branch, self.branch_bias
        )  # fmt: skip


class Launcher:
    """Launches the kernels of one forward and backward pass over a plan of one group.

    Args:
        weights, buffers, plan: What they work on.
        hard: Decide by arg max.
        normalise: Divide arriving states by the mass that arrived.
        exact: Products of float32 in full precision rather than tf32.
    """

    def __init__(
        self,
        weights: KernelWeights,
        buffers: Buffers,
        plan: Plan,
        *,
        hard: bool,
        normalise: bool,
        exact: bool,
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
        self._sizes = {"H": weights.hidden, **self._wide}
        self._total = plan.offsets, plan.offsets.numel() - 1  # where the number of rows is
        device = buffers.h.device
        self._d_weights = torch.empty(3, padded, 4 * padded, device=device)
        self._d_branch = torch.empty(BRANCH_SHARES, 4, padded, device=device)
        self._d_branch_bias = torch.empty(BRANCH_SHARES, device=device)

    def load(self, parameters: Parameters) -> None:
        """Take weights over."""
        w = self.weights
        weight_kernels.load_weights[(3 * w.hidden + 2 + VOCABULARY_SIZE,)](
            *parameters.all(), w.table, w.weights, w.branch_weight, w.branch_bias, **self._sizes, num_warps=2
        )

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

    def backward(self, d_final: Tensor, gradients: Parameters, side: torch.cuda.Stream) -> None:
        """From the gradient of the final states [program, 4 H] to those of the weights.

        That of the token table is computed on another stream: what depends on it follows there, side by side with the
        others.
        """
        b = self.buffers
        weight_kernels.begin_backward[(self.plan.capacity.programs,)](
            b.final, d_final, b.d_final, b.along_final, **self._sizes, num_warps=2
        )
        main = torch.cuda.current_stream(b.h.device)
        side.wait_stream(main)
        with torch.cuda.stream(side):  # while the backward pass leaves multiprocessors idle
            weight_kernels.clear_tail[(64, 18)](*self._total, b.h, b.gates, b.rows, **self._wide)
        self._backward_rows()
        main.wait_stream(side)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            self._table_gradient(gradients)
        self._weight_gradients(gradients)
        self._branch_gradient(gradients)

    def _table_gradient(self, gradients: Parameters) -> None:
        w, b, plan = self.weights, self.buffers, self.plan
        wide, columns = 4 * w.padded, triton.cdiv(4 * w.padded, 128)
        backward_kernels.token_partials[(min(1024, len(b.partials)), columns)](
            plan.chunk_offsets, plan.chunks, plan.order, b.gates, b.partials, b.rows, P4=wide, N=128, M=TOKEN_CHUNK
        )
        weight_kernels.store_table[(VOCABULARY_SIZE, columns)](
            plan.first_chunk, b.partials, gradients.table, H=w.hidden, P=w.padded, N=128, M=16
        )

    def _branch_gradient(self, gradients: Parameters) -> None:
        w, b = self.weights, self.buffers
        weight_kernels.branch_shares[(BRANCH_SHARES, 4)](
            *self._total, b.h, b.c, b.d_score, self._d_branch, self._d_branch_bias, b.rows,
            P=w.padded, N=self._wide["WIDTH"], M=16,
        )  # fmt: skip
        weight_kernels.store_branch[(4, triton.cdiv(w.hidden, 32))](
            self._d_branch, self._d_branch_bias, gradients.branch, gradients.branch_bias,
            H=w.hidden, P=w.padded, N=32, SHARES=BRANCH_SHARES,
        )  # fmt: skip

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

    def _weight_gradients(self, gradients: Parameters) -> None:
        """Each is one product over all rows and tokens."""
        w, b, g = self.weights, self.buffers, gradients
        gates_1, gates_2 = b.gates.view(2, -1, 4 * w.padded)
        pairs = (b.h[0, :4], gates_1), (b.h[0, 1:], gates_2), (b.h[1, :4], gates_2)
        for to, (states, gates) in zip(self._d_weights, pairs, strict=True):
            multiply(states.reshape(-1, w.padded).T, gates, to)
        weight_kernels.store_gradients[(3 * w.hidden + 1,)](
            self._d_weights, g.hidden_1, g.input_2, g.hidden_2, g.bias_2, **self._sizes, num_warps=2
        )


def multiply(left: Tensor, right: Tensor, to: Tensor) -> None:
    """`to = left @ right`, where `to` is float32."""
    if left.dtype == torch.float32:
        torch.mm(left, right, out=to)
    else:
        torch.mm(left, right, out_dtype=torch.float32, out=to)
