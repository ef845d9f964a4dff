"""The scripts that say what models get right, and what one of them cannot know."""

from pathlib import Path
from random import Random

import pytest

from ipagnn.languages.arithmetic import PAPER, Grammar, format_program, parse, trace, value
from ipagnn.models import build_model, save_model

from ..modules import EXPERIMENTS, load

constructs, arms = load(EXPERIMENTS / "constructs.py"), load(EXPERIMENTS / "arms.py")


@pytest.mark.parametrize("name", constructs.CONSTRUCTS)
def test_programs_of_a_construct_are_what_it_says(name: str) -> None:
    table = constructs.draw(name, 20)
    for program, target in zip(table, table.target, strict=True):
        text = format_program(program)
        assert target == value(program)
        assert ("else" in text) == ("else" in name)
        assert ("if" in text) == ("if" in name)
        assert ("while" in text) == ("loop" in name)
        assert "*=" not in text or "lines of += and -=" not in name
        if "lines of" in name:
            assert len(program) == int(name.split()[0])
        if name.startswith("loop, "):
            lines = text.splitlines()
            rounds = sum("while" in lines[step.line] for step in trace(program)) - 1
            assert rounds == int(name.split()[1])


def test_programs_of_a_construct_are_the_same_every_time_and_differ_from_each_other() -> None:
    first, again = (constructs.draw("if and else", 50) for _ in range(2))
    assert list(first) == list(again)
    assert len(set(first)) > 40


def test_a_language_with_other_numbers_has_its_own_constructs() -> None:
    small = Grammar(modulus=10, initial_values=(0, 9), operands=(1, 3), loop_counts=(2, 5), counters=3)
    assert constructs.draw("10 lines of +=, -= and *=", 30, small).target.max() < 10


def test_the_table_has_a_row_a_construct_and_a_column_a_model(tmp_path: Path) -> None:
    for seed, name in enumerate(("a", "b")):
        model = build_model("line-rnn", hidden=8, grammar=PAPER, seed=seed)
        save_model(model, tmp_path / f"{name}.safetensors")
    rows = constructs.table([str(tmp_path / "a.safetensors"), str(tmp_path / "b.safetensors")], 4).splitlines()
    assert len(rows) == 2 + len(constructs.CONSTRUCTS)
    assert {row.count("|") for row in rows} == {4}


@pytest.mark.parametrize(
    ("source", "share"),
    [
        ("v0 = 3\nv0 += 4", 1.0),
        ("v0 = 3\nif v0 % 10 < 5:\n  v0 += 4", 1.0),  # no else: the body is the arm that is taken
        ("v0 = 3\nif v0 % 10 < 5:\n  v0 += 4\nelse:\n  v0 += 5", 0.5),
        ("v0 = 3\nif v0 % 10 < 5:\n  v0 += 4\nelse:\n  v0 += 4", 1.0),
        (  # 3 to 7 or 8; then, by the inner arms, 10 or 11 from 7, 18 from 8
            "v0 = 3\nif v0 % 10 < 5:\n  v0 += 4\n  if v0 % 10 > 2:\n    v0 += 3\n  else:\n    v0 += 4\n"
            "else:\n  v0 += 5\n  v0 += 10",
            0.5,
        ),
        (  # 3 to 4 or 5, then to 6, 7 or 7, 8
            "v0 = 3\nif v0 % 10 < 5:\n  v0 += 1\nelse:\n  v0 += 2\nif v0 % 10 < 9:\n  v0 += 2\nelse:\n  v0 += 3",
            0.5,
        ),
    ],
)
def test_the_best_guess_without_knowing_the_arms(source: str, share: float) -> None:
    assert arms.best_guess(parse(source), Random(0)) == share


def test_conditions_that_have_an_else_are_found() -> None:
    source = """v0 = 1
if v0 % 10 < 5:
  if v0 % 10 > 3:
    v0 += 1
  v0 += 2
else:
  v0 += 3
if v0 % 10 >= 5:
  v0 += 1
v0 += 1
if v0 % 10 <= 5:
  v0 += 1
else:
  v0 += 3"""
    assert arms.conditions(source.splitlines()) == [1, 10]
    assert arms.negate("  if v0 % 10 <= 5:") == "  if v0 % 10 > 5:"
