"""The notebook in docs/ and its outputs. After a change that is meant: `python tests/inference/test_notebook.py`."""

import json
import re
import warnings
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "tour.ipynb"
NUMBER = re.compile(r"(?<![a-z])\d+(?:\.\d+)?")


def kept() -> Any:
    """The notebook as it is."""
    return json.loads(NOTEBOOK.read_text())


def executed(folder: Path) -> Any:
    """The same after all its cells have run, from top to bottom, in a fresh process."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed; `make test-all` brings it")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed; `make test-all` brings it")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed; `make test-all` brings it")
    options = {"timeout": 300, "record_timing": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        notebook = nbformat.read(NOTEBOOK, as_version=4)
        nbclient.NotebookClient(notebook, resources={"metadata": {"path": str(folder)}}, **options).execute()
    return json.loads(nbformat.writes(notebook))


def shown(notebook: Any) -> list[str]:
    """What each cell shows: text, or HTML, of which the pixels of heat maps are left out."""
    texts = []
    for cell in notebook["cells"]:
        data = [output.get("data", {}) | output for output in cell.get("outputs", ())]
        text = "".join("".join(each.get("text") or each.get("text/html") or each["text/plain"]) for each in data)
        texts.append(re.sub(r"<rect.*?</rect>", "", text))
    return texts


def test_the_notebook_tells_its_story_in_ten_cells_with_outputs() -> None:
    notebook = kept()
    assert len(notebook["cells"]) == 10
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    for cell in code:
        assert cell["outputs"]
        assert all(each["output_type"] == "execute_result" or each["name"] == "stdout" for each in cell["outputs"])
    [right, nested] = [text for text in shown(notebook) if "<svg" in text]
    assert "Trust: 100.0% of the pointer reached the exit" in right
    assert "known to miscount" in nested
    assert "<th>exact</th>" in "".join(shown(notebook))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # Jupyter's own are not ours to mend
def test_the_notebook_gives_the_outputs_that_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    for ours, theirs in zip_longest(shown(executed(tmp_path)), shown(kept())):
        assert NUMBER.sub("0", ours) == NUMBER.sub("0", theirs)
        numbers = ([float(number) for number in NUMBER.findall(text)] for text in (ours, theirs))
        # Processors round differently, by which one of 20 programs that hang on rounding may be answered otherwise.
        tolerance = 5.1 if "lines:" in theirs else 0.11
        assert next(numbers) == pytest.approx(next(numbers), abs=tolerance)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        NOTEBOOK.write_text(json.dumps(executed(Path(folder)), indent=1, ensure_ascii=False) + "\n")
