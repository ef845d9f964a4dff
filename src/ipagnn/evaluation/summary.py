"""From what a model said about each program to the numbers that are printed, drawn and reported.

A summary is plain data as JSON knows it, so that whatever shows it shows the same numbers. Shares are fractions, never
percentages.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ipagnn.evaluation.metrics import measure
from ipagnn.evaluation.pointer import DISCRETE, PointerMetrics
from ipagnn.evaluation.results import Evaluation
from ipagnn.languages.arithmetic.holes import Ceiling

TOP: Final = (1, 2, 3, 5, 10)
CALIBRATION_BINS: Final = 15
CLOSE: Final = 1e-3
"""Predictions whose two largest logits are nearer than this could turn over with another order of summation."""

Summary = dict[str, Any]


def share(values: npt.ArrayLike) -> dict[str, float | int | None]:
    """Mean, standard error of the mean, and number of `values`.

    The standard error is the sample's standard deviation (n - 1) over the root of n: for right and wrong answers
    sqrt(a (1 - a) / (n - 1)). It is 0 for a single value, which says nothing about spread; nothing has no mean.
    """
    numbers = np.asarray(values, np.float64)
    count = len(numbers)
    if not count:
        return {"accuracy": None, "stderr": None, "count": 0}
    error = float(numbers.std(ddof=1)) / count**0.5 if count > 1 else 0.0
    return {"accuracy": float(numbers.mean()), "stderr": error, "count": count}


def summarise(evaluation: Evaluation, ceiling: Ceiling | None = None) -> Summary:
    """The numbers of an evaluation.

    Args:
        evaluation: What the model said.
        ceiling: What the best guess achieves on the same programs, where they have masked lines.

    Returns:
        `overall` and, by length, `by_length`: `accuracy`, `stderr`, `count` each. `loss`: its mean, where it is known.
        `bounded`: see `Evaluation`. `targets`: every metric of every target, see `ipagnn.evaluation.metrics`. Of tasks
        that predict the final value, `top`: how often the target is among the k likeliest values; `calibration`: see
        `calibration`; and `close`: how many predictions hang on rounding. `trace` (complete programs, bounded):
        accuracy where the true trace fits the model's steps and where it does not. `by_loops` (complete programs):
        accuracy by the depth of the loops on the true trace.
        `ceiling`: see `_distance`. `pointer`: see `_pointer`. `dropped` (evaluations with a tolerance): `open`, number
        of answers that dropped pointer mass could change, by the estimate of `ipagnn.evaluation.refine`; `share`, of
        all; `mass`, what was dropped in a program as the mean, and `most`, the largest.
    """
    correct, lengths = evaluation.correct, evaluation.length
    summary: Summary = {
        "model": evaluation.model,
        "task": evaluation.task,
        "bounded": evaluation.bounded,
        "overall": share(correct),
        "by_length": {str(n): share(correct[lengths == n]) for n in np.unique(lengths).tolist()},
        "targets": measure(evaluation.answers),
    }
    if evaluation.loss is not None:
        summary["loss"] = evaluation.score.loss
    value = evaluation.answers.get("value")
    if value is not None and value.rank is not None and value.confidence is not None and value.margin is not None:
        summary["top"] = {str(k): float((value.rank < k).mean()) for k in TOP}
        summary["calibration"] = calibration(value.confidence, correct)
        summary["close"] = int((value.margin < CLOSE).sum())
    known = evaluation.trace_length >= 0
    if known.any():
        if evaluation.bounded:
            fits = known & (evaluation.trace_length <= evaluation.steps)
            summary["trace"] = {"fits": share(correct[fits]), "exceeds": share(correct[known & ~fits])}
        depths = evaluation.loop_depth
        summary["by_loops"] = {str(n): share(correct[depths == n]) for n in np.unique(depths[known]).tolist()}
    if ceiling is not None:
        summary["ceiling"] = _distance(evaluation, ceiling)
    if evaluation.open is not None and evaluation.dropped is not None:
        summary["dropped"] = {
            "open": int(evaluation.open.sum()),
            "share": float(evaluation.open.mean()),
            "mass": float(evaluation.dropped.mean()),
            "most": float(evaluation.dropped.max()),
        }
    if evaluation.pointer is not None:
        summary["pointer"] = _pointer(evaluation, evaluation.pointer)
    return summary


def calibration(confidence: npt.ArrayLike, correct: npt.ArrayLike, bins: int = CALIBRATION_BINS) -> dict[str, Any]:
    """How far probabilities can be believed.

    Predictions are sorted into `bins` of equal width by their confidence, the lower edge not belonging to a bin. The
    expected calibration error `ece` is the mean over predictions of |accuracy - mean confidence| of their bin.
    """
    sure, right = np.asarray(confidence, np.float64), np.asarray(correct, np.float64)
    place = np.clip(np.ceil(sure * bins).astype(np.int64) - 1, 0, bins - 1)
    filled = []
    error = 0.0
    for i in np.unique(place).tolist():
        here = place == i
        mean, accuracy, count = float(sure[here].mean()), float(right[here].mean()), int(here.sum())
        error += abs(accuracy - mean) * count / len(sure)
        edges = {"low": i / bins, "high": (i + 1) / bins}
        filled.append(edges | {"confidence": mean, "accuracy": accuracy, "count": count})
    return {"ece": error, "confidence": float(sure.mean()), "bins": filled}


def _distance(evaluation: Evaluation, ceiling: Ceiling) -> dict[str, Any]:
    """The best expected accuracy, `best`, and how far below it the model stays, `distance`, overall and by length."""
    if len(ceiling.probability) != len(evaluation):
        raise ValueError(
            f"The ceiling is that of {len(ceiling.probability)} programs and the evaluation has {len(evaluation)}; "
            "compute both for the same programs."
        )

    def compare(chosen: npt.NDArray[np.bool_]) -> dict[str, float]:
        best = float(ceiling.probability[chosen].mean())
        return {"best": best, "distance": best - float(evaluation.correct[chosen].mean())}

    everything = np.ones(len(evaluation), np.bool_)
    lengths = np.unique(evaluation.length).tolist()
    return {
        "overall": compare(everything),
        "by_length": {str(n): compare(evaluation.length == n) for n in lengths},
    }


def _pointer(evaluation: Evaluation, metrics: PointerMetrics) -> dict[str, Any]:
    """What the pointer did, over all programs.

    Returns:
        `discrete`: of all pointer mass that met a branch decision, over all steps of all programs, the part that met
        one with more than 0.99 on one side; so a decision weighs what the pointer gives it. `decisions`: expected
        decisions a program. `exit_mass`: mean mass at the exit in the end. `reached`: share of programs with half the
        mass there; of those, `exit_step` is the median step when it came to be half. With known traces:
        `trace_length`, the median for the same programs; `shorter`, how often the pointer took fewer steps;
        `path_exact` and `path_prefix`, how often the path of likelier branches is the true trace, and the mean part
        of the trace, from its start, that it follows.
    """
    decided = float(metrics.decided.sum())
    reached = metrics.exit_step >= 0
    numbers: dict[str, Any] = {
        "threshold": DISCRETE,
        "discrete": float(metrics.discrete.sum()) / decided if decided else None,
        "decisions": float(metrics.decided.mean()),
        "exit_mass": float(metrics.exit_mass.mean()),
        "reached": float(reached.mean()),
        "exit_step": _median(metrics.exit_step[reached]),
    }
    known = (evaluation.trace_length >= 0) & (metrics.path_prefix >= 0)
    if known.any():
        both = reached & known
        trace = evaluation.trace_length
        numbers |= {
            "trace_length": _median(trace[both]),
            "shorter": float((metrics.exit_step[both] < trace[both]).mean()) if both.any() else None,
            "path_exact": float(metrics.path_exact[known].mean()),
            "path_prefix": float((metrics.path_prefix[known] / np.maximum(trace[known], 1)).mean()),
        }
    return numbers


def _median(values: npt.NDArray[np.int64]) -> float | None:
    return float(np.median(values)) if len(values) else None
