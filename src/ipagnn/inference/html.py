"""Predictions and explanations in a notebook: HTML and SVG that need no script and suit light and dark pages."""

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ipagnn.inference.explain import Explanation
    from ipagnn.inference.predict import Prediction

_BLUE, _ORANGE = "#2f7fc1", "#d55e00"
_ROW, _CELL, _LETTER = 16, 9, 7.3  # pixels
_WIDEST = 640
_LONGEST = 28  # letters of a source line that are shown


def prediction_html(prediction: "Prediction") -> str:
    """The likeliest results as a table of bars, and the truth."""
    exact = {c.value: c.probability for c in prediction.truth.exact or ()}
    rows = []
    for candidate in prediction.shown():
        true = candidate.value == prediction.true_value
        share = f"<td>{exact.get(candidate.value, 0.0):.1%}</td>" if exact else ""
        rows.append(
            f"<tr><td><b>{candidate.value}</b>{' ✓' if true else ''}</td><td>{_bar(candidate.probability, true)}</td>"
            f"<td>{candidate.probability:.1%}</td>{share}</tr>"
        )
    head = "<tr><th>result</th><th></th><th>model</th>" + ("<th>exact</th>" if exact else "") + "</tr>"
    warnings = "".join(f"<li>{escape(sentence)}</li>" for sentence in prediction.warnings)
    truth = escape(truth_sentence(prediction))
    return (
        f"<div><div>{escape(prediction.model)} says <b>{prediction.value}</b>; {truth}</div>"
        f"<table>{head}{''.join(rows)}</table><div>Trust: {escape(prediction.trust)}</div>"
        f"{f'<ul>{warnings}</ul>' if warnings else ''}</div>"
    )


def truth_sentence(prediction: "Prediction") -> str:
    """The true result, in words."""
    truth = prediction.truth
    if truth.value is not None:
        return f"the true result is {truth.value}, after {truth.trace_length:,} statements"
    if truth.exact:
        best = truth.exact[0]
        fillings = f"{truth.samples:,} sampled" if truth.samples else "all"
        return f"over {fillings} fillings the likeliest result is {best.value}, with {best.probability:.1%}"
    return f"there is no true result. {truth.why}"


def explanation_html(explanation: "Explanation") -> str:
    """The source beside the pointer's heat map, with dots for the true trace; then the prediction."""
    return f"<div>{_heat_map(explanation)}{prediction_html(explanation.prediction)}</div>"


def _bar(share: float, true: bool) -> str:
    return (
        f'<div style="width:12em;border:1px solid #8884"><div style="width:{max(share, 0.003):.1%};height:0.9em;'
        f'background:{_ORANGE if true else _BLUE}"></div></div>'
    )


def _heat_map(explanation: "Explanation") -> str:
    if explanation.pointer is None:
        return f"<p>{escape(explanation.prediction.model)} has no instruction pointer to show.</p>"
    pointer = explanation.pointer
    lines = [*explanation.prediction.lines, "exit"]
    rows = [*explanation.graph.nodes.tolist(), len(lines) - 1]
    left = 30 + _LETTER * min(max(map(len, lines)), _LONGEST)
    cell = min(_CELL, _WIDEST / len(pointer))
    width, height = left + cell * len(pointer) + 4, _ROW * len(lines) + 18

    def marks() -> Iterator[str]:
        for i, line in enumerate(lines):
            y = _ROW * i + 12
            text = line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
            number = "" if i == len(lines) - 1 else str(i + 1)
            yield f'<text x="18" y="{y}" text-anchor="end" opacity="0.5">{number}</text>'
            yield f'<text x="26" y="{y}" xml:space="preserve">{escape(text)}</text>'
        for t, n in zip(*(a.tolist() for a in np.nonzero(pointer >= 0.005)), strict=True):
            yield (
                f'<rect x="{left + cell * t:.1f}" y="{_ROW * rows[n]}" width="{cell:.2f}" height="{_ROW}" '
                f'fill="{_BLUE}" fill-opacity="{pointer[t, n]:.2f}"><title>step {t}: p = {pointer[t, n]:.3f}</title>'
                "</rect>"
            )
        for t, step in enumerate(explanation.trace or ()):
            yield (
                f'<circle cx="{left + cell * (t + 0.5):.1f}" cy="{_ROW * (step.line + 0.5):.1f}" '
                f'r="{min(2.4, cell / 3):.1f}" fill="{_ORANGE}"/>'
            )
        yield f'<text x="{left}" y="{height - 4}" opacity="0.7">steps 0 to {len(pointer) - 1}'
        yield f"{'; dots: the true trace' if explanation.trace else ''}</text>"

    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" role="img" '
        f'aria-label="Instruction pointer by line and step" font-family="monospace" font-size="12" '
        f'fill="currentColor">{"".join(marks())}</svg>'
    )
