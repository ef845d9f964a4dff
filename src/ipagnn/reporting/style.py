"""One look for all figures: colours that everybody can distinguish, and line styles that differ in grey print."""

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import matplotlib as mpl
from matplotlib.figure import Figure

from ipagnn._common.files import PICTURES

# The palette of Okabe and Ito, which people with any colour vision can distinguish.
BLACK: Final = "#000000"
ORANGE: Final = "#E69F00"
SKY: Final = "#56B4E9"
GREEN: Final = "#009E73"
BLUE: Final = "#0072B2"
VERMILION: Final = "#D55E00"
PURPLE: Final = "#CC79A7"
GREY: Final = "#767676"
LIGHT: Final = "#D9D9D9"

FORMATS: Final = tuple(ending.removeprefix(".") for ending in PICTURES)
MONOSPACE: Final = "DejaVu Sans Mono"
MATHS: Final = "DejaVu Sans"
PNG_DPI: Final = 200

_SETTINGS: Final[dict[str, Any]] = {
    "font.family": MATHS,
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # letters stay letters, to be searched and edited
    "svg.fonttype": "path",  # looks the same where the font is missing
    "svg.hashsalt": "ipagnn",  # the same picture is the same file
}


@dataclass(frozen=True, slots=True)
class LineLook:
    """How a model is drawn. No two share a colour, a marker or a dash pattern with a model of the same lightness."""

    colour: str
    marker: str
    dashes: Any


LOOKS: Final[dict[str, LineLook]] = {
    "env-ipa-gnn": LineLook("#882255", "p", (0, (8, 1.5))),
    "ipa-gnn": LineLook(BLUE, "o", "-"),
    "trace-rnn": LineLook(BLACK, "s", (0, (1, 1))),
    "no-execute": LineLook(GREEN, "^", (0, (5, 1.5))),
    "line-rnn": LineLook(VERMILION, "D", (0, (4, 1, 1, 1))),
    "no-control": LineLook(ORANGE, "v", (0, (2.5, 1))),
    "ggnn": LineLook(PURPLE, "X", (0, (4, 1, 1, 1, 1, 1))),
    "hard-ip-rnn": LineLook(SKY, "P", (0, (6, 2, 2, 2))),
    "r-gat": LineLook(GREY, "*", (0, (1, 2))),
}
_OTHER_LOOKS: Final = (
    LineLook("#332288", "h", (0, (3, 3))),
    LineLook("#999933", "<", (0, (8, 1.5, 1, 1.5))),
    LineLook("#661100", ">", (0, (5, 3, 1, 3))),
)
"""For models from outside the package, in the order in which they are drawn."""


def line_looks(models: Iterable[str]) -> dict[str, LineLook]:
    """How to draw each of some models; the models of the package always look the same."""
    names = list(dict.fromkeys(models))
    others = (name for name in names if name not in LOOKS)
    spare = {name: _OTHER_LOOKS[i % len(_OTHER_LOOKS)] for i, name in enumerate(others)}
    return {name: LOOKS.get(name) or spare[name] for name in names}


@contextmanager
def style() -> Iterator[None]:
    """The settings of all figures, for the block alone."""
    with mpl.rc_context(cast(Any, _SETTINGS)):
        yield


def figure_bytes(figure: Figure, kind: str = "svg") -> bytes:
    """A figure as the bytes of a PDF, SVG or PNG file; the same figure gives the same bytes."""
    metadata = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}[kind]
    buffer = io.BytesIO()
    with style():
        figure.savefig(buffer, format=kind, dpi=PNG_DPI, metadata=metadata)
    return buffer.getvalue()


def save(figure: Figure, path: Path | str) -> Path:
    """Write a figure as PDF, SVG or PNG, as the name ends.

    Raises:
        ValueError: It ends otherwise.
    """
    path = Path(path)
    kind = path.suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise ValueError(f"The figure is to be written to {path}; its name must end in .pdf, .svg or .png.")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(figure_bytes(figure, kind))
    return path
