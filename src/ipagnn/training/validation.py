"""Accuracy on withheld programs of length exactly C, by which weights are selected."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ipagnn.data.splits import recipe
from ipagnn.evaluation.score import Score, score
from ipagnn.languages.arithmetic.grammar import Lengths
from ipagnn.models import ProgramModel, build_model
from ipagnn.training.config import TrainConfig

BATCH = 250


class Validation:
    """The validation set of a run, and a model to hold against it. It never computes in bf16.

    Args:
        config: The run's.
        device: Where to compute.
    """

    def __init__(self, config: TrainConfig, device: torch.device) -> None:
        self.model: ProgramModel = build_model(config.model).to(device).eval()
        self.model.task = config.task
        count = config.run.validation_count
        lengths = Lengths.exact(config.data.length)
        table = recipe("validation", config.task, count, None, lengths, config.model.grammar).table(0, count)
        starts = range(0, count, BATCH)
        self._batches = [self.model.collate(table.slice(i, min(i + BATCH, count))).to(device) for i in starts]

    def __call__(self, weights: Mapping[str, Tensor]) -> Score:
        """The score of `weights`, which stay in `model`."""
        self.model.load_state_dict(weights)
        return score(self.model, self._batches)
