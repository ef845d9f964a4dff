"""Accuracy on withheld programs of length exactly C, by which weights are selected."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ipagnn.data.splits import recipe
from ipagnn.languages.arithmetic.grammar import Lengths
from ipagnn.models import ProgramModel, build_model
from ipagnn.training.config import TrainConfig

BATCH = 250


@dataclass(frozen=True, slots=True)
class Score:
    """How a model does on a set of programs.

    Attributes:
        accuracy: Share of programs that `ProgramModel.correct` counts.
        loss: Mean of `ProgramModel.loss`, in nats.
        count: Number of programs.
    """

    accuracy: float
    loss: float
    count: int

    @property
    def stderr(self) -> float:
        """Standard error of the accuracy."""
        return float((self.accuracy * (1 - self.accuracy) / self.count) ** 0.5)


class Validation:
    """The validation set of a run, and a model to hold against it. It never computes in bf16.

    Args:
        config: The run's.
        device: Where to compute.
    """

    def __init__(self, config: TrainConfig, device: torch.device) -> None:
        self.model: ProgramModel = build_model(config.model).to(device).eval()
        count = config.run.validation_count
        lengths = Lengths.exact(config.data.length)
        table = recipe("validation", config.task, count, None, lengths, config.model.grammar).table(0, count)
        starts = range(0, count, BATCH)
        self._batches = [self.model.collate(table.slice(i, min(i + BATCH, count))).to(device) for i in starts]

    def __call__(self, weights: Mapping[str, Tensor]) -> Score:
        """The score of `weights`, which stay in `model`."""
        self.model.load_state_dict(weights)
        correct, loss, count = 0.0, 0.0, 0
        with torch.inference_mode():
            for batch in self._batches:
                output = self.model(batch, record=self.model.learns_from)
                correct += float(self.model.correct(output, batch).sum())
                loss += float(self.model.loss(output, batch).double().sum())
                count += len(batch)
        return Score(correct / count, loss / count, count)
