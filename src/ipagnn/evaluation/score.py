"""How training, validation and evaluation measure a batch: the model's own loss, and what it gets right."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ipagnn.data.contract import Batch
from ipagnn.models import Output, ProgramModel


@dataclass(frozen=True, kw_only=True)
class Score:
    """How a model does on a set of programs.

    Attributes:
        loss: Mean of `ProgramModel.loss`, in nats; NaN if there are no programs, or it is not known.
        correct: Programs that `ProgramModel.correct` counts.
        count: Number of programs.
    """

    loss: float
    correct: int
    count: int

    @property
    def accuracy(self) -> float:
        """Share of programs that are right; NaN if there are none."""
        return self.correct / self.count if self.count else float("nan")

    @property
    def stderr(self) -> float:
        """Standard error of the accuracy."""
        return float((self.accuracy * (1 - self.accuracy) / self.count) ** 0.5)


class Judged(NamedTuple):
    """What a batch came to.

    Attributes:
        loss: Of each program; None if what it reads was not recorded. [program]
        correct: Whether a program is right. bool [program]
    """

    loss: Tensor | None
    correct: Tensor


def judge(model: ProgramModel, output: Output, batch: Batch) -> Judged:
    """Loss and right answers of an output of the model for the batch."""
    known = output.recorded.keys() >= set(model.learns_from)
    return Judged(model.loss(output, batch) if known else None, model.correct(output, batch))


def score(model: ProgramModel, batches: Iterable[Batch]) -> Score:
    """The score of a model on batches, which are where it is."""
    loss, correct, count = 0.0, 0, 0
    with torch.inference_mode():
        for batch in batches:
            judged = judge(model, model(batch, record=model.learns_from), batch)
            assert judged.loss is not None
            loss += float(judged.loss.double().sum())
            correct += int(judged.correct.sum())
            count += len(batch)
    return Score(loss=loss / count, correct=correct, count=count)
