"""What a model said about each program of a set."""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ipagnn.evaluation.answers import Answers, Array
from ipagnn.evaluation.pointer import PointerMetrics
from ipagnn.evaluation.score import Score


@dataclass(frozen=True, eq=False, slots=True)
class Evaluation:
    """What a model said about each program of a set, in the order of the set.

    Attributes:
        model: Name of the model in the registry.
        task: Name of the task.
        length: Lines. int32 [program]
        steps: Steps the model was given; where it was not bounded those it took, -1 if unknown. int32 [program]
        correct: What counts as right, by `ProgramModel.correct`. bool [program]
        answers: What the model said about each target, by the target's name.
        trace_length: Statements of the true trace; -1 where it is unknown, as for partial programs. int64 [program]
        loop_depth: Loops within loops on the true trace: 0 if it comes to none. -1 where it is unknown. int64 [program]
        loss: `ProgramModel.loss`; None where it is not known, as of models that run over tables. float64 [program]
        pointer: What the instruction pointer did; None if it was not asked for or the model has none.
        bounded: Whether the model had a number of steps. If not, it ran to the end over tables or automata, and the
            confidence is the probability that the run is right, as in `TableRun.confidence`: over automata 1.
        open: Whether dropped pointer mass could change the answer, as `refine` estimates; None for an evaluation
            without a tolerance. bool [program]
        dropped: Dropped pointer mass; None likewise. float64 [program]
    """

    model: str
    task: str
    length: npt.NDArray[np.int32]
    steps: npt.NDArray[np.int32]
    correct: npt.NDArray[np.bool_]
    answers: dict[str, Answers]
    trace_length: npt.NDArray[np.int64]
    loop_depth: npt.NDArray[np.int64]
    loss: npt.NDArray[np.float64] | None = None
    pointer: PointerMetrics | None = None
    bounded: bool = True
    open: npt.NDArray[np.bool_] | None = None
    dropped: npt.NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.correct)

    @property
    def score(self) -> Score:
        """Loss and right answers over all programs."""
        loss = float("nan") if self.loss is None else float(self.loss.mean())
        return Score(loss=loss, correct=int(self.correct.sum()), count=len(self))

    @property
    def target(self) -> Array:
        """The true values: `answers["value"].target`. int64 [program]"""
        return self.answers["value"].target

    @property
    def prediction(self) -> Array:
        """The predicted values: `answers["value"].prediction`. int64 [program]"""
        return self.answers["value"].prediction

    @staticmethod
    def concatenate(parts: "list[Evaluation]") -> "Evaluation":
        """The evaluations of one model on several sets as that of all of them, in order."""
        joined: dict[str, Any] = {
            field.name: np.concatenate([getattr(part, field.name) for part in parts])
            for field in fields(Evaluation)
            if isinstance(getattr(parts[0], field.name), np.ndarray)
        }
        joined["answers"] = {
            name: Answers.concatenate([part.answers[name] for part in parts]) for name in parts[0].answers
        }
        pointers = [part.pointer for part in parts if part.pointer is not None]
        return replace(parts[0], **joined, pointer=PointerMetrics.concatenate(pointers) if pointers else None)
