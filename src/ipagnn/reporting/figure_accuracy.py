"""Accuracy by program length, a panel for each task (figure 3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Any, Final, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ipagnn.data.tasks import TASKS
from ipagnn.models import model_title
from ipagnn.reporting.style import BLACK, LIGHT, line_looks, style

_WIDTH: Final = 6.8
"""Inches of the whole figure."""
_Corner = Literal["upper left", "upper center"]
_LETTER: Final = 0.053
"""Inches of a letter of the legend, a little more than the mean."""
_NARROW: Final = 24
"""Letters of a label of which two fit side by side below a panel."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Accuracy of a model by length.

    Attributes:
        model: Its name in the registry.
        variant: What distinguishes it from other curves of the model; empty for the plain one.
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


def curves(summaries: Sequence[Mapping[str, Any]], task: str) -> list[Curve]:
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


def accuracy_figure(summaries: Sequence[Mapping[str, Any]], training_lengths: Sequence[int] = ()) -> Figure:
    """The figure. A task without results has no panel; the only panel is as wide as two.

    Args:
        summaries: From `summarise`, one for each run; those with a `variant`, in words, make curves of their own.
        training_lengths: The longest training length of each run, where it is known. If it is the same for all, the
            training lengths are shaded.

    Raises:
        ValueError: There is nothing to draw.
    """
    panels = [(name, task.title or name, found) for name, task in TASKS.items() if (found := curves(summaries, name))]
    if not panels:
        raise ValueError("There are no results to draw; evaluate at least one model.")
    trained = training_lengths[0] if len(set(training_lengths)) == 1 else None
    with style():
        if len(panels) == 1:
            ((task, title, found),) = panels
            return _one_panel(title, found, _ceiling(summaries, task), trained)
        columns = 2 if all(len(_label(curve)) <= _NARROW for _, _, found in panels for curve in found) else 1
        entries = max(len(found) + (_ceiling(summaries, task) is not None) for task, _, found in panels)
        legend = 0.133 * -(-(entries + (trained is not None)) // columns) + 0.06
        width, height = _WIDTH / len(panels), 2.42 + legend
        figure = Figure(figsize=(_WIDTH, height))
        for i, (task, title, found) in enumerate(panels):
            left, bottom = (width * i + 0.48) / _WIDTH, (legend + 0.4) / height
            axes = figure.add_axes((left, bottom, (width - 0.6) / _WIDTH, 1.75 / height))
            _panel(axes, found, _ceiling(summaries, task), trained)
            axes.set_title(f"({ascii_lowercase[i]}) {title}")
            _legend(figure, axes, (width * (i + 0.5) / _WIDTH, legend / height), "upper center", columns)
        return figure


def _one_panel(title: str, found: Sequence[Curve], best: Mapping[int, float] | None, trained: int | None) -> Figure:
    """A panel with its legend on the right."""
    figure = Figure(figsize=(_WIDTH, 2.6))
    axes = figure.add_axes((0, 0, 1, 1))
    _panel(axes, found, best, trained)
    axes.set_title(title)
    _, labels = axes.get_legend_handles_labels()
    right = _WIDTH - 0.6 - _LETTER * max(map(len, labels))
    height = max(2.6, 0.65 + 0.14 * len(labels))
    figure.set_figheight(height)
    axes.set_position((0.48 / _WIDTH, 0.4 / height, (right - 0.6) / _WIDTH, (height - 0.67) / height))
    _legend(figure, axes, (right / _WIDTH, (height - 0.27) / height), "upper left", 1)
    return figure


def _legend(figure: Figure, axes: Axes, place: tuple[float, float], corner: _Corner, columns: int) -> None:
    figure.legend(
        *axes.get_legend_handles_labels(),
        loc=corner,
        bbox_to_anchor=place,
        borderaxespad=0,
        ncol=columns,
        handlelength=3.2,
        columnspacing=1.2,
        labelspacing=0.3,
    )


def _trained_label(trained: int) -> str:
    return f"training: up to {trained} lines"


def _label(curve: Curve) -> str:
    several = f"{curve.runs} runs" if curve.runs > 1 else ""
    return ", ".join(filter(None, (model_title(curve.model), curve.variant, several)))


def _panel(axes: Axes, found: Sequence[Curve], best: Mapping[int, float] | None, trained: int | None) -> None:
    lengths = sorted({n for curve in found for n in curve.lengths} | ({trained} if trained else set()))
    margin = 0.04 * max(lengths[-1] - lengths[0], 1)
    first = 0.0 if trained else lengths[0] - margin
    if trained:
        axes.axvspan(first, trained, color=LIGHT, alpha=0.5, linewidth=0, label=_trained_label(trained))
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
    axes.set_ylabel("Accuracy (%)")
    axes.set_xlim(first, lengths[-1] + margin)
    axes.set_xticks(lengths if len(lengths) <= 12 else lengths[:: -(-len(lengths) // 12)])
    ends = (x + e for curve in found for x, e in zip(curve.accuracy, curve.stderr, strict=True))
    highest = max([*(best or {}).values(), *ends])  # of bands, too
    top = min(100, 20 * int(np.ceil((100 * highest + 4) / 20)))
    axes.set_ylim(0, top)
    axes.set_yticks(range(0, top + 1, 20 if top > 40 else 10))
    axes.grid(axis="y", color=LIGHT, linewidth=0.4)
    axes.set_axisbelow(True)


def _ceiling(summaries: Sequence[Mapping[str, Any]], task: str) -> dict[int, float] | None:
    """What the best guess achieves, by length, if a summary has it."""
    for summary in summaries:
        if summary["task"] == task and "ceiling" in summary:
            return {int(n): row["best"] for n, row in summary["ceiling"]["by_length"].items()}
    return None
