"""What a model said about each program of a set."""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ipagnn.evaluation.pointer import PointerMetrics
from ipagnn.languages.arithmetic.program import Task


@dataclass(frozen=True, eq=False, slots=True)
class Evaluation:
    """What a model said about each program of a set, in the order of the set.

    Attributes:
        model: Name of the model in the registry.
        task: Full programs, or programs with one masked line.
        length: Lines. int32 [program]
        steps: Steps the model was given; where it was not bounded those it took, -1 if unknown. int32 [program]
        target: The true value. int64 [program]
        prediction: The likeliest value, the smallest of several; -1 where the model came to no end. int64 [program]
        correct: What counts as right, by `ProgramModel.correct`. bool [program]
        rank: Values that the model finds likelier than the target; 0 where it is right. int32 [program]
        confidence: Probability of the prediction. float32 [program]
        margin: Difference between the two largest logits. float32 [program]
        trace_length: Statements of the true trace; -1 where it is unknown, as for partial programs. int64 [program]
        loop_depth: Loops within loops on the true trace: 0 if it comes to none. -1 where it is unknown. int64 [program]
        pointer: What the instruction pointer did; None if it was not asked for or the model has none.
        bounded: Whether the model had a number of steps. If not, it ran to the end over tables or automata, and the
            confidence is the probability that all steps of the run go as they did: over automata 1.
    """

    model: str
    task: Task
    length: npt.NDArray[np.int32]
    steps: npt.NDArray[np.int32]
    target: npt.NDArray[np.int64]
    prediction: npt.NDArray[np.int64]
    correct: npt.NDArray[np.bool_]
    rank: npt.NDArray[np.int32]
    confidence: npt.NDArray[np.float32]
    margin: npt.NDArray[np.float32]
    trace_length: npt.NDArray[np.int64]
    loop_depth: npt.NDArray[np.int64]
    pointer: PointerMetrics | None = None
    bounded: bool = True

    def __len__(self) -> int:
        return len(self.target)

    @staticmethod
    def concatenate(parts: "list[Evaluation]") -> "Evaluation":
        """The evaluations of one model on several sets as that of all of them, in order."""
        joined: dict[str, Any] = {
            field.name: np.concatenate([getattr(part, field.name) for part in parts])
            for field in fields(Evaluation)
            if isinstance(getattr(parts[0], field.name), np.ndarray)
        }
        pointers = [part.pointer for part in parts if part.pointer is not None]
        return replace(parts[0], **joined, pointer=PointerMetrics.concatenate(pointers) if pointers else None)
