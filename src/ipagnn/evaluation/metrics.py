"""Metrics of targets, by their kind. What stands in `METRICS` is measured, printed, kept and reported."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipagnn.data.tasks import TargetKind
from ipagnn.evaluation.answers import Answers


@dataclass(frozen=True, slots=True)
class Metric:
    """A number about the answers to a target.

    Attributes:
        name: Its name in summaries and, with spaces, in tables.
        kinds: The kinds of targets that have it.
        of: The number, from the answers.
        is_share: Whether it is a share, which is shown in per cent.
    """

    name: str
    kinds: frozenset[TargetKind]
    of: Callable[[Answers], float]
    is_share: bool = True


def _f1(answers: Answers) -> float:
    """Harmonic mean of precision and recall of what is true; 1 if nothing is true and nothing is said to be."""
    both = 2 * int((answers.target & answers.prediction).sum())
    either = int(answers.target.sum()) + int(answers.prediction.sum())
    return both / either if either else 1.0


METRICS = [
    Metric("accuracy", frozenset({"class", "mask"}), lambda a: float((a.target == a.prediction).mean())),
    Metric("f1", frozenset({"mask"}), _f1),
    Metric("exact", frozenset({"count"}), lambda a: float((a.target == a.prediction).mean())),
    Metric(
        "mean_absolute_error",
        frozenset({"count"}),
        lambda a: float(np.abs(a.target.astype(np.float64) - a.prediction).mean()),
        is_share=False,
    ),
]
"""All metrics. One more appears in `ipagnn evaluate`, in its JSON and in reports."""


def measure(answers: Mapping[str, Answers]) -> dict[str, dict[str, float]]:
    """All metrics of all targets, by target and metric."""
    return {
        name: {metric.name: metric.of(each) for metric in METRICS if each.kind in metric.kinds}
        for name, each in answers.items()
    }


def columns(summaries: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, bool]]:
    """Which metrics of which targets tables show, and whether they are shares: all but a lone accuracy.

    Args:
        summaries: From `summarise`.
    """
    shares = {metric.name: metric.is_share for metric in METRICS}
    found: dict[tuple[str, str], bool] = {}
    for summary in summaries:
        for target, measured in summary.get("targets", {}).items():
            if set(measured) != {"accuracy"}:
                found |= {(target, name): shares.get(name, False) for name in measured}
    return [(target, name, is_share) for (target, name), is_share in found.items()]
