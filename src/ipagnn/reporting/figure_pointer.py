"""Where the instruction pointer is at each step, beside source and control flow graph (figure 4 and the supplement)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ipagnn.languages.arithmetic import Grammar, Program, control_flow_graph, format_program, trace, value
from ipagnn.models import ProgramModel
from ipagnn.reporting.columns import (
    BRANCHES,
    SHADES,
    TEXT_SIZE,
    Column,
    faint_rows,
    graph_column,
    graph_edges,
    numbers_column,
    source_column,
    table_figure,
)
from ipagnn.reporting.style import BLACK, GREY, VERMILION, style

STEP_WIDTH: Final = 0.1
NARROWEST, WIDEST = 0.9, 6.5
"""Inches of a heat map."""
_ABSORBED = 0.999
_FOOTER = 0.42
_TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)


@dataclass(frozen=True, eq=False, slots=True)
class PointerTrace:
    """What a model did on a program.

    Attributes:
        program: The program.
        pointer: p_{t,n}, by line instead of node; the last line is the exit. NaN on lines without a node.
            [step + 1, line + 1]
        prediction: The likeliest value.
        value: The true one; None if it is not known.
        steps: What the model was given, T(x) unless its budget says otherwise.
        true_lines: The lines of the true trace, as far as `pointer` goes; empty if a line is masked.
        condition_modulus: Of the model's language.
    """

    program: Program
    pointer: npt.NDArray[np.float32]
    prediction: int
    value: int | None
    steps: int
    true_lines: list[int]
    condition_modulus: int


def trace_pointer(
    model: ProgramModel, programs: Sequence[Program], complete: Sequence[Program] | None = None
) -> list[PointerTrace]:
    """Run programs one by one and keep the whole pointer; steps after the exit has all of it are left out.

    Args:
        model: A model with an instruction pointer.
        programs: What it runs.
        complete: The same programs without masks, which give the true values.

    Raises:
        ValueError: The model has no instruction pointer.
    """
    model = model.eval()
    return [_trace_one(model, *pair) for pair in zip(programs, complete or programs, strict=True)]


def _trace_one(model: ProgramModel, program: Program, complete: Program) -> PointerTrace:
    if "pointer" not in model.records:
        raise ValueError(
            f"The model {model.name} has no instruction pointer to draw; choose ipa-gnn, hard-ip-rnn or no-execute."
        )
    batch = model.collate([program])
    with torch.inference_mode():
        output = model(batch.to(next(model.parameters()).device), record=("pointer",), execution="reference")
    by_node = output["pointer"].float().cpu().numpy()
    absorbed = by_node[:, -1] >= _ABSORBED
    shown = by_node[: int(absorbed.argmax()) + 2] if absorbed.any() else by_node
    graph = control_flow_graph(program)
    by_line = np.full((len(shown), len(program) + 1), np.nan, np.float32)
    by_line[:, [*graph.nodes.tolist(), len(program)]] = shown
    grammar: Grammar = model.config.grammar
    moduli, wrap = (grammar.modulus, grammar.condition_modulus), grammar.wrap
    lines = [] if program.is_partial else [s.line for s in trace(program, len(shown) - 1, *moduli, wrap=wrap)]
    if lines and len(lines) < len(shown):
        lines.append(len(program))
    true = None if complete.is_partial else value(complete, *moduli, wrap=wrap, variable=grammar.target_variable)
    return PointerTrace(*(program, by_line, int(output.logits.argmax()), true, int(batch.steps[0]), lines), moduli[1])


def pointer_figure(groups: Sequence[Sequence[PointerTrace]], columns: int = 2) -> Figure:
    """The figure.

    Args:
        groups: Traces of programs that differ in their first line only share source and graph.
        columns: Programs side by side.
    """
    tables, rows = [], []
    for first in range(0, len(groups), columns):
        band = groups[first : first + columns]
        tables.append([_table(group) for group in band])
        rows.append([len(group[0].program) + 1 for group in band])
    with style():
        dots = any(example.true_lines for group in groups for example in group)
        note = f"{BRANCHES}{'; dots: the true trace' if dots else ''}"
        return table_figure(tables, rows, note, scale=True)


def _table(group: Sequence[PointerTrace]) -> list[Column]:
    program = group[0].program
    count = len(program) + 1
    edges, lines = graph_edges(program)
    modulus = group[0].condition_modulus
    first_lines = [format_program(example.program).partition("\n")[0] for example in group]
    several = len(group) > 1
    return [
        numbers_column(count),
        source_column(program, modulus, "v0 = ??" if several else None),
        graph_column("CFG", edges, lines),
        *(
            _heat_map(example, title if several else "Instruction pointer")
            for example, title in zip(group, first_lines, strict=True)
        ),
    ]


def _heat_map(example: PointerTrace, title: str) -> Column:
    steps, count = example.pointer.shape
    width = float(np.clip(steps * STEP_WIDTH, NARROWEST, WIDEST))
    given = f"step t of {example.steps:,}"

    def draw(axes: Axes) -> None:
        box = (0, width, count - 0.5, -0.5)
        shown = np.nan_to_num(example.pointer.T)
        axes.imshow(shown, cmap=SHADES, vmin=0, vmax=1, extent=box, aspect="auto", zorder=1)
        axes.set_xlim(0, width)
        axes.set_ylim(count - 0.5, -0.5)
        faint_rows(axes, count, width)
        axes.plot(
            [0, 0, width, width, 0],
            [-0.5, count - 0.5, count - 0.5, -0.5, -0.5],
            color=GREY,
            linewidth=0.5,
            clip_on=False,
        )
        cell = width / steps
        if example.true_lines:
            x = (np.arange(len(example.true_lines)) + 0.5) * cell
            size = float(np.clip(cell * 72 * 0.35, 0.8, 2.6))
            axes.plot(
                *(x, example.true_lines),
                linestyle="none",
                marker="o",
                markersize=size,
                color=VERMILION,
                markeredgecolor="white",
                markeredgewidth=size / 8,
                zorder=3,
            )
        below = count - 0.5
        step = next((n for n in _TICKS if n * cell >= 0.3), _TICKS[-1])
        for t in range(0, steps, step):
            at = (t + 0.5) * cell
            axes.plot([at, at], [below, below + 0.25], color=BLACK, linewidth=0.5, clip_on=False)
            axes.text(at, below + 0.3, str(t), size=TEXT_SIZE - 1.5, ha="center", va="top")
        notes = f"{given}\n{_verdict(example)}"
        axes.text(width / 2, below + 1.05, notes, size=TEXT_SIZE - 1, ha="center", va="top", linespacing=1.25)

    widest_note = max(len(given), len(_verdict(example)), len(title))
    width = max(width, widest_note * 0.052)
    return Column(title, width, draw, _FOOTER)


def _verdict(example: PointerTrace) -> str:
    if example.value is None:
        return f"predicts {example.prediction}"
    return f"predicts {example.prediction}, true {example.value}"
