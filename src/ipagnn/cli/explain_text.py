"""Predictions and explanations in the terminal."""

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ipagnn.inference.html import truth_sentence
from ipagnn.inference.predict import Prediction

if TYPE_CHECKING:
    from ipagnn.inference.explain import Explanation

BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_UNSEEN: Final = 100  # columns where the output is no terminal
_LONGEST: Final = 40
_BAR: Final = 20
_LEAST_BAR: Final = 5
_MOST: Final = 8  # soft decisions and path pieces that are spelled out
_DARK, _LIGHT = (45, 60, 110), (255, 190, 60)


def print_prediction(console: Console, prediction: Prediction, count: int) -> None:
    """The answer, the likeliest results with bars, the truth, and how far all that can be trusted."""
    _print_answer(console, prediction)
    exact = prediction.truth.exact
    bar = _bar_width(console, prediction)
    table = Table(header_style="bold")
    table.add_column("result", justify="right")
    table.add_column("model", justify="right")
    if bar:
        table.add_column("")
    if exact:
        table.add_column("exact", justify="right")
    shares = {c.value: c.probability for c in exact or ()}
    for candidate in prediction.shown(count):
        true = candidate.value == prediction.true_value
        share = candidate.probability
        cells: list[str | Text] = [str(candidate.value), f"{share:.1%}"]
        if bar:
            cells.append(_bar(share, true, bar))
        if exact:
            cells.append(f"{shares.get(candidate.value, 0.0):.1%}")
        table.add_row(*cells, style="green" if true else None)
    console.print(table)
    if exact:
        parts = (f"{c.value} {c.probability:.1%}" for c in exact[:count])
        samples = prediction.truth.samples
        fillings = f"{samples:,} sampled" if samples else "all"
        message = f"Likeliest over {fillings} fillings: {', '.join(parts)}"
    else:
        sentence = truth_sentence(prediction).removesuffix(".")
        message = f"{sentence[0].upper()}{sentence[1:]}"
    if prediction.true_value is not None:
        message += f"; the model gives it {prediction.probability(prediction.true_value):.1%}"
    console.print(f"{message}.", soft_wrap=True, markup=False)
    console.print(f"Trust: {prediction.trust}.", soft_wrap=True, markup=False)
    for warning in prediction.warnings:
        console.print(f"Warning: {warning}", style="yellow", soft_wrap=True, markup=False)


def _print_answer(console: Console, prediction: Prediction) -> None:
    mass = "" if prediction.exit_mass is None else f", resting on {prediction.exit_mass:.1%} of the pointer"
    sure = "not proved to be right" if prediction.proved is False else f"confidence {prediction.confidence:.1%}"
    message = f"{prediction.model} says {prediction.value} ({sure}{mass})"
    console.print(message, style="bold", soft_wrap=True, markup=False)


def _bar_width(console: Console, prediction: Prediction) -> int:
    """Columns that are left for bars; none if there is hardly any room."""
    value = len(str(prediction.grammar.modulus))
    others = max(len("result"), value) + len("100.0%") + (len("100.0%") if prediction.truth.exact else 0)
    borders = 3 * (4 if prediction.truth.exact else 3) + 1
    room = min(_BAR, console.width - others - borders)
    return room if room >= _LEAST_BAR else 0


def print_explanation(console: Console, explanation: "Explanation", count: int) -> None:
    """Source beside the pointer's heat map, then what there is to say about it, then the prediction."""
    if explanation.pointer is None:
        console.print(
            f"The model {explanation.prediction.model} has no instruction pointer to show.",
            soft_wrap=True,
            markup=False,
        )
    else:
        _print_heat_map(console, explanation, explanation.pointer)
        _print_path(console, explanation)
        _print_soft(console, explanation)
    _print_shortcuts(console, explanation)
    _print_recorded(console, explanation)
    if explanation.beliefs is not None:
        from ipagnn.cli.beliefs_text import print_beliefs

        print_beliefs(console, explanation.beliefs, explanation.prediction.lines)
    print_prediction(console, explanation.prediction, count)


