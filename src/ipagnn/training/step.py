"""One step of training: from a batch of programs to changed weights."""

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from importlib.util import find_spec
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, distributed

from ipagnn.data.contract import Batch
from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.models import Output, ProgramModel, build_model, load_model
from ipagnn.training.config import TrainConfig
from ipagnn.training.optim.update import Update

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """What happened since the last reading, over all processes.

    Attributes:
        steps: Steps taken.
        loss: Mean of `ProgramModel.loss` over the programs, in nats.
        accuracy: Share of programs that `ProgramModel.correct` counts, each seen before it was learnt from.
        norm: Mean norm of the gradient, before clipping.
        largest_norm: Its largest.
        skipped: Steps whose gradient was not applied; they count for nothing above.
        first_skipped: Which of the steps was the first of these, from 0; -1 if there is none.
        programs: Programs in all steps that were applied.
        correct: How many of them `ProgramModel.correct` counts.
    """

    steps: int
    loss: float
    accuracy: float
    norm: float
    largest_norm: float
    skipped: int
    first_skipped: int
    programs: int
    correct: int


class TrainingStep(Protocol[P]):
    """How a step is computed. Between two calls of `metrics` nothing waits for the device.

    It starts with the weights that the model has when the step is made.
    """

    def prepare(self, table: ProgramTable) -> P:
        """What the step reads of a batch of programs. Runs in background threads, several at a time."""

    def __call__(self, prepared: P) -> None:
        """Forward, loss, backward, clipping and update; a gradient that is not finite changes nothing."""

    def metrics(self) -> StepMetrics:
        """What happened since the last reading; waits for the device."""

    def set_rate(self, rate: float) -> None:
        """The learning rate of the steps that follow."""

    def weights(self, *, averaged: bool = False) -> dict[str, Tensor]:
        """Copies of the current weights by parameter name; of their average if asked for and kept."""

    def state_dict(self) -> dict[str, Tensor]:
        """Copies of all there is beside the weights: moments, counts, the average."""

    def load(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Go on from what `weights` and `state_dict` gave."""


class Tally:
    """Sums over steps, kept on the device. In few operations: a captured step replays each of them, small as it is.

    Attributes:
        sums: Programs, loss, correct, applied steps and norm, of steps that were applied; then steps skipped, all
            steps, the first that was skipped, the largest norm: the places named by `PROGRAMS` to `LARGEST_NORM`.
            [9]
    """

    PROGRAMS, LOSS, CORRECT, APPLIED, NORM, SKIPPED, STEPS, FIRST_SKIPPED, LARGEST_NORM = range(9)

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(9, dtype=torch.float64, device=device)
        self.clear()

    def add(self, loss: Tensor, correct: Tensor, norm: Tensor, failed: Tensor) -> None:
        """Count a step.

        Args:
            loss: Of each program. [program]
            correct: 1 for each that was got right. [program]
            norm: Of the gradient. []
            failed: 1 if it was not applied, else 0. []
        """
        bad = failed > 0
        one = torch.ones_like(norm)
        step = torch.stack([one * len(loss), loss.sum(), correct.sum().to(loss), one, norm])
        step = torch.where(bad, 0.0, step)  # where, as 0 * nan is nan
        sums = self.sums
        sums[: self.SKIPPED] += step
        sums[self.SKIPPED] += failed
        first = torch.where(bad, sums[self.STEPS], torch.inf)
        sums[self.FIRST_SKIPPED] = torch.minimum(sums[self.FIRST_SKIPPED], first)
        sums[self.LARGEST_NORM] = torch.maximum(sums[self.LARGEST_NORM], step[self.NORM])
        sums[self.STEPS] += 1

    def read(self) -> StepMetrics:
        """The means over all processes; counting starts again."""
        sums, (steps, first, largest) = self.sums[: self.STEPS].clone(), self.sums[self.STEPS :].tolist()
        if distributed.is_initialized():
            distributed.all_reduce(sums)
            sums[self.APPLIED :] /= distributed.get_world_size()  # what all processes counted alike
        programs, loss, correct, applied, norm, skipped = sums.tolist()
        nothing = float("nan")
        metrics = StepMetrics(
            steps=round(steps),
            loss=loss / programs if programs else nothing,
            accuracy=correct / programs if programs else nothing,
            norm=norm / applied if applied else nothing,
            largest_norm=largest,
            skipped=round(skipped),
            first_skipped=round(first) if math.isfinite(first) else -1,
            programs=round(programs),
            correct=round(correct),
        )
        self.clear()
        return metrics

    def clear(self) -> None:
        """Start counting again."""
        self.sums.zero_()
        self.sums[self.FIRST_SKIPPED] = torch.inf


class PlainStep:
    """The step in plain torch, for any model on any device.

    Args:
        model: What is trained.
        config: How.
        device: Where.
    """

    def __init__(self, model: ProgramModel, config: TrainConfig, device: torch.device) -> None:
        self._model = model.to(device).train()
        self._device = device
        self._half = config.run.precision == "bf16"
        self._update = Update(self._model, config)
        self._tally = Tally(device)

    def prepare(self, table: ProgramTable) -> Batch:
        """The batch, in page-locked memory if it is to go to a GPU."""
        batch = self._model.prepare(self._model.collate_for_training(table), record=self._model.learns_from)
        return batch.pin_memory() if self._device.type == "cuda" else batch

    def __call__(self, prepared: Batch) -> None:
        """See `TrainingStep`."""
        batch = prepared.to(self._device, non_blocking=True)
        self._update.zero_gradients()
        with autocast(self._device, self._half):
            output = self._model(batch, record=self._model.learns_from)
        self._learn(output, batch)

    def _learn(self, output: Output, batch: Batch) -> None:
        """From what the model said and should have said to changed weights and metrics."""
        loss = self._model.loss(output, batch)
        loss.mean().backward()
        self._update()
        correct = self._model.correct(output, batch)
        self._tally.add(loss.detach(), correct, self._update.norm, self._update.failed)

    def metrics(self) -> StepMetrics:
        """See `TrainingStep`."""
        return self._tally.read()

    def set_rate(self, rate: float) -> None:
        """See `TrainingStep`."""
        self._update.set_rate(rate)

    def weights(self, *, averaged: bool = False) -> dict[str, Tensor]:
        """See `TrainingStep`."""
        return self._update.weights(averaged=averaged)

    def state_dict(self) -> dict[str, Tensor]:
        """See `TrainingStep`."""
        return self._update.state_dict()

    def load(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """See `TrainingStep`."""
        self._update.load(weights, state)


def autocast(device: torch.device, half: bool) -> AbstractContextManager[None]:
    """Products in bf16 within the block, if `half`."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=half)


def first_model(config: TrainConfig) -> ProgramModel:
    """What a run begins with.

    Raises:
        FileNotFoundError: There are no weights of the name in `config.init_from`.
        ModelFileError: They are not those of such a model.
    """
    model = config.trained_model
    if not config.init_from:
        return build_model(model, config.seed)
    options = {each.name: getattr(model, each.name) for each in fields(model)}
    return load_model(config.init_from, name=model.name, **options)


def make_step(model: ProgramModel, config: TrainConfig, device: torch.device) -> TrainingStep[Any]:
    """The best implementation for a model on a device."""
    loss = type(model).loss is ProgramModel.loss and type(model).correct is ProgramModel.correct  # what kernels compute
    if device.type == "cuda" and loss and find_spec("triton") and not distributed.is_initialized():
        from ipagnn.training.graph_step import GraphStep, can_capture  # Triton is there only where there is a GPU
        from ipagnn.training.message_step import MessageStep, has_kernels

        if can_capture(model):
            return GraphStep(model, config, device)
        if has_kernels(model):
            return MessageStep(model, config, device)
    return PlainStep(model, config, device)
