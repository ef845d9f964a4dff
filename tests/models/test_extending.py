"""The code in docs/extending.md and docs/models.md works as it stands."""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.models import MODELS, ProgramModel, build_model, load_model, save_model

DOCS = Path(__file__).parents[2] / "docs"


def code_of(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def run(name: str, code: str, folder: Path) -> ModuleType:
    """Import `code` as a module."""
    (folder / f"{name}.py").write_text(code)
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def ninth(tmp_path: Path) -> Iterator[ProgramModel]:
    """The model of the page, registered for the length of a test."""
    model_code, use = code_of("extending.md")
    assert len(model_code.splitlines()) < 60
    known = set(MODELS)
    try:
        run("bag_of_lines", model_code, tmp_path)
        yield run("bag_of_lines_use", use, tmp_path).model
    finally:
        for name in set(MODELS) - known:
            del MODELS[name]


def test_the_ninth_model_is_a_model_like_the_others(ninth: ProgramModel, short: ProgramTable, tmp_path: Path) -> None:
    assert type(ninth).__name__ == "BagOfLines"
    batch = ninth.collate(short)
    logits = ninth(batch).logits
    assert logits.shape == (len(short), 1000)
    torch.nn.functional.cross_entropy(logits, batch.target).backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in ninth.parameters())
    one = ninth(ninth.collate(short.slice(3, 4))).logits
    torch.testing.assert_close(one[0], logits[3])
    save_model(ninth, tmp_path / "ninth.safetensors")
    torch.testing.assert_close(load_model(tmp_path / "ninth.safetensors")(batch).logits, logits)
    assert build_model("bag-of-lines", hidden=8).config.hidden == 8


def test_the_page_left_nothing_behind() -> None:
    assert "bag-of-lines" not in MODELS


def test_the_page_of_models_runs(tmp_path: Path) -> None:
    (code,) = code_of("models.md")
    output = run("models_page", code, tmp_path).output
    assert output.logits.shape == (1, 1000)
    assert output["pointer"].shape == (5, 4)
    assert output["branch"].shape == (4, 4)
