"""The script that draws the reliability diagram: its programs, its table and its figure."""

from pathlib import Path
from random import Random
from types import ModuleType

import numpy as np
import pytest

from ipagnn.evaluation.summary import calibration
from ipagnn.languages.arithmetic import parse, value
from ipagnn.languages.arithmetic.membership import outside_grammar
from ipagnn.reporting.style import save

from ..modules import EXPERIMENTS, load


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load(EXPERIMENTS / "calibration.py")


def test_programs_of_any_form_are_programs_and_most_lie_outside(script: ModuleType) -> None:
    random = Random(1)
    programs = [parse("\n".join(script.any_lines(random, length))) for length in (2, 5, 20, 60) for _ in range(25)]
    assert [len(program) for program in programs] == [length for length in (2, 5, 20, 60) for _ in range(25)]
    outside = [bool(outside_grammar(program)) for program in programs]
    assert 0 < sum(outside[:50]) < 25
    assert sum(outside[50:]) > 40


def test_what_is_masked_is_a_statement_of_the_language(script: ModuleType) -> None:
    source = "v0 = 7\nif v0 % 10 > 50:\n  v0 *= 3\nv0 += 99"
    for seed in range(5):
        assert list(script.masked(source, "partial", Random(seed))) == [
            (source.replace("v0 *= 3", "[MASK]"), value(parse(source)))
        ]
    assert list(script.masked(source, "full", Random(0))) == [(source, 106)]
    assert list(script.masked("v0 = 7\nv0 += 99", "partial", Random(0))) == []
    assert list(script.masked("v0 = 7\nwhile v0 > 0:\n  v0 = 1", "full", Random(0))) == [
        ("v0 = 7\nwhile v0 > 0:\n  v0 = 1", None)
    ]


@pytest.mark.slow
def test_the_default_model_is_right_where_it_has_no_warning(script: ModuleType) -> None:
    found = script.measure("full", 15)
    for kind, answers in found.items():
        assert answers.right[~answers.warned].all()
        assert answers.warned.any() == (kind not in script.INSIDE)
        if kind not in script.INSIDE:
            assert answers.right[answers.warned].mean() < 0.6
        without = ~answers.warned
        assert calibration(answers.confidence[without], answers.right[without])["ece"] < 0.02


def test_table_and_figure(script: ModuleType, tmp_path: Path) -> None:
    half = np.arange(10) % 2 == 0
    answers = script.Answers(np.where(half, 0.9, 0.4), half, half)
    found = {**dict.fromkeys(script.INSIDE, answers), "any form": answers}
    table = list(script.rows("full", found))
    assert table[0] == "| full | test set | no warning | 5 | 0.0 | 40.0 | 0.400 |"
    assert table[-1] == "| full | any form | with a warning | 5 | 100.0 | 90.0 | 0.100 |"
    save(script.draw({"full": found, "partial": found}), tmp_path / "a.svg")
    assert (tmp_path / "a.svg").stat().st_size > 1_000
