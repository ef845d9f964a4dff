"""From gradients to weights: the norm, clipping, the optimizer, the average; without ever asking the device.

All weights lie in one flat tensor, of which the model's parameters are views, and so do their gradients: the norm, the
sum over processes, the update and the average are then one operation each.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from math import inf
from typing import Any

import torch
from torch import Tensor, distributed, nn

from ipagnn.training.config import TrainConfig
from ipagnn.training.optim.algorithms import ALGORITHMS
from ipagnn.training.optim.muon import Muon, has_blocks

_AVERAGING_DELAY = 10
"""The average follows the weights closely at first: its decay is (1 + t) / (10 + t) where that is less."""


class Update:
    """The optimizer of a model's weights, and their average if wanted.

    A gradient whose norm is not finite or beyond the limit changes nothing: neither weights nor moments nor average.

    Args:
        model: Its parameters become views of one flat tensor.
        config: Optimizer, clipping, limit of the norm, averaging.

    Attributes:
        limit: Norms above this are not applied.
        norm: Global norm of the last gradient, before clipping. []
        failed: 1 if the last gradient was not applied, else 0. []
    """

    def __init__(self, model: nn.Module, config: TrainConfig) -> None:
        hidden, algorithm = config.model.hidden, ALGORITHMS[config.optimizer.algorithm]
        muon = algorithm.orthogonalises
        kernels = {name: x.shape for name, x in model.named_parameters() if muon and has_blocks(name, x.shape, hidden)}
        parameters = dict(sorted(model.named_parameters(), key=lambda named: named[0] not in kernels))  # kernels first
        self._places: dict[str, tuple[slice, torch.Size]] = {}
        end = 0
        for name, parameter in parameters.items():
            self._places[name] = (slice(end, end + parameter.numel()), parameter.shape)
            end += parameter.numel()
        first = next(iter(parameters.values()))
        self._flat = nn.Parameter(first.new_empty(end))
        self._flat.grad = first.new_zeros(end)
        for name, parameter in parameters.items():
            place, shape = self._places[name]
            self._flat.data[place] = parameter.data.flatten()
            parameter.data = self._flat.data[place].view(shape)
            parameter.grad = self._flat.grad[place].view(shape)
        self._clip, self.limit = config.optimizer.max_grad_norm, config.optimizer.norm_limit
        # The fused optimizers divide by `grad_scale` and do nothing where `found_inf` is 1; they read both and the rate
        # on the device, as float32.
        self._rate = torch.tensor(config.optimizer.learning_rate, device=first.device)
        self._optimizer: Any  # `grad_scale` and `found_inf` are no part of its declared type
        self._muon: Muon | None = None
        self._fused: Any = None
        self._plain = self._flat  # what torch's optimizer changes
        if muon:
            stop = sum(shape.numel() for shape in kernels.values())
            dtype = torch.bfloat16 if config.run.precision == "bf16" else first.dtype
            self._muon = Muon(self._flat.data[:stop], self._flat.grad[:stop], kernels, hidden, dtype)
            self._plain = nn.Parameter(self._flat.data[stop:])
            self._plain.grad = self._flat.grad[stop:]
        self._optimizer = algorithm.make(self._plain, self._rate, config.optimizer)
        if algorithm.has_kernel and first.device.type == "cuda" and find_spec("triton"):
            from ipagnn.training.optim.triton import FusedAdam  # Triton is there only where there is a GPU

            self._fused = FusedAdam(self._optimizer.defaults, _AVERAGING_DELAY, first.device)
            self._begin()
        self._decay = config.optimizer.averaging
        self._average = self._flat.detach().clone() if config.optimizer.averaging else None
        self._applied = first.new_zeros((), dtype=torch.float64)
        self.norm = self.failed = torch.zeros((), device=first.device)

    def zero_gradients(self) -> None:
        """Forget the last gradients."""
        assert self._flat.grad is not None
        self._flat.grad.zero_()

    def __call__(self) -> None:
        """Apply the gradients, which are those of the mean loss of this process."""
        gradient = self._flat.grad
        assert gradient is not None
        if distributed.is_initialized():
            distributed.all_reduce(gradient)
            gradient /= distributed.get_world_size()
        if self._fused is not None:
            self._fused(
                self._flat.detach(), gradient, self._optimizer.state[self._plain], self._applied, self._rate,
                limit=self.limit, clip=self._clip or inf, average=self._average, decay=self._decay,
            )  # fmt: skip
            self.norm, self.failed = self._fused.norm, self._fused.failed
            return
        self.norm = gradient.norm()
        self.failed = (~(self.norm <= self.limit)).float()  # also where it is not a number
        self._optimizer.grad_scale = (self.norm / self._clip).clamp(min=1.0).float() if self._clip else None
        self._optimizer.found_inf = self.failed
        self._optimizer.step()
        if self._muon is not None:
            self._muon.step(self._rate, self._optimizer.grad_scale, self.failed)
        self._applied += 1 - self.failed
        if self._average is not None:
            decay = ((1 + self._applied) / (_AVERAGING_DELAY + self._applied)).clamp(max=self._decay)
            self._average.lerp_(self._flat.detach(), ((1 - decay) * (1 - self.failed)).to(gradient.dtype))

    def _begin(self) -> None:
        """The state of torch's Adam before its first step, where there is none yet."""
        state = self._optimizer.state[self._plain]
        state.setdefault("step", torch.zeros((), device=self._plain.device))
        for name in ("exp_avg", "exp_avg_sq"):
            state.setdefault(name, torch.zeros_like(self._plain))

    def set_rate(self, rate: float) -> None:
        """The learning rate of what follows."""
        self._rate.fill_(rate)

    def weights(self, *, averaged: bool) -> dict[str, Tensor]:
        """Copies of the weights, or of their average, by the names of the parameters."""
        flat = self._flat.detach()
        if averaged and self._average is not None:
            flat = self._average
        return {name: flat[place].view(shape).clone() for name, (place, shape) in self._places.items()}

    def state_dict(self) -> dict[str, Tensor]:
        """Everything but the weights: moments, counts and the average, all flat."""
        state = {"applied": self._applied}
        for name, value in self._optimizer.state[self._plain].items():
            if isinstance(value, Tensor):
                state[f"optimizer.{name}"] = value
        if self._muon is not None:
            state["momentum"] = self._muon.momentum
        if self._average is not None:
            state["average"] = self._average
        return {name: value.detach().clone() for name, value in state.items()}

    def load(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Go on from the weights and the state of another one."""
        for name, (place, _) in self._places.items():
            self._flat.data[place] = weights[name].flatten().to(self._flat)
        self._applied.copy_(state["applied"])
        prefix = "optimizer."
        self._optimizer.state[self._plain] = {
            name.removeprefix(prefix): value.to(self._flat.device).clone()
            for name, value in state.items()
            if name.startswith(prefix)
        }
        if self._fused is not None:
            self._begin()
        if self._muon is not None:
            self._muon.momentum.copy_(state["momentum"])
        if self._average is not None:
            self._average.copy_(state["average"])
