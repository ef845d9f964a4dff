"""The code in docs/own-graphs.md trains a model."""

import re
import runpy
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "own-graphs.md"


def test_the_page_trains_a_model(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert sum(1 for line in code.splitlines() if line.strip()) <= 50
    (tmp_path / "page.py").write_text(code)
    assert runpy.run_path(str(tmp_path / "page.py"))["accuracy"] == 1.0
