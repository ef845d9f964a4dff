import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ipagnn.cli import demo as demo_commands
from ipagnn.languages.arithmetic import Grammar
from ipagnn.languages.arithmetic.automata import true_automaton
from ipagnn.languages.arithmetic.card import LARGE_NUMBERS
from ipagnn.models import build_model, save_model
from ipagnn.training import RunFolder, TrainConfig, preset

SHORT, FEW = (5, 6), 8


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of a few steps, and few test programs."""

    def small(name: Any, model: str) -> TrainConfig:
        smoke = preset(name, model)
        if name == "environment":
            stages = tuple(replace(stage, steps=2, batch_size=8, until=0.0) for stage in smoke.stages[:2])
            size = smoke.model.replace(hidden=4, width=4)
            return smoke.replace(model=size, stages=stages, warmup=0, validation_count=20, log_every=1)
        return smoke.replace(
            model=smoke.model.replace(hidden=2), examples=64, validation_count=20, validation_every=32, log_every=1
        )

    monkeypatch.setattr("ipagnn.training.preset", small)
    monkeypatch.setattr(demo_commands, "LENGTHS", SHORT)
    monkeypatch.setattr(demo_commands, "COUNT", FEW)
    monkeypatch.setattr(demo_commands, "PAPER_COUNT", 1)


def cells(out: str, model: str) -> list[str]:
    line = next(line for line in out.splitlines() if model in line)
    return [cell.strip() for cell in line.strip("│").split("│")]


@pytest.mark.usefixtures("tiny")
def test_the_demo_trains_tests_and_tells_and_does_nothing_twice(run: Any, tmp_path: Path) -> None:
    code, out, err = run("demo", tmp_path, "--preset", "smoke", "--seeds", 2)
    assert code == 0, err
    assert err.count("Training ") == 6
    for model, title in (("ipa-gnn", "IPA-GNN"), ("line-rnn", "Line-by-Line RNN"), ("ggnn", "GGNN")):
        answer = [json.loads((tmp_path / f"{model}-{seed}" / "evaluation.json").read_text()) for seed in (0, 1)]
        assert [summary["set"]["count"] for summary in answer] == [len(SHORT) * FEW] * 2
        results = [RunFolder(tmp_path / f"{model}-{seed}").result() for seed in (0, 1)]
        own = [result.accuracy for result in results if result is not None]
        row = cells(out, title)
        assert row[0] == f"{title}, 2 runs"
        assert row[1] == f"{50 * sum(own):.1f}"
        for cell, length in zip(row[2:], SHORT, strict=False):
            mean = sum(summary["by_length"][str(length)]["accuracy"] for summary in answer) / 2
            assert cell.startswith(f"{100 * mean:.1f} ± ")
        assert row[-1] == f"{50 * sum(summary['overall']['accuracy'] for summary in answer):.1f}"
    assert "It was trained on values of at most" in out
    assert (tmp_path / "accuracy.svg").read_text().startswith("<?xml")
    assert "GGNN" in (tmp_path / "report.html").read_text()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*.json*")}
    again = run("demo", tmp_path, "--preset", "smoke", "--seeds", 2)
    assert (again.code, again.out, again.err) == (0, out, "")
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*.json*")} == before


def test_a_program_with_large_numbers_is_last(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model(
        "env-ipa-gnn", hidden=4, width=4, states=3, widths=(1, 3), target_digits=5, grammar=Grammar(modulus=10**18)
    )
    assert model.trained_digits == 3
    save_model(model, tmp_path / "digits.safetensors", task="full")
    demo_commands._print_numbers(str(tmp_path / "digits.safetensors"))
    out = capsys.readouterr().out
    assert LARGE_NUMBERS in out
    assert "digits.safetensors says " in out
    assert "the true result is 978925137887232: not right" in out  # its weights are drawn at random
    assert out.endswith("It was trained on values of at most 3 digits\n")
    monkeypatch.setattr(type(model), "automata", lambda _, all_of_them: [true_automaton(*each) for each in all_of_them])
    save_model(model, tmp_path / "exact.safetensors", task="full")
    demo_commands._print_numbers(str(tmp_path / "exact.safetensors"))
    assert "says 978925137887232, the true result is 978925137887232: right" in capsys.readouterr().out


@pytest.mark.usefixtures("tiny")
def test_the_demo_refuses_runs_with_other_settings(run: Any, tmp_path: Path, is_sentence: Any) -> None:
    run("train", tmp_path / "ipa-gnn-0", "--preset", "smoke", "--set", "data.examples=320", "--time-limit", "0.001s")
    code, _, err = run("demo", tmp_path, "--preset", "smoke")
    assert code == 2
    assert is_sentence(err.splitlines(keepends=True)[-1])
    assert "other settings" in err


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
def test_the_environment_model_stands_beside_packaged_ones_on_the_same_programs(run: Any, tmp_path: Path) -> None:
    code, out, err = run("demo", tmp_path)
    assert code == 0, err
    kept = [json.loads((tmp_path / f"{name}.json").read_text()) for name in demo_commands.COMPARED]
    own = json.loads((tmp_path / "env-ipa-gnn-0" / "evaluation.json").read_text())
    assert [summary["set"] for summary in kept] == [own["set"]] * 2
    assert own["set"]["lengths"] == list(range(20, 101, 10))
    row = cells(out, "GGNN")
    assert row[-2:] == [f"{100 * kept[1]['overall']['accuracy']:.1f}", "16.0"]
    assert cells(out, "Environment")[-2:] == [f"{100 * own['overall']['accuracy']:.1f}", "–"]
    again = run("demo", tmp_path)
    assert (again.code, again.out, again.err) == (0, out, "")
