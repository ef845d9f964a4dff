"""Figures that are tables: a program's lines one below the other, and beside each line what belongs to it.

Sizes are inches and worked out from the texts, so that nothing overlaps or is cut off however long a program is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path as Outline

from ipagnn.languages.arithmetic import Program, control_flow_graph, format_program
from ipagnn.reporting.style import BLACK, BLUE, GREY, LIGHT, MONOSPACE, VERMILION

ROW: Final = 0.17
"""Height of a line."""
TEXT_SIZE: Final = 7.0
CHARACTER: Final = TEXT_SIZE * 0.603 / 72
"""Width of a character of the monospaced font."""
HEADER: Final = 0.24
GAP: Final = 0.14
MARGIN: Final = 0.08
_LANE = 0.11
_RADIUS = 0.032
_NOTE = 0.3

_SCALE = 1.3
_TITLE_CHARACTER = 0.058

EXIT: Final = "<exit>"
BRANCHES: Final = "dashed arrows: the condition does not hold"
SHADES: Final = LinearSegmentedColormap.from_list("pointer", ["#FFFFFF", "#C6DBEF", "#6BAED6", "#2171B5", "#08306B"])
"""From no mass to all of it; evenly darker, so that grey print shows the same."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a figure.

    Attributes:
        title: Its heading.
        width: In inches.
        draw: Draws it; the axes measure inches across, and lines downwards from 0.
        footer: Room it needs below its last line, in inches.
        align: Where the heading stands.
    """

    title: str
    width: float
    draw: Callable[[Axes], None]
    footer: float = 0.0
    align: Literal["left", "center", "right"] = "center"


@dataclass(frozen=True, slots=True)
class Edge:
    """An arrow between two lines; `exit` is the line after the last.

    Attributes:
        source, target: Lines.
        dashed: Drawn with dashes: the false branch.
        both: An arrow head on both ends.
        width: Of the line, in points.
        colour: Of the line.
    """

    source: int
    target: int
    dashed: bool = False
    both: bool = False
    width: float = 0.9
    colour: str = BLACK


def table_figure(
    tables: Sequence[Sequence[Sequence[Column]]], rows: Sequence[Sequence[int]], note: str, *, scale: bool = False
) -> Figure:
    """A figure of tables of columns, arranged in rows.

    Args:
        tables: For each row of the figure its tables, for each table its columns.
        rows: For each of them its number of lines.
        note: What the signs mean, below everything.
        scale: Put a scale of the pointer's shades beside the note.
    """
    widths = [
        sum(sum(c.width for c in table) + GAP * len(table) for table in band) + GAP * (len(band) - 1) for band in tables
    ]
    heights = [
        HEADER + ROW * max(counts) + max(c.footer for table in band for c in table) + GAP
        for band, counts in zip(tables, rows, strict=True)
    ]
    note_width = len(note) * 0.0525 + (_SCALE if scale else 0)
    width, height = max(*widths, note_width) + 2 * MARGIN, sum(heights) + _NOTE + MARGIN
    figure = Figure(figsize=(width, height))
    top = height - MARGIN
    for band, counts, band_height in zip(tables, rows, heights, strict=True):
        left = MARGIN
        for table, count in zip(band, counts, strict=True):
            right = left + sum(c.width for c in table) + GAP * len(table)
            _rules(figure, left, right, top, count, (width, height))
            x = left + GAP / 2
            for column in table:
                bottom = top - HEADER - ROW * count
                box = (x / width, bottom / height, column.width / width, ROW * count / height)
                axes = figure.add_axes(box)
                axes.set_xlim(0, column.width)
                axes.set_ylim(count - 0.5, -0.5)
                axes.axis("off")
                column.draw(axes)
                at = x + column.width * {"left": 0.0, "center": 0.5, "right": 1.0}[column.align]
                figure.text(
                    *(at / width, (top - HEADER / 2) / height),
                    column.title,
                    size=TEXT_SIZE,
                    ha=column.align,
                    va="center",
                )
                x += column.width + GAP
            left = right + GAP
        top -= band_height
    figure.text(MARGIN / width, MARGIN * 1.2 / height, note, size=TEXT_SIZE - 1, color=GREY, va="bottom")
    if scale:
        _scale(figure, width, height)
    return figure


def _scale(figure: Figure, width: float, height: float) -> None:
    """The shades from 0 to 1."""
    axes = figure.add_axes(((width - MARGIN - 0.85) / width, MARGIN * 1.3 / height, 0.7 / width, 0.09 / height))
    axes.imshow(np.linspace(0, 1, 64)[None], cmap=SHADES, aspect="auto")
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set(visible=True, linewidth=0.4, color=GREY)
    for x, text, side in ((-0.06, "p = 0", "right"), (1.06, "1", "left")):
        axes.text(x, 0.5, text, transform=axes.transAxes, size=TEXT_SIZE - 1, color=GREY, ha=side, va="center")


def _rules(figure: Figure, left: float, right: float, top: float, count: int, size: tuple[float, float]) -> None:
    """Lines above and below the header, and below the table."""
    width, height = size
    for y, weight in ((top, 0.9), (top - HEADER, 0.5), (top - HEADER - ROW * count - 0.02, 0.9)):
        xs, ys = [left / width, right / width], [y / height] * 2
        figure.add_artist(Line2D(xs, ys, linewidth=weight, color=BLACK, transform=figure.transFigure))


def numbers_column(count: int) -> Column:
    """The numbers of the lines, from 0; the last is the exit."""
    return text_column("n", [str(i) for i in range(count)], align="right")


def source_column(program: Program, condition_modulus: int = 10, first_line: str | None = None) -> Column:
    """The text of a program and its exit, with another first line if given."""
    lines = format_program(program, condition_modulus).split("\n")
    if first_line is not None:
        lines[0] = first_line
    return text_column("Source", [*lines, EXIT])


def text_column(title: str, texts: Sequence[str], align: Literal["left", "center", "right"] = "left") -> Column:
    """One text a line."""
    width = max(len(title.replace("$", "").replace("_", "")), *map(len, texts)) * CHARACTER

    def draw(axes: Axes) -> None:
        x = {"left": 0.0, "center": width / 2, "right": width}[align]
        for row, text in enumerate(texts):
            colour = VERMILION if "[MASK]" in text else BLACK
            axes.text(x, row, text, family=MONOSPACE, size=TEXT_SIZE, ha=align, va="center", color=colour)

    return Column(title, width, draw, align=align)


def graph_edges(program: Program) -> tuple[list[Edge], list[int]]:
    """The edges of a program's control flow graph between lines, and the lines that have a node, exit included."""
    graph = control_flow_graph(program)
    line = [*graph.nodes.tolist(), len(program)]
    edges = [Edge(line[a], line[b], dashed=branch is False) for a, b, branch in graph.edges]
    return edges, line


