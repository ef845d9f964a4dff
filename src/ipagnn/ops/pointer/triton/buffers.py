"""What the kernels of the packed execution read and write on a GPU: weights and buffers, as they lie in its memory."""

import torch
from torch import Tensor

from ipagnn.languages.arithmetic.vocabulary import VOCABULARY_SIZE
from ipagnn.ops.pointer.triton.plan import TOKEN_CHUNK


def pad(hidden: int) -> int:
    """H as kernels have it: a multiple of 32, and larger, for the column that carries the bias."""
    return 32 * (hidden // 32 + 1)


class KernelWeights:
    """The weights as the kernels read them: H padded to P, gates i f g o side by side.

    weights [hidden_1, input_2, hidden_2][P][P][4], table [token][P][4]; branch_weight [c1, h1, c2, h2][P]
    and branch_bias [1] are differences, true minus false.
    """

    def __init__(self, hidden: int, dtype: torch.dtype, device: torch.device) -> None:
        self.hidden, self.dtype = hidden, dtype
        self.padded = padded = pad(hidden)
        self.table = torch.zeros(VOCABULARY_SIZE, padded, 4, dtype=dtype, device=device)
        self.weights = torch.zeros(3, padded, padded, 4, dtype=dtype, device=device)
        self.branch_weight = torch.zeros(4, padded, device=device)
        self.branch_bias = torch.zeros(1, device=device)

    def load(
        self,
        table: Tensor,
        hidden_1: Tensor,
        input_2: Tensor,
        hidden_2: Tensor,
        bias_2: Tensor,
        branch_weight: Tensor,
        branch_bias: Tensor,
    ) -> None:
        """Copy weights in; the bias of layer 2 becomes the last row of its input kernel."""
        size = self.hidden
        self.table[:, :size] = table.view(-1, 4, size).mT
        for place, kernel in zip(self.weights, (hidden_1, input_2, hidden_2), strict=True):
            place[:size, :size] = kernel.view(size, 4, size).mT
        self.weights[1, -1, :size] = bias_2.view(4, size).T
        self.branch_weight[:, :size] = (branch_weight[:, 0] - branch_weight[:, 1]).view(4, size)
        self.branch_bias.copy_((branch_bias[0] - branch_bias[1])[None])


class Buffers:
    """Everything the kernels write for the rows of a batch.

    h, c [layer, 5, row, P] (states before token 0 and after each token); gates [layer, 4, row, P, 4] (later their
    gradients); d_state [4, row, P] (gradients of c1, h1, c2, h2).

    Args:
        weights: Whose sizes and types they have.
        rows, programs: What there is to be room for.
        memory: A tensor of bytes to lay them in, or None to allocate them. Only `final` and `d_final` are not in it.
    """

    def __init__(self, weights: KernelWeights, rows: int, programs: int, memory: Tensor | None = None) -> None:
        self.rows, padded = rows, weights.padded
        device = weights.table.device
        if memory is None:
            memory = torch.empty(Buffers.bytes(weights, rows), dtype=torch.uint8, device=device)
        used = 0
        for name, (shape, dtype) in Buffers._shapes(weights, rows).items():
            size = dtype.itemsize * torch.Size(shape).numel()
            setattr(self, name, memory[used : used + size].view(dtype).view(shape))
            used += -(-size // 256) * 256
        self.final, self.d_final = (torch.zeros(programs, 4, padded, device=device) for _ in range(2))
        self.final_mass, self.along_final = (torch.zeros(programs, device=device) for _ in range(2))

    h: Tensor
    c: Tensor
    gates: Tensor
    d_state: Tensor
    partials: Tensor
    scores: Tensor
    along: Tensor
    pointer: Tensor
    decision: Tensor
    d_pointer: Tensor
    d_score: Tensor

    @staticmethod
    def _shapes(weights: KernelWeights, rows: int) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        padded, dtype, full = weights.padded, weights.dtype, torch.float32
        return {
            "h": ((2, 5, rows, padded), dtype),
            "c": ((2, 5, rows, padded), full),
            "gates": ((2, 4, rows, padded, 4), dtype),
            "d_state": ((4, rows, padded), full),
            "partials": ((4 * rows // TOKEN_CHUNK + VOCABULARY_SIZE, 4 * padded), full),
            "scores": ((2 * (padded // 32), 2 * rows), full),
            "along": ((2 * (padded // 32), rows), full),
            **dict.fromkeys(("pointer", "decision", "d_pointer", "d_score"), ((rows,), full)),
        }

    @staticmethod
    def bytes(weights: KernelWeights, rows: int) -> int:
        """Memory that buffers for so many rows take."""
        shapes = Buffers._shapes(weights, rows).values()
        return sum(-(-dtype.itemsize * torch.Size(shape).numel() // 256) * 256 for shape, dtype in shapes)
