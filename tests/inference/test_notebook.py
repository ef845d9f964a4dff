"""The notebook in docs/, run from top to bottom."""

import json
import warnings
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "tour.ipynb"


def test_the_notebook_is_kept_without_outputs() -> None:
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # Jupyter's own are not ours to mend
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed; `make test-all` brings it")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed; `make test-all` brings it")
    import nbformat

    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        notebook = nbformat.read(NOTEBOOK, as_version=4)
        nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [
        output["data"]["text/html"]
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "text/html" in output.get("data", {})
    ]
    assert len(shown) == 3
    assert "<svg" in shown[1]
    assert "<th>exact</th>" in shown[2]
