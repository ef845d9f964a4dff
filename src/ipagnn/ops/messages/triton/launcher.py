"""Message passing on a CUDA GPU: buffers, launches and gradients around the kernels of `message_triton*`."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import torch
import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ipagnn.languages.arithmetic.vocabulary import VOCABULARY_SIZE
from ipagnn.ops.call import STATE_PARTS
from ipagnn.ops.messages.call import Messages
from ipagnn.ops.messages.triton import backward as backward_kernels
from ipagnn.ops.messages.triton import forward as kernels
from ipagnn.ops.messages.triton.plan import MessageCapacity, MessagePlan
from ipagnn.ops.messages.triton.statement_kernels import (
    ORDER,
    UNITS,
    gates_backward,
    products_backward,
    statement_forward,
)
from ipagnn.ops.pointer.triton import backward as packed_triton_backward
from ipagnn.ops.pointer.triton import weights as packed_triton_weights
from ipagnn.ops.pointer.triton.buffers import Buffers, KernelWeights
from ipagnn.ops.pointer.triton.launcher import multiply
from ipagnn.ops.pointer.triton.plan import TOKEN_CHUNK

Shapes = dict[str, tuple[tuple[int, ...], torch.dtype]]


@dataclass(frozen=True, slots=True)
class Tile:
    """How a matrix kernel is launched.

    Attributes:
        M, N, K: Block shape. K need not divide what is summed over.
        warps, stages: As Triton has them.
        blocks: For each multiprocessor.
        registers: Most of a thread, so that more blocks fit a multiprocessor.
    """

    M: int
    N: int
    K: int
    warps: int
    stages: int
    blocks: int = 2
    registers: int | None = None

    def arguments(self, *, exact: bool) -> dict[str, Any]:
        """As kernels take them."""
        return {
            "M": self.M, "N": self.N, "K": self.K, "EXACT": exact,
            "num_warps": self.warps, "num_stages": self.stages, "maxnreg": self.registers,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tiles:
    """For many lines, where blocks should be large, and for few, where all multiprocessors should have one."""

    many: Tile
    few: Tile

    def choose(self, lines: float, dtype: torch.dtype, *, exact: bool) -> Tile:
        """For so many lines at once, of numbers of this kind."""
        if exact:
            return EXACT_TILE
        tile = self.few if lines <= FEW_LINES else self.many
        return tile if dtype == torch.bfloat16 else replace(tile, K=tile.K // 2)  # the same room in shared memory


EXACT_TILE = Tile(32, 32, 32, 4, 2)
"""For products of float32 in full precision, which Triton takes long to compile in larger tiles."""
FEW_LINES = 2048
# Those for many lines were the fastest of 10 to 16 on an H200 at H = 200: of most two or three blocks fit a
# multiprocessor, one multiplying while the other finishes. Of the LSTM over statements N are units, each of four gates.
STATEMENT_TILES = Tiles(Tile(128, 32, 32, 8, 4, blocks=4, registers=128), Tile(64, 32, 64, 4, 3))
STATEMENT_BACKWARD_TILES = Tiles(Tile(128, 64, 64, 4, 3, blocks=4), Tile(64, 32, 64, 4, 3))


def size_of(shapes: Shapes) -> int:
    """Bytes that buffers take."""
    return sum(-(-dtype.itemsize * torch.Size(shape).numel() // 256) * 256 for shape, dtype in shapes.values())


def lay(shapes: Shapes, memory: Tensor) -> dict[str, Tensor]:
    """Views of `memory` for buffers, one after the other."""
    views, used = {}, 0
    for name, (shape, dtype) in shapes.items():
        size = dtype.itemsize * torch.Size(shape).numel()
        views[name] = memory[used : used + size].view(dtype).view(shape)
        used += -(-size // 256) * 256
    return views


def product(left: Tensor, right: Tensor) -> Tensor:
    """left^T @ right as float32."""
    result = torch.empty(left.shape[1], right.shape[1], device=left.device)
    multiply(left.T, right, result)
    return result


def blocks(matrix: Tensor, rows: int, columns: int) -> TensorDescriptor:
    """A descriptor by which kernels fetch blocks of a matrix."""
    return TensorDescriptor.from_tensor(matrix, [rows, columns])


class StatementWaves:
    """Runs the LSTM over the statements of a plan.

    Args:
        weights: Of the LSTM, which `load` fills.
        plan: Whose statements.
        memory: To lay buffers in.
        exact: Products of float32 in full precision rather than tf32.
    """

    def __init__(self, weights: KernelWeights, plan: MessagePlan, memory: Tensor, *, exact: bool) -> None:
        self.weights, self.plan = weights, plan
        rows = plan.capacity.statements
        self.buffers = b = Buffers(weights, rows, 1, memory)
        self._d_h = lay(self._shapes(weights, rows), memory[Buffers.bytes(weights, rows) :])["d_h"]
        padded = weights.padded
        # Gradients of states are kept as outputs are: kernels that wait for memory read half as much. In bf16 that
        # rounds gradients by 2e-3 of their norm, where all else rounds them by 7e-3.
        self.d_state = b.d_state.view(weights.dtype).flatten()[: b.d_state.numel()].view(b.d_state.shape)
        self.wide = {"P": padded, "WIDTH": triton.next_power_of_2(padded)}
        self._sizes = {"H": weights.hidden, "UNITS": UNITS.value}
        self._no_branch = torch.zeros(STATE_PARTS * weights.hidden, 2, device=b.h.device)
        lines = plan.capacity.statements / (len(plan.waves) - 1)
        ahead, back = (x.choose(lines, weights.dtype, exact=exact) for x in (STATEMENT_TILES, STATEMENT_BACKWARD_TILES))
        kernel = weights.weights.view(3 * padded, 4 * padded)
        self._order = (torch.arange(0, 4 * padded, len(ORDER))[:, None] + torch.tensor(ORDER)).flatten().to(b.h.device)
        self._ordered = torch.empty_like(kernel)
        self._forward = {
            "states": blocks(b.h.view(-1, padded), ahead.M, ahead.K),
            "weights": blocks(self._ordered, ahead.K, 4 * ahead.N),
            "P": padded,
            "W": min(ahead.warps, ahead.M // 16),
            **ahead.arguments(exact=exact),
        }
        self._backward = {
            "gradients": blocks(b.gates.view(-1, 4 * padded), back.M, back.K),
            "weights": blocks(kernel, back.N, back.K),
            "P": padded,
            **back.arguments(exact=exact),
        }
        count = multiprocessors(b.h.device)
        self._forward_grid, self._backward_grid = (ahead.blocks * count,), (back.blocks * count,)
        self._row_grid = (32 * count,)  # of one warp each: as many as multiprocessors hold

    @staticmethod
    def _shapes(weights: KernelWeights, rows: int) -> Shapes:
        return {"d_h": ((rows, 2, weights.padded), weights.dtype)}

    @staticmethod
    def bytes(weights: KernelWeights, rows: int) -> int:
        """Memory that all buffers take."""
        return Buffers.bytes(weights, rows) + size_of(StatementWaves._shapes(weights, rows))

    def load(self, *weights: Tensor) -> None:
        """Take over table, hidden_1, input_2, hidden_2 and bias_2."""
        w = self.weights
        packed_triton_weights.load_weights[(3 * w.hidden + 2 + VOCABULARY_SIZE,)](
            *weights, self._no_branch, self._no_branch, w.table, w.weights, w.branch_weight, w.branch_bias,
            **self._sizes, **self.wide, num_warps=2,
        )  # fmt: skip
        torch.index_select(w.weights.view(self._ordered.shape), 1, self._order, out=self._ordered)

    def forward(self, wave: int) -> None:
        """All tokens of the statements of a wave of the plan, from plane 0 of the states to plane 4."""
        w, b, plan = self.weights, self.buffers, self.plan
        for token in range(5):
            statement_forward[self._forward_grid](
                plan.waves, wave, plan.tokens, w.table, h=b.h, c=b.c, gates=b.gates, capacity=b.rows, WAVE=token,
                **self._forward,
            )  # fmt: skip

    def backward(self, wave: int) -> None:
        """The same backwards, from `d_state` and the gates of the last token."""
        b, plan = self.buffers, self.plan
        for token in (3, 2, 1, 0, -1):
            products_backward[self._backward_grid](
                plan.waves, wave, d_h=self._d_h, d_state=self.d_state, capacity=b.rows, WAVE=token, **self._backward
            )
            if token >= 0:
                gates_backward[self._row_grid](
                    plan.waves, wave, b.c, b.gates, self._d_h, self.d_state, b.rows, WAVE=token,
                    AFTER=b.h.dtype == torch.float32, **self.wide, num_warps=1,
                )  # fmt: skip

    def gradients(self, offsets: Tensor, end: int) -> tuple[Tensor, ...]:
        """Of table, hidden_1, input_2, hidden_2 and bias_2; offsets[end] statements took part."""
        w, b, plan, size = self.weights, self.buffers, self.plan, self.weights.hidden
        wide = 4 * w.padded
        for values in (b.h.view(-1, b.rows, w.padded), b.gates.view(-1, b.rows, wide)):
            clear(offsets, end, values)
        packed_triton_backward.token_partials[(min(4096, len(b.partials)), triton.cdiv(wide, 64))](
            plan.chunk_offsets, plan.chunks, plan.order, b.gates, b.partials, b.rows,
            P4=wide, N=64, M=TOKEN_CHUNK, num_warps=1,
        )  # fmt: skip
        d_table, d_bias, *d_kernels = (
            torch.empty(*shape, 4 * size, device=b.h.device) for shape in ((VOCABULARY_SIZE,), (), *[(size,)] * 3)
        )
        packed_triton_weights.store_table[(VOCABULARY_SIZE, triton.cdiv(wide, 128))](
            plan.first_chunk, b.partials, d_table, P=w.padded, N=128, M=64, **self._sizes
        )
        gates_1, gates_2 = b.gates.view(2, -1, wide)
        d_weights = torch.empty(3, w.padded, wide, device=b.h.device)
        pairs = (b.h[0, :4], gates_1), (b.h[0, 1:], gates_2), (b.h[1, :4], gates_2)
        for to, (states, gates) in zip(d_weights, pairs, strict=True):
            multiply(states.reshape(-1, w.padded).T, gates, to)
        packed_triton_weights.store_gradients[(3 * size + 1,)](
            d_weights, *d_kernels, d_bias, **self._sizes, **self.wide, num_warps=2
        )
        return d_table, *d_kernels, d_bias


def clear(offsets: Tensor, step: int, values: Tensor) -> None:
    """Zero the rows from those of a step on. [plane, row, any]"""
    planes, rows, wide = values.shape
    backward_kernels.clear[(1024 // planes, planes)](offsets, step, values, rows, WIDE=wide, BLOCK=1024)


def multiprocessors(device: torch.device) -> int:
    """Of the GPU."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


