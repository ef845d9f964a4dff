"""Muon: steps along orthogonalised momentum, for weights made of square blocks.

Momentum of a recurrent weight is dominated by a few directions; orthogonalised, all of them move alike (Jordan et al.,
2024, https://kellerjordan.github.io/posts/muon). Rates are like those of Adam, whose steps have a root mean square of
about 0.2 of the rate (Liu et al., 2025, arXiv 2502.16982); twice that was best of four here.
"""

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor

MOMENTUM: Final = 0.95
STEP: Final = 0.4
"""Root mean square of a step at rate 1."""
_COEFFICIENTS: Final = (3.4445, -4.7750, 2.0315)
_ROUNDS: Final = 5
_TINY: Final = 1e-7


def has_blocks(name: str, shape: torch.Size, hidden: int) -> bool:
    """Whether a parameter is made of [hidden, hidden] blocks, one a gate or type of edge. Output layers are not."""
    square = len(shape) > 1 and shape[-2] == hidden and shape[-1] % hidden == 0
    return square and not name.startswith("output.")


class Muon:
    """The optimizer of parameters that lie one after the other in a flat tensor. It never asks the device.

    Args:
        weights: The parameters. [size]
        gradient: Their gradients. [size]
        shapes: Of the parameters, in their order; `has_blocks` holds for all of them.
        hidden: Rows and columns of a block.
        dtype: Of the products.

    Attributes:
        momentum: Mean of the gradients, the last ones weighing most. [size]
    """

    def __init__(
        self, weights: Tensor, gradient: Tensor, shapes: Mapping[str, torch.Size], hidden: int, dtype: torch.dtype
    ) -> None:
        self._gradient, self._hidden, self._dtype = gradient, hidden, dtype
        self._sizes = [shape.numel() for shape in shapes.values()]
        self._columns = [shape[-1] // hidden for shape in shapes.values()]
        self._weights = self._blocks(weights)
        self.momentum = torch.zeros_like(weights)

    def step(self, rate: Tensor, scale: Tensor | None, failed: Tensor) -> None:
        """Apply the gradients.

        Args:
            rate: []
            scale: What gradients are divided by. []
            failed: 1 where nothing is to change, else 0. []
        """
        gradient = self._gradient if scale is None else self._gradient / scale
        gradient = torch.where(failed > 0, 0.0, gradient)
        self.momentum.lerp_(gradient, (1 - MOMENTUM) * (1 - failed))
        ahead = gradient.lerp(self.momentum, MOMENTUM)
        ahead = torch.cat([blocks.flatten(0, 1) for blocks in self._blocks(ahead)])
        steps = orthogonalise(ahead.to(self._dtype)).to(ahead.dtype)
        steps *= rate * (1 - failed) * (STEP * self._hidden**0.5)
        counts = [len(weights) * weights.shape[1] for weights in self._weights]
        for weights, step in zip(self._weights, steps.split(counts), strict=True):
            weights.sub_(step.view_as(weights))

    def _blocks(self, flat: Tensor) -> list[Tensor]:
        """Views of the blocks of each parameter. [type, gate, hidden, hidden]"""
        parts = zip(flat.split(self._sizes), self._columns, strict=True)
        return [part.view(-1, self._hidden, k, self._hidden).transpose(1, 2) for part, k in parts]


def orthogonalise(matrices: Tensor) -> Tensor:
    """Matrices with the same singular vectors and singular values near 1, by five Newton-Schulz rounds.

    Near 1 is 0.65 to 1.2; what is below a hundredth of the matrix's norm stays smaller.

    Shapes:
        matrices [block, n, n] -> [block, n, n]
    """
    a, b, c = _COEFFICIENTS
    x: Tensor = matrices / (torch.linalg.matrix_norm(matrices, keepdim=True) + _TINY)
    for _ in range(_ROUNDS):
        square = x @ x.mT
        x = a * x + torch.baddbmm(square, square, square, beta=b, alpha=c) @ x
    return x
