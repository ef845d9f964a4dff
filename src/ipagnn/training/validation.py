"""Accuracy on withheld programs of length exactly C, by which weights are selected."""

from collections.abc import Mapping
from typing import Final

import numpy as np
import torch
from torch import Tensor

from ipagnn.data.splits import recipe
from ipagnn.evaluation.score import Score, score
from ipagnn.languages.arithmetic.grammar import Lengths
from ipagnn.models import ProgramModel, build_model
from ipagnn.training.config import TrainConfig

BATCH: Final = 250
LEAST: Final = 1e-36  # probabilities below this count as this where their logarithm is taken
MAX_STEPS: Final = 100_000
"""Statements after which a program counts as wrong on automata. An untrained model may count to 10^18 in a loop."""


class Validation:
    """The validation set of a run, and a model to hold against it. It never computes in bf16.

    A model that runs over tables or automata does so here, as in evaluation: not with the steps of its budget.

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
        self._table = table
        starts = range(0, count if self.model.runs_on is None else 0, BATCH)
        self._batches = [self.model.collate(table.slice(i, min(i + BATCH, count))).to(device) for i in starts]

    def __call__(self, weights: Mapping[str, Tensor]) -> Score:
        """The score of `weights`, which stay in `model`."""
        self.model.load_state_dict(weights)
        return score(self.model, self._batches) if self._batches else self._score_unbounded()

    def _score_unbounded(self) -> Score:
        """The score over tables or automata. A wrong answer leaves the target no more than its own probability does."""
        from ipagnn.evaluation.tables import UnboundedRunner

        max_steps = MAX_STEPS if self.model.runs_on == "automata" else None
        found = UnboundedRunner(self.model, max_steps).run(self._table, self.model.task_for(None), lambda _: None)
        confidence = np.asarray(found.answers["value"].confidence, np.float64)
        likelihood = np.where(found.correct, confidence, 1 - confidence)
        loss = np.abs(np.log(np.maximum(likelihood, LEAST))).mean()
        return Score(loss=float(loss), correct=int(found.correct.sum()), count=len(found.correct))
