"""Accuracy by length of program and number of digits, as a heat map for each model."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from ipagnn.evaluation.generalisation import Generalisation
from ipagnn.reporting.style import VERMILION, style

_WIDTH: Final = 5.6
_ROW: Final = 0.3
"""Inches of a row of cells."""
_AROUND: Final = 1.1
"""Inches above and below them."""
_DARK: Final = 0.6


def generalisation_figure(found: Sequence[Generalisation]) -> Figure:
    """A heat map for each model, one below the other; a frame is around what training saw.

    Args:
        found: What was measured, one for each model.
    """
    heights = [_ROW * len(each.digits) + _AROUND for each in found]
    with style():
        figure = Figure(figsize=(_WIDTH, sum(heights)), layout="constrained")
        axes = figure.subplots(len(found), 1, squeeze=False, height_ratios=heights)[:, 0]
        images = [_draw(panel, each) for panel, each in zip(axes, found, strict=True)]
        figure.colorbar(images[0], ax=list(axes), label="right results, %", shrink=0.9)
    return figure


def _draw(axes: Axes, found: Generalisation) -> AxesImage:
    image = axes.imshow(100 * found.accuracy, origin="lower", aspect="auto", vmin=0, vmax=100, cmap="viridis")
    axes.set_xticks(range(len(found.lengths)), [f"{length:,}" for length in found.lengths])
    axes.set_yticks(range(len(found.digits)), [str(digits) for digits in found.digits])
    axes.set_xlabel("lines of the program")
    axes.set_ylabel("digits")
    for (i, j), share in np.ndenumerate(found.accuracy):
        shown = f"{100 * share:.1f}".replace("100.0", "100")
        axes.text(j, i, shown, ha="center", va="center", fontsize=7, color="black" if share > _DARK else "white")
    seen = ""
    if found.trained_digits is not None:
        rows = sum(digits <= found.trained_digits for digits in found.digits)
        lines = found.trained_lines
        columns = len(found.lengths) if lines is None else sum(length <= lines for length in found.lengths)
        frame = Rectangle((-0.5, -0.5), columns, rows, fill=False, edgecolor=VERMILION, linewidth=2.5, clip_on=False)
        axes.add_patch(frame)
        most = "" if lines is None else f"{lines} lines and "
        seen = f"; frame: trained on at most {most}{found.trained_digits} digits"
    axes.set_title(f"{found.name}\n{found.programs:,} programs per cell{seen}", loc="left")
    return image
