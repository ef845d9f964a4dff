"""The code in docs/extending.md and docs/models.md works as it stands."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

import ipagnn
from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.models import MODELS, ProgramModel, build_model, load_model, register_file, save_model

from ..modules import load

DOCS = Path(__file__).parents[2] / "docs"


def code_of(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def run(name: str, code: str, folder: Path) -> ModuleType:
    """Import `code` as a module."""
    path = folder / f"{name}.py"
    path.write_text(code)
    return load(path)


@pytest.fixture
def ninth(tmp_path: Path) -> Iterator[ProgramModel]:
    """The model of the page, registered for the length of a test."""
    model_code, use, *_ = code_of("extending.md")
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
    output = ninth(batch, record=("attention",))
    logits = output.logits
    assert logits.shape == (len(short), 1000)
    of_program = torch.repeat_interleave(batch.line_offsets.diff())
    attention = torch.zeros(len(short)).index_add(0, of_program, output["attention"])
    torch.testing.assert_close(attention, torch.ones(len(short)))
    torch.nn.functional.cross_entropy(logits, batch.target).backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in ninth.parameters())
    one = ninth(ninth.collate(short.slice(3, 4))).logits
    torch.testing.assert_close(one[0], logits[3])
    save_model(ninth, tmp_path / "ninth.safetensors")
    torch.testing.assert_close(load_model(tmp_path / "ninth.safetensors")(batch).logits, logits)
    assert build_model("bag-of-lines", hidden=8).config.hidden == 8


@pytest.mark.slow
def test_the_ninth_model_trains_evaluates_reports_and_is_drawn_by_the_commands_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "bag_of_lines.py").write_text(code_of("extending.md")[0])
    (commands,) = re.findall(r"```sh\n(ipagnn train runs/bag .*?)```", (DOCS / "extending.md").read_text(), re.DOTALL)
    environment = os.environ | {"PYTHONPATH": str(Path(ipagnn.__file__).parents[1])}
    printed = ""
    for command in commands.strip().splitlines():
        piped = command.replace("ipagnn ", f"{sys.executable} -m ipagnn ")
        done = subprocess.run(
            ["sh", "-c", piped], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (command, done.stderr)
        printed += done.stdout
    report = json.loads((tmp_path / "report.json").read_text())
    assert "Bag of lines" in (tmp_path / "report.html").read_text()
    assert "temperature 0.5" in json.dumps(report)
    assert "Bag of lines" in (tmp_path / "accuracy.svg").read_text()
    assert "attention" in printed


def test_a_file_without_a_model_is_refused_and_a_class_is_found_by_name(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("x = 1\n")
    for place, sentence in (("none.py", "There is no file"), ("empty.py", "registers no model")):
        with pytest.raises(ValueError, match=sentence):
            register_file(tmp_path / place)
    known = set(MODELS)
    try:
        (tmp_path / "bag_twice.py").write_text(code_of("extending.md")[0].replace("bag-of-lines", "bag-twice"))
        with pytest.raises(ValueError, match="no model class 'Bag'; it has BagOfLines"):
            register_file(f"{tmp_path / 'bag_twice.py'}:Bag")
        assert register_file(f"{tmp_path / 'bag_twice.py'}:BagOfLines") == ["bag-twice"]
        assert build_model("bag-twice", hidden=8, temperature=2.0).config.to_dict()["temperature"] == 2.0
    finally:
        for name in set(MODELS) - known:
            del MODELS[name]


def test_an_installed_package_offers_a_model_by_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bag_offered.py").write_text(code_of("extending.md")[0].replace("bag-of-lines", "bag-offered"))
    about = tmp_path / "bag_offered-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: bag-offered\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[ipagnn.models]\nbag-offered = bag_offered:BagOfLines\n")
    monkeypatch.syspath_prepend(tmp_path)
    known = set(MODELS)
    try:
        assert type(build_model("bag-offered", hidden=8)).__name__ == "BagOfLines"
    finally:
        for name in set(MODELS) - known:
            del MODELS[name]
        sys.modules.pop("bag_offered", None)


def test_the_page_left_nothing_behind() -> None:
    assert "bag-of-lines" not in MODELS


def test_the_page_of_models_runs(tmp_path: Path) -> None:
    (code,) = code_of("models.md")
    output = run("models_page", code, tmp_path).output
    assert output.logits.shape == (1, 1000)
    assert output["pointer"].shape == (5, 4)
    assert output["branch"].shape == (4, 4)


def test_a_weight_has_one_name() -> None:
    class Twice(MODELS["line-rnn"]):  # type: ignore[misc]
        def build(self, generator: torch.Generator) -> None:
            super().build(generator)
            self.again = self.cell

    with pytest.raises(ValueError, match=r"Twice has one weight under two names, one of them 'again\.bias_1'"):
        Twice(hidden=4)
