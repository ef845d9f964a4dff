"""One step of training: from a batch of programs to changed weights."""

import logging
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, distributed

from ipagnn.data.contract import Batch
from ipagnn.evaluation.score import Score, judge
from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.models import Output, ProgramModel, build_model, load_model
from ipagnn.training.config import TrainConfig
from ipagnn.training.optim.update import Update

P = TypeVar("P")

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class StepMetrics(Score):
    """What happened since the last reading, over all processes.

    The score is that of the programs of all steps that were applied, each seen before it was learnt from.

    Attributes:
        steps: Steps taken.
        norm: Mean norm of the gradient, before clipping.
        largest_norm: Its largest.
        skipped: Steps whose gradient was not applied; they count for nothing above.
        first_skipped: Which of the steps was the first of these, from 0; -1 if there is none.
    """

    steps: int
    norm: float
    largest_norm: float
    skipped: int
    first_skipped: int


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


class Sums(NamedTuple):
    """What is counted over steps: numbers, or tensors of one number, in the order in which kernels have them.

    Attributes:
        programs, loss, correct, applied, norm: Programs, sum of their losses, right ones, steps, and sum of the
            gradients' norms, of steps that were applied.
        skipped: Steps that were not.
        steps: All steps.
        first_skipped: The first step that was not applied, from 0; infinite if there is none.
        largest_norm: Of steps that were applied.
    """

    programs: Any
    loss: Any
    correct: Any
    applied: Any
    norm: Any
    skipped: Any
    steps: Any
    first_skipped: Any
    largest_norm: Any


class Tally:
    """Sums over steps, kept on the device.

    Attributes:
        flat: All sums in one tensor, as kernels write it. [sum]
        sums: Views of its numbers.
    """

    def __init__(self, device: torch.device) -> None:
        self.flat = torch.zeros(len(Sums._fields), dtype=torch.float64, device=device)
        self.sums = Sums(*self.flat.unbind())
        self.clear()

    def add(self, loss: Tensor, correct: Tensor, norm: Tensor, failed: Tensor) -> None:
        """Count a step.

        Args:
            loss: Of each program. [program]
            correct: 1 for each that was got right. [program]
            norm: Of the gradient. []
            failed: 1 if it was not applied, else 0. []
        """
        bad, sums = failed > 0, self.sums

        def applied(value: Tensor) -> Tensor:
            return torch.where(bad, 0.0, value)  # where, as 0 * nan is nan

        sums.programs.add_(applied(torch.full_like(norm, len(loss))))
        sums.loss.add_(applied(loss.sum()))
        sums.correct.add_(applied(correct.sum()))
        sums.applied.add_(applied(torch.ones_like(norm)))
        sums.norm.add_(applied(norm))
        sums.skipped.add_(failed)
        sums.first_skipped.copy_(torch.minimum(sums.first_skipped, torch.where(bad, sums.steps, torch.inf)))
        sums.largest_norm.copy_(torch.maximum(sums.largest_norm, applied(norm)))
        sums.steps.add_(1)

    def read(self) -> StepMetrics:
        """The means over all processes; counting starts again."""
        here, everywhere = Sums(*self.flat.tolist()), self.flat.clone()
        share = 1
        if distributed.is_initialized():
            distributed.all_reduce(everywhere)
            share = distributed.get_world_size()  # of what all processes counted alike
        sums, nothing = Sums(*everywhere.tolist()), float("nan")
        metrics = StepMetrics(
            loss=sums.loss / sums.programs if sums.programs else nothing,
            correct=round(sums.correct),
            count=round(sums.programs),
            steps=round(here.steps),
            norm=sums.norm / sums.applied if sums.applied else nothing,
            largest_norm=here.largest_norm,
            skipped=round(sums.skipped / share),
            first_skipped=round(here.first_skipped) if math.isfinite(here.first_skipped) else -1,
        )
        self.clear()
        return metrics

    def clear(self) -> None:
        """Start counting again."""
        self.flat.zero_()
        self.sums.first_skipped.fill_(torch.inf)


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
        loss, correct = judge(self._model, output, batch)
        assert loss is not None
        loss.mean().backward()
        self._update()
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


@dataclass(frozen=True, slots=True)
class StepBackend:
    """An implementation of the training step.

    Attributes:
        name: What the log calls it.
        refuses: Why it cannot train a model on a device, as a clause; None if it can.
        make: Makes the step.
    """

    name: str
    refuses: Callable[[ProgramModel, torch.device], str | None]
    make: Callable[[ProgramModel, TrainConfig, torch.device], TrainingStep[Any]]


def _refuses_capture(model: ProgramModel, device: torch.device) -> str | None:
    """What no captured step does."""
    if device.type != "cuda":
        return f"training runs on {device.type}"
    if type(model).loss is not ProgramModel.loss or type(model).correct is not ProgramModel.correct:
        return f"the model {model.name!r} has a loss of its own"
    if [each.name for each in model.targets] != ["value"]:
        return f"the task {model.task_for(None).name!r} has other targets than the final value"
    if distributed.is_initialized():
        return "several processes train"
    return None if find_spec("triton") else "Triton is not installed"


def _captured(module: str, step: str) -> StepBackend:
    """A step of a module that is there only where Triton is."""

    def refuses(model: ProgramModel, device: torch.device) -> str | None:
        return _refuses_capture(model, device) or import_module(module).refuses(model)

    def make(model: ProgramModel, config: TrainConfig, device: torch.device) -> TrainingStep[Any]:
        made: TrainingStep[Any] = getattr(import_module(module), step)(model, config, device)
        return made

    return StepBackend(f"captured ({step})", refuses, make)


STEPS: Final = (
    _captured("ipagnn.training.graph_step", "GraphStep"),
    _captured("ipagnn.training.message_step", "MessageStep"),
    StepBackend("plain", lambda model, device: None, PlainStep),
)
"""Implementations of the step, the fastest first. The last one refuses nothing."""


def make_step(model: ProgramModel, config: TrainConfig, device: torch.device) -> TrainingStep[Any]:
    """The fastest step that does not refuse; the choice is logged."""
    refusals: list[str] = []
    for backend in STEPS:
        if (why := backend.refuses(model, device)) is None:
            log.info("Training step: %s%s.", backend.name, f" ({'; '.join(refusals)})" if refusals else "")
            return backend.make(model, config, device)
        refusals.append(f"not {backend.name}, as {why}")
    raise AssertionError("The plain step never refuses.")
