"""What tests of several rooms share."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Shells have what they run in the background ignore Ctrl-C, and processes that tests interrupt would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

REFERENCE = Path(__file__).parents[1] / "../shared/reference/full_records.json"


@pytest.fixture(scope="session")
def reference_records() -> list[dict[str, Any]]:
    """50 records of the authors' release; they lie beside the repository, not in it."""
    if not REFERENCE.exists():
        pytest.skip(f"{REFERENCE} is not there")
    records: list[dict[str, Any]] = json.loads(REFERENCE.read_text())
    return records


@st.composite
def _sources(draw: st.DrawFn) -> str:
    numbers = st.integers(0, 9) | st.integers(0, 999)
    variables = st.integers(0, 3)
    lines = [f"v{k} = {draw(numbers)}" for k in range(4)]

    def block(depth: int, in_loop: bool) -> None:
        for _ in range(draw(st.integers(1, 3))):
            kinds = ["arithmetic", "pass", *["if", "if-else", "while", "repeat"] * (depth < 3)]
            kind = draw(st.sampled_from(kinds + ["break", "continue"] * in_loop))
            indent = "  " * depth
            modulo = draw(st.sampled_from(["", " % 10"]))
            test = f"v{draw(variables)}{modulo} {draw(st.sampled_from(['>', '<', '>=', '<=']))} {draw(numbers)}:"
            if kind == "arithmetic":
                operator = draw(st.sampled_from(["=", "+=", "-=", "*="]))
                lines.append(f"{indent}v{draw(variables)} {operator} {draw(numbers)}")
            elif kind == "repeat":
                counter = draw(variables)
                lines.extend([f"{indent}v{counter} = {draw(st.integers(0, 9))}", f"{indent}while v{counter} > 0:"])
                lines.append(f"{indent}  v{counter} -= 1")
                block(depth + 1, True)
            elif kind in ("if", "if-else", "while"):
                lines.append(f"{indent}{kind.removesuffix('-else')} {test}")
                block(depth + 1, in_loop or kind == "while")
                if kind == "if-else":
                    lines.append(f"{indent}else:")
                    block(depth + 1, in_loop)
            else:
                lines.append(indent + kind)

    if draw(st.booleans()):  # three rounds from the same start, so that inner loops meet states they know
        lines += ["v9 = 3", "while v9 > 0:", "  v9 -= 1", *(f"  v{k} = {draw(numbers)}" for k in range(1, 4))]
        block(1, True)
    else:
        block(0, False)
    return "\n".join(lines)


@pytest.fixture(scope="session")
def sources() -> st.SearchStrategy[str]:
    """Programs as text: any shape the language has, with loops that end, loops that do not, and dead code."""
    return _sources()
