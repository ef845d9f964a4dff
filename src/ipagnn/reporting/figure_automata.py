"""The automata that a model has learned: a table for each statement, beside how it compares with the true one."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ipagnn.languages.arithmetic.automata import DIGITS, Automaton, Proof
from ipagnn.languages.arithmetic.tables import statement_text
from ipagnn.reporting.style import BLACK, GREEN, GREY, LIGHT, VERMILION, style

_COLUMNS: Final = 5
_PANEL: Final = 1.62
"""Inches of a panel's width."""
_ROW: Final = 0.115
_HEAD: Final = 0.42
_NOTE: Final = 0.42
_LETTER: Final = 5.0
_CYCLE: Final = np.array(
    [
        *((0.98, 0.98, 0.98), (0.75, 0.87, 0.95), (0.99, 0.87, 0.62), (0.72, 0.88, 0.78), (0.94, 0.80, 0.88)),
        *((0.85, 0.85, 0.62), (0.80, 0.80, 0.93), (0.98, 0.78, 0.68), (0.68, 0.86, 0.88), (0.86, 0.78, 0.70)),
    ]
)
"""Colours of states 0 to 9, and of those behind them again."""


def automata_figure(proofs: Sequence[Proof]) -> Figure:
    """A table for each automaton: a row for each state, a column for each digit that is read.

    A cell has the digit that is written (or T and F for what a condition decides) and the colour of the state that
    follows; white on grey where a condition stops to read.

    Args:
        proofs: The automata, each compared with the true one.
    """
    rows = [proofs[i : i + _COLUMNS] for i in range(0, len(proofs), _COLUMNS)]
    heights = [_HEAD + _ROW * max(len(proof.automaton) for proof in row) for row in rows]
    width, height = _PANEL * min(_COLUMNS, len(proofs)) + 0.2, sum(heights) + _NOTE
    with style():
        figure = Figure(figsize=(width, height))
        top = height
        for row, tall in zip(rows, heights, strict=True):
            for i, proof in enumerate(row):
                states = len(proof.automaton)
                bottom = top - _HEAD - _ROW * states + 0.06
                left = 0.28 + _PANEL * i
                axes = figure.add_axes((left / width, bottom / height, (_PANEL - 0.32) / width, _ROW * states / height))
                _table(axes, proof)
            top -= tall
        figure.text(
            0.1 / width,
            0.08 / height,
            "Row: state. Column: digit read, the lowest first. Cell: digit written, or whether a condition holds (T, F)"
            ";\ncolour: the state that follows, the colour beside its row. White on grey: reading stops.",
            size=6,
            color=GREY,
            va="bottom",
        )
    return figure


def _table(axes: Axes, proof: Proof) -> None:
    automaton, wrong = proof.automaton, proof.disagreement
    states = len(automaton)
    axes.imshow(_colours(automaton), aspect="auto", extent=(-0.5, DIGITS - 0.5, states - 0.5, -0.5))
    axes.imshow(
        _CYCLE[np.arange(states) % len(_CYCLE)][:, None], aspect="auto", extent=(-1.5, -0.7, states - 0.5, -0.5)
    )
    for (state, digit), given in np.ndenumerate(automaton.gives):
        shown = "FT"[int(given)] if automaton.decides else str(int(given))
        colour = "white" if automaton.stops[state, digit] else BLACK
        axes.text(digit, state, shown, ha="center", va="center", size=_LETTER, color=colour)
    for state in range(states):
        axes.text(-1.1, state, str(state), ha="center", va="center", size=_LETTER - 0.5, color=GREY)
    axes.set_xlim(-1.5, DIGITS - 0.5)
    axes.set_ylim(states - 0.5, -0.5)
    axes.set_yticks([])
    axes.set_xticks(range(DIGITS), [str(digit) for digit in range(DIGITS)])
    axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0, pad=1, labelsize=4.5)
    for spine in axes.spines.values():
        spine.set(visible=True, linewidth=0.4, color=LIGHT)
    verdict = "= true, any size" if wrong is None else f"wrong at {wrong.number}"
    title = statement_text(automaton.operation, automaton.operand)
    axes.set_title(f"{title}\n", loc="left", size=6.5, pad=5, linespacing=0.9)
    colour = GREEN if wrong is None else VERMILION
    axes.annotate(
        *(verdict, (0, 1)), xytext=(0, 9), xycoords="axes fraction", textcoords="offset points", size=5, color=colour
    )


def _colours(automaton: Automaton) -> npt.NDArray[np.float64]:
    """The colour of each cell. [state, digit, red green blue]"""
    colours = _CYCLE[automaton.goes % len(_CYCLE)]
    return np.where(automaton.stops[:, :, None], 0.45, colours)
