"""The report as one HTML page that opens from disk: no scripts, no network, pictures embedded.

The page is `templates/report.html`. Every number on it is looked up in the document by a path, which the page keeps as
`data-key`. A test compares each of them with the JSON file beside the page.
"""

import base64
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from ipagnn.reporting.formats import FORMATS


def render(document: Mapping[str, Any], pictures: Sequence[tuple[str, bytes]]) -> str:
    """The page.

    Args:
        document: From `build_document`.
        pictures: Caption and SVG of each figure; the first is accuracy by length.
    """
    template = _templates().get_template("report.html")
    # As images: identifiers inside one SVG must not meet those of another.
    images = [(caption, base64.b64encode(svg).decode()) for caption, svg in pictures]
    return template.render(document=document, pictures=images, look_up=look_up, formats=FORMATS, flatten=_flatten)


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("ipagnn.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def look_up(document: Any, key: str) -> Any:
    """The value at a path such as `rows.0.full.ours`; None if there is none."""
    here = document
    for part in key.split("."):
        if isinstance(here, list):
            here = here[int(part)]
        elif isinstance(here, dict):
            here = here.get(part)
        else:
            return None
    return here


def _flatten(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested settings as pairs of a dotted name and a value."""
    pairs: list[tuple[str, Any]] = []
    for key, value in values.items():
        pairs += _flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else [(prefix + key, value)]
    return pairs
