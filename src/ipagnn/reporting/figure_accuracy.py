"""Accuracy by program length, full and partial (figure 3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ipagnn.languages.arithmetic import Task
from ipagnn.models import model_title
from ipagnn.reporting.style import BLACK, LIGHT, line_looks, style

_PANELS: Final[tuple[tuple[Task, str], ...]] = (
    ("full", "(a) Execution of full programs"),
    ("partial", "(b) Execution of partial programs"),
)
_NARROW: Final = 24
"""Letters of a label of which two fit side by side below a panel."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Accuracy of a model by length.

    Attributes:
        model: Its name in the registry.
        variant: What tells it from other curves of the model; empty for the plain one.
        runs: How many runs it is the mean of.
        lengths: Program lengths.
        accuracy: At each of them.
        stderr: One standard error: over programs for one run, over runs for several.
        overall: Accuracy over all programs.
    """

    model: str
    variant: str
    runs: int
    lengths: list[int]
    accuracy: list[float]
    stderr: list[float]
    overall: float


def curves(summaries: Sequence[Mapping[str, Any]], task: Task) -> list[Curve]:
    """One curve for each model and variant, the best first; their runs are averaged where all have a length."""
    by_model: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for summary in summaries:
        if summary["task"] == task:
            by_model.setdefault((summary["model"], summary.get("variant", "")), []).append(summary)
    found = []
    for kind, runs in by_model.items():
        shared = set.intersection(*(set(run["by_length"]) for run in runs))
        lengths = sorted(map(int, shared))
        values = np.array([[run["by_length"][str(n)]["accuracy"] for n in lengths] for run in runs])
        if len(runs) > 1:
            errors = values.std(axis=0, ddof=1) / len(runs) ** 0.5
        else:
            errors = np.array([runs[0]["by_length"][str(n)]["stderr"] for n in lengths])
        overall = float(np.mean([run["overall"]["accuracy"] for run in runs]))
        found.append(Curve(*kind, len(runs), lengths, values.mean(axis=0).tolist(), errors.tolist(), overall))
    return sorted(found, key=lambda curve: -curve.overall)


def accuracy_figure(summaries: Sequence[Mapping[str, Any]]) -> Figure:
    """The figure; a task without results has no panel.

    Args:
        summaries: From `summarise`, one for each run; those with a `variant`, in words, make curves of their own.

    Raises:
        ValueError: There is nothing to draw.
    """
    panels = [(task, title, found) for task, title in _PANELS if (found := curves(summaries, task))]
    if not panels:
        raise ValueError("There are no results to draw; evaluate at least one model.")
    with style():
        columns = 2 if all(len(_label(curve)) <= _NARROW for _, _, found in panels for curve in found) else 1
        legend_rows = -(-(max(len(found) for _, _, found in panels) + 1) // columns)
        legend = 0.145 * legend_rows + 0.06
        size = (3.4 * len(panels), 2.42 + legend)
        figure = Figure(figsize=size)
        for i, (task, title, found) in enumerate(panels):
            left, bottom = (3.4 * i + 0.48) / size[0], (legend + 0.4) / size[1]
            axes = figure.add_axes((left, bottom, 2.8 / size[0], 1.75 / size[1]))
            _panel(axes, found, _ceiling(summaries, task))
            axes.set_title(title)
            axes.set_ylabel("Accuracy (%)")
            handles, labels = axes.get_legend_handles_labels()
            centre = (3.4 * i + 1.7) / size[0]
            figure.legend(
                *(handles, labels),
                loc="lower center",
                bbox_to_anchor=(centre, 0.02 / size[1]),
                ncol=columns,
                handlelength=3.2,
                columnspacing=1.2,
                labelspacing=0.3,
            )
        return figure


def _label(curve: Curve) -> str:
    several = f"{curve.runs} runs" if curve.runs > 1 else ""
    return ", ".join(filter(None, (model_title(curve.model), curve.variant, several)))


def _panel(axes: Axes, found: Sequence[Curve], best: Mapping[int, float] | None) -> None:
    if best:
        axes.plot(list(best), [100 * x for x in best.values()], color=BLACK, linewidth=0.7, label="best possible")
    looks = line_looks(sorted(curve.model for curve in found))
    for curve in found:
        look = looks[curve.model]
        variants = [other.variant for other in found if other.model == curve.model and other.variant]
        half = curve.variant in variants[1::2]  # of several variants every other has markers that are half full
        accuracy, stderr = 100 * np.array(curve.accuracy), 100 * np.array(curve.stderr)
        axes.fill_between(
            curve.lengths, accuracy - stderr, accuracy + stderr, color=look.colour, alpha=0.22, linewidth=0
        )
        axes.plot(
            *(curve.lengths, accuracy),
            color=look.colour,
            marker=look.marker,
            linestyle=look.dashes,
            linewidth=1.2,
            markersize=6.0 if look.marker == "*" else 4.0,
            markeredgecolor=look.colour if curve.variant else "white",
            markeredgewidth=0.9 if curve.variant else 0.3,
            markerfacecolor="white" if curve.variant and not half else look.colour,
            markerfacecoloralt="white",
            fillstyle="bottom" if half else "full",
            label=_label(curve),
            clip_on=False,
            zorder=3,
        )
    axes.set_xlabel("Program length (lines)")
    lengths = sorted({n for curve in found for n in curve.lengths})
    axes.set_xticks(lengths if len(lengths) <= 12 else lengths[:: -(-len(lengths) // 12)])
    highest = max([*(best or {}).values(), *(x for curve in found for x in curve.accuracy)])
    top = min(100, 20 * int(np.ceil((100 * highest + 4) / 20)))
    axes.set_ylim(0, top)
    axes.set_yticks(range(0, top + 1, 20 if top > 40 else 10))
    axes.grid(axis="y", color=LIGHT, linewidth=0.4)
    axes.set_axisbelow(True)


def _ceiling(summaries: Sequence[Mapping[str, Any]], task: Task) -> dict[int, float] | None:
    """What the best guess achieves, by length, if some summary tells."""
    for summary in summaries:
        if summary["task"] == task and "ceiling" in summary:
            return {int(n): row["best"] for n, row in summary["ceiling"]["by_length"].items()}
    return None