class MessageLauncher(ABC):
    """Launches the kernels of one forward and backward pass over a plan, for models that start with Embed(x_n).

    Args:
        how: How messages are passed; the weights come with each pass.
        weights: Of the LSTM, as kernels read them.
        plan: What is read.
        memory: To lay buffers in, of `bytes` bytes.
        exact: Products of float32 in full precision rather than tf32.
    """

    parts = STATE_PARTS

    def __init__(
        self, how: Messages, weights: KernelWeights, plan: MessagePlan, memory: Tensor, *, exact: bool
    ) -> None:
        self.how, self.weights, self.exact = how, weights, exact
        self.plan, self.slots = plan, plan.capacity.slots
        self.hidden, self.padded = weights.hidden, weights.padded
        shapes = self.shapes(weights, plan.capacity)
        used = size_of(shapes)
        self.views = lay(shapes, memory)
        self.waves = StatementWaves(weights, plan, memory[used:], exact=exact)
        self.row_blocks = 16 * multiprocessors(memory.device)

    @classmethod
    @abstractmethod
    def shapes(cls, weights: KernelWeights, capacity: MessageCapacity) -> Shapes:
        """Buffers beside those of the statements."""

    @classmethod
    def bytes(cls, weights: KernelWeights, capacity: MessageCapacity) -> int:
        """Memory that all buffers take."""
        return size_of(cls.shapes(weights, capacity)) + StatementWaves.bytes(weights, capacity.statements)

    @abstractmethod
    def forward(self, *weights: Tensor) -> Tensor:
        """Final states [program, parts * hidden], from the weights of `MessagePassing.message_weights`."""

    @abstractmethod
    def backward(self, d_final: Tensor) -> tuple[Tensor, ...]:
        """The gradients of the weights, from that of the final states."""

    def tile(self, tiles: Tiles) -> tuple[Tile, tuple[int]]:
        """The tile for a kernel, and its grid."""
        lines = self.parts * self.plan.capacity.rows / self.plan.capacity.steps
        tile = tiles.choose(lines, self.weights.dtype, exact=self.exact)
        return tile, (tile.blocks * multiprocessors(self.plan.flat.device),)

    def start(self, state: Tensor, h: Tensor) -> None:
        """Embed(x_n): run the distinct statements, and hand their states to the rows of step 0. [row, part, P]"""
        b, plan = self.waves.buffers, self.plan
        b.h[:, 0], b.c[:, 0] = 0, 0
        self.waves.forward(0)
        kernels.start[(self.row_blocks,)](
            plan.offsets, plan.statement, b.h, b.c, state, h, b.rows, H=self.hidden, PARTS=self.parts, **self.waves.wide
        )

    def start_backward(self, d_rows: Tensor) -> tuple[Tensor, ...]:
        """The gradients of the LSTM, from those of the rows of step 0."""
        b, plan = self.waves.buffers, self.plan
        backward_kernels.start_backward[(min(plan.capacity.statements, self.row_blocks), self.padded // UNITS.value)](
            plan.waves, plan.member_offsets, plan.members, d_rows, b.h, b.c, b.gates, self.waves.d_state, b.rows,
            PARTS=self.parts, P=self.padded, B=32, num_warps=4,
        )  # fmt: skip
        self.waves.backward(0)
        return self.waves.gradients(plan.waves, 1)


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, launcher: MessageLauncher, *weights: Tensor) -> Tensor:
        ctx.launcher = launcher
        return launcher.forward(*weights)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return (None, *ctx.launcher.backward(gradients[0]))


def run_messages(launcher: MessageLauncher, weights: tuple[Tensor, ...]) -> Tensor:
    """Final states [program, parts * hidden] of the launcher's plan, differentiable in the weights.

    The backward pass reads what the forward pass left in the buffers, so it must follow before these are used again.
    """
    return _Run.apply(launcher, *weights)  # type: ignore[no-any-return, no-untyped-call]