def graph_column(
    title: str, edges: Sequence[Edge], lines: Sequence[int], decisions: Sequence[int] = (), width: float = 0.0
) -> Column:
    """A graph whose nodes stand beside their lines.

    Edges between neighbours are straight; others run in lanes of their own, down on the right, up on the left.

    Args:
        title: Heading.
        edges: The arrows.
        lines: Lines with a node.
        decisions: Lines where a pill marks a learned branch decision.
        width: At least this wide.
    """
    places = sorted(lines)
    following = dict(pairwise(places))
    bent = [e for e in edges if following.get(e.source) != e.target and e.source != e.target]
    right = _lanes([e for e in bent if e.target > e.source])
    left = _lanes([e for e in bent if e.target < e.source])
    space = [_LANE * (1 + max(side.values(), default=-1)) + 2.2 * _RADIUS for side in (left, right)]
    room = max(width, sum(space), len(title) * _TITLE_CHARACTER)
    centre = (room - sum(space)) / 2 + space[0]

    def draw(axes: Axes) -> None:
        for edge in edges:
            if edge.source == edge.target:
                continue
            if edge in right:
                _bend(axes, edge, centre, centre + space[1] - 1.1 * _RADIUS, right[edge], max(right.values()))
            elif edge in left:
                _bend(axes, edge, centre, centre - space[0] + 1.1 * _RADIUS, left[edge], max(left.values()))
            else:
                pad = _RADIUS / ROW
                points = [(centre, edge.source + pad), (centre, edge.target - pad)]
                _arrow(axes, points, edge)
        for row in places:
            _node(axes, centre, row, decided=row in decisions)

    return Column(title, room, draw)


def _lanes(edges: Sequence[Edge]) -> dict[Edge, int]:
    """A lane for each edge, so that no two in one lane pass the same lines; short ones lie inside."""
    taken: list[list[tuple[int, int]]] = []
    lanes: dict[Edge, int] = {}
    for edge in sorted(edges, key=lambda e: (abs(e.target - e.source), e.source, e.target)):
        low, high = sorted((edge.source, edge.target))
        free = (i for i, spans in enumerate(taken) if all(high <= a or b <= low for a, b in spans))
        lane = next(free, len(taken))
        if lane == len(taken):
            taken.append([])
        taken[lane].append((low, high))
        lanes[edge] = lane
    return lanes


def _bend(axes: Axes, edge: Edge, centre: float, outermost: float, lane: int, last: int) -> None:
    side = np.sign(outermost - centre)
    x = outermost - side * _LANE * (last - lane)
    # Leave below the middle of the node and arrive above it, so that what comes and what goes stay apart.
    offset = 0.16
    start, end = edge.source + offset, edge.target - offset
    points = [(centre + side * _RADIUS * 0.9, start), (x, start), (x, end), (centre + side * _RADIUS * 1.1, end)]
    _arrow(axes, points, edge)


def _arrow(axes: Axes, points: Sequence[tuple[float, float]], edge: Edge) -> None:
    codes = [Outline.MOVETO, *[Outline.LINETO] * (len(points) - 1)]
    axes.add_patch(
        FancyArrowPatch(
            path=Outline(np.array(points), codes),
            arrowstyle="<|-|>,head_length=2.2,head_width=1.3" if edge.both else "-|>,head_length=2.2,head_width=1.3",
            linewidth=edge.width,
            linestyle=(0, (2.2, 1.4)) if edge.dashed else "-",
            color=edge.colour,
            joinstyle="round",
            capstyle="butt",
            shrinkA=0,
            shrinkB=0,
            clip_on=False,
        )
    )


def _node(axes: Axes, x: float, row: int, *, decided: bool) -> None:
    """A dot, or the pill of a branch decision. The axes are not square: widths are inches, heights lines."""
    if decided:
        wide, high = 4.4 * _RADIUS, 2.2 * _RADIUS / ROW
        box = FancyBboxPatch(
            (x - wide / 2, row - high / 2),
            wide,
            high,
            boxstyle=f"round,pad=0,rounding_size={_RADIUS}",
            mutation_aspect=1 / ROW,
            facecolor="white",
            edgecolor=BLUE,
            linewidth=1.0,
            zorder=3,
            clip_on=False,
        )
        axes.add_patch(box)
    else:
        axes.plot([x], [row], marker="o", markersize=_RADIUS * 2 * 72, color=BLACK, zorder=3, clip_on=False)


def faint_rows(axes: Axes, count: int, width: float) -> None:
    """Thin lines between the rows, to lead the eye."""
    for row in range(1, count):
        axes.plot([0, width], [row - 0.5] * 2, color=LIGHT, linewidth=0.3, zorder=2)