def _print_heat_map(console: Console, explanation: "Explanation", pointer: npt.NDArray[np.float32]) -> None:
    width = console.width if console.is_terminal else min(console.width, _UNSEEN)
    lines = [*explanation.prediction.lines, "exit"]
    source = min(max(map(len, lines)), _LONGEST, max(8, width // 3))
    numbers = len(str(len(lines) - 1))
    bins = max(1, min(len(pointer), width - numbers - source - 3))
    # Several steps share a column where there are more steps than columns; the largest of them shows.
    starts = np.arange(bins) * len(pointer) // bins
    columns = np.maximum.reduceat(pointer, starts, axis=0)
    node_of = {line: node for node, line in enumerate([*explanation.graph.nodes.tolist(), len(lines) - 1])}
    for i, line in enumerate(lines):
        shown = line if len(line) <= source else f"{line[: source - 1]}…"
        text = Text(f"{'' if i == len(lines) - 1 else i + 1:>{numbers}} ", "dim", no_wrap=True, overflow="crop")
        text.append(shown.ljust(source), "default italic" if i == len(lines) - 1 else "default not dim")
        text.append(" ")
        if i in node_of:
            for share in columns[:, node_of[i]].tolist():
                text.append(*_block(share))
        text.rstrip()
        console.print(text)
    a_column = f", up to {int(np.diff([*starts, len(pointer)]).max())} steps a column" if bins < len(pointer) else ""
    steps = explanation.prediction.steps
    of = "" if steps is None else f" of {steps:,}"
    console.print(
        f"{'':>{numbers + source + 1}} steps 0 to {len(pointer) - 1}{of}{a_column}",
        style="dim",
        soft_wrap=True,
        markup=False,
    )


def _block(share: float) -> tuple[str, str]:
    level = 0 if share < 0.01 else min(int(share * 8) + 1, 8)
    colour = (round(a + (b - a) * share) for a, b in zip(_DARK, _LIGHT, strict=True))
    return BLOCKS[level], "rgb({},{},{}) not dim".format(*colour)


def _print_recorded(console: Console, explanation: "Explanation") -> None:
    """A table of what else the model recorded, a column for each quantity and a row for each line."""
    if not explanation.recorded:
        return
    table = Table(header_style="bold")
    for title in ("line", "source", *explanation.recorded):
        table.add_column(title, justify="left" if title == "source" else "right")
    lines = [*explanation.prediction.lines, "exit"]
    node_of = {line: node for node, line in enumerate([*explanation.graph.nodes.tolist(), len(lines) - 1])}
    for i, line in enumerate(lines):
        places = {"line": i if i < len(lines) - 1 else None, "node": node_of.get(i)}
        cells = [
            "" if (place := places[axis]) is None else f"{data[place]:.3f}"
            for axis, data in explanation.recorded.values()
        ]
        if any(cells):
            table.add_row("" if i == len(lines) - 1 else str(i + 1), line, *cells)
    console.print(table)


def _print_path(console: Console, explanation: "Explanation") -> None:
    if explanation.path is None:
        return
    lines = explanation.graph.nodes[explanation.path] + 1
    message = " ".join(_runs(lines.tolist()))
    end = {True: "exit", False: "… not at the exit", None: "…"}[explanation.path_ends]
    more = "more than " if explanation.path_ends is None else ""
    console.print(
        f"Most likely path ({more}{len(lines):,} statements): lines {message} {end}", soft_wrap=True, markup=False
    )


def _runs(lines: list[int]) -> list[str]:
    """Line numbers, with runs of successive ones as `3–5`, at most some of them."""
    runs: list[list[int]] = []
    for line in lines:
        if runs and line == runs[-1][-1] + 1:
            runs[-1].append(line)
        else:
            runs.append([line])
    names = [str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs]
    if len(names) > 3 * _MOST:
        return [*names[: 2 * _MOST], f"… ({len(names) - 3 * _MOST} pieces) …", *names[-_MOST:]]
    return names


def _print_soft(console: Console, explanation: "Explanation") -> None:
    soft = explanation.soft
    if soft is None:
        return
    if not soft:
        console.print("Every branch decision that mattered was discrete.")
        return
    message = (f"step {s.step} line {s.line + 1} ({s.true:.0%} true, p {s.mass:.2f})" for s in soft[:_MOST])
    more = f"; and {len(soft) - _MOST} more" if len(soft) > _MOST else ""
    console.print(f"Soft branch decisions: {'; '.join(message)}{more}", soft_wrap=True, markup=False)


def _print_shortcuts(console: Console, explanation: "Explanation") -> None:
    shortcuts = explanation.shortcuts
    if shortcuts is None:
        return
    if not shortcuts:
        console.print("No line was short-cut: the pointer visits each as often as the true trace does.")
        return
    message = (f"{s.line + 1} ({s.visits:.1f} visits of {s.executed:,})" for s in shortcuts)
    console.print(f"Short-cut lines: {', '.join(message)}", soft_wrap=True, markup=False)


def _bar(share: float, true: bool, width: int) -> Text:
    eighths = round(share * width * 8)
    bar = "█" * (eighths // 8) + (" ▏▎▍▌▋▊▉"[eighths % 8] if eighths % 8 else "")
    return Text(bar.ljust(width), "green" if true else "blue")
