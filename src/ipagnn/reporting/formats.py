"""Numbers as text, the same on the page, in Markdown and on model cards."""

from collections.abc import Callable
from typing import Any, Final

Format = Callable[[Any], str]


def percent(value: float) -> str:
    """A share in per cent."""
    return f"{100 * value:.1f}"


def points(value: float) -> str:
    """A difference of shares in percentage points."""
    return f"{100 * value:+.1f}"


def whole(value: float) -> str:
    """A number without decimals."""
    return f"{value:,.0f}"


def three(value: float) -> str:
    """A number with three decimals."""
    return f"{value:.3f}"


def programs(count: float) -> str:
    """A number of programs, in millions from one million on."""
    return whole(count) if count < 1_000_000 else f"{count / 1e6:.1f} M"


def duration(seconds: float) -> str:
    """A time in seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def digits(value: float) -> str:
    """A number as it is."""
    return str(value)


def plain(value: object) -> str:
    """Words as they are."""
    return str(value)


FORMATS: Final[dict[str, Format]] = {
    form.__name__: form for form in (percent, points, whole, three, programs, duration, digits, plain)
}
"""Formats by name."""
