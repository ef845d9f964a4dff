"""The optimizers of training. One more is one entry of `ALGORITHMS`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from ipagnn.training.config import OptimizerConfig


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An optimizer.

    Attributes:
        title: Its name in reports.
        moments: How many numbers it keeps for each weight.
        make: The optimizer of torch for a parameter, from the learning rate, a tensor on its device, and the settings.
            It must be a fused one, which reads `grad_scale` and `found_inf`.
        has_kernel: Whether `optim.triton` has a kernel for it.
        orthogonalises: Whether square blocks of kernels are updated by Muon instead.
    """

    title: str
    moments: int
    make: "Callable[[nn.Parameter, Tensor, OptimizerConfig], torch.optim.Optimizer]"
    has_kernel: bool = False
    orthogonalises: bool = False


def _adam(parameter: nn.Parameter, rate: Tensor, settings: "OptimizerConfig") -> torch.optim.Optimizer:
    on_gpu = parameter.device.type == "cuda"  # where the step may be captured in a CUDA graph
    return torch.optim.Adam([parameter], rate, (settings.beta_1, settings.beta_2), fused=True, capturable=on_gpu)


def _sgd(parameter: nn.Parameter, rate: Tensor, settings: "OptimizerConfig") -> torch.optim.Optimizer:
    return torch.optim.SGD([parameter], lr=rate, fused=True)


ALGORITHMS: Final = {
    "adam": Algorithm("Adam", 2, _adam, has_kernel=True),
    "sgd": Algorithm("SGD", 0, _sgd),
    "muon": Algorithm("Muon", 2, _adam, orthogonalises=True),
}
"""All optimizers by the name that settings give them."""
