"""The page as tests see it: opened, written in, and looked at in several windows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

PICTURES = Path(__file__).parents[2] / "out" / "page"
"""Screenshots stay here to be looked at."""
LOOP = "v0 = 7\nv1 = 3\nwhile v1 > 0:\n  v1 -= 1\n  v0 *= 2"
Open = Callable[..., Any]

LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "420": {"viewport": {"width": 420, "height": 860}},
}


def ready(page: Any, state: str = "ready") -> None:
    page.wait_for_selector(f"body[data-state={state}]")


def write(page: Any, source: str, state: str = "ready") -> None:
    page.locator("textarea").fill(source)
    page.wait_for_selector("body:not([data-state=ready])", state="attached")
    ready(page, state)


def picture(page: Any, name: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png", full_page=True)


def fits(page: Any) -> bool:
    """Whether the page itself does not scroll sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))
