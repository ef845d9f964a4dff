"""The values of variables by step, in the terminal: what a model believes, and what is true."""

from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ipagnn.inference.beliefs import Beliefs

MOST_STEPS: Final = 40
"""Steps that are shown: the first and the last of a longer run, and those around the first difference."""
_SURE: Final = 0.995  # probabilities above this are not written out
_LONGEST: Final = 28
_BEFORE: Final = 4


def print_beliefs(console: Console, beliefs: Beliefs, lines: list[str]) -> None:
    """A table with a row for each step: the line it executes and the values after it."""
    table = Table(header_style="bold", title="Values after each step", title_justify="left", title_style="bold")
    table.add_column("step", justify="right", style="dim")
    table.add_column("line", justify="right", style="dim")
    table.add_column("", no_wrap=True)
    for variable in beliefs.variables:
        table.add_column(f"v{variable}", justify="right", no_wrap=True)
    differs = beliefs.differs
    shown = _chosen(len(beliefs.lines) - 1, beliefs.parts)
    before = 0
    for step in shown:
        if step != before + 1:
            table.add_row("…", *[""] * (2 + len(beliefs.variables)))
        before = step
        at = int(beliefs.lines[step - 1])
        astray = beliefs.true_lines is not None and at != beliefs.true_lines[step - 1]
        cells = [_cell(beliefs, step, k, bool(differs[step, k])) for k in range(len(beliefs.variables))]
        text = Text(_cut("exit" if at < 0 else lines[at]), "red" if astray else "")
        table.add_row(str(step), "" if at < 0 else str(at + 1), text, *cells)
    console.print(table)
    console.print(_sentence(beliefs, len(shown)), soft_wrap=True, markup=False)


def _cell(beliefs: Beliefs, step: int, k: int, differs: bool) -> Text:
    value, probability = int(beliefs.values[step, k]), float(beliefs.probabilities[step, k])
    changed = value != int(beliefs.values[step - 1, k])
    text = Text(str(value), "bold red" if differs else ("bold" if changed else "dim"))
    if probability < _SURE:
        text.append(f" {probability:.0%}", "yellow")
    if differs and beliefs.true_values is not None:
        text.append(f" ≠ {beliefs.true_values[step, k]}", "red")
    return text


def _chosen(steps: int, parts: int | None) -> list[int]:
    """The steps that are shown, from 1."""
    if steps <= MOST_STEPS:
        return [*range(1, steps + 1)]
    middle = range(0)
    share = MOST_STEPS // 2
    if parts is not None:
        share = MOST_STEPS // 3
        middle = range(max(1, parts - _BEFORE), min(steps, parts - _BEFORE + share) + 1)
    wanted = {*range(1, share + 1), *middle, *range(steps - share + 1, steps + 1)}
    return sorted(wanted)


def _sentence(beliefs: Beliefs, shown: int) -> str:
    steps = len(beliefs.lines) - 1
    of = f"{shown:,} of {steps:,} steps are shown. " if shown < steps else ""
    if beliefs.true_values is None:
        return f"{of}The values are those of the likeliest fillings of the masked lines."
    if beliefs.parts is None:
        return f"{of}At each step every value is the true one."
    wrong = np.flatnonzero(beliefs.differs[beliefs.parts])
    if not len(wrong):
        return f"{of}Control leaves the true trace after step {beliefs.parts:,}."
    names = ", ".join(f"v{beliefs.variables[k]}" for k in wrong.tolist())
    return f"{of}After step {beliefs.parts:,} the value of {names} is not the true one."


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
