"""What the commands that use a model show, on any terminal."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ipagnn.models import available_models, build_model, save_model
from ipagnn.reporting.card import card_accuracy

LOOP = "v0 = 7\nv1 = 3\nwhile v1 > 0:\n  v1 -= 1\n  v0 *= 2\n"


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.safetensors"
    save_model(build_model("ipa-gnn", hidden=8), path)
    return path


def test_models_are_listed_with_task_accuracy_and_size(run: Any) -> None:
    if not available_models():
        pytest.skip("this installation comes without weights")
    answer = [json.loads(line) for line in run("models", "--json").out.splitlines()]
    assert [each["name"] for each in answer] == available_models()
    assert sorted(each["task"] for each in answer if each["default"]) == ["full", "partial"]
    for each in answer:
        assert re.match(r"\d+\.\d% ± ", each["accuracy"]), each
        assert 10_000 < each["parameters"] < each["bytes"]
    shown = run("models").out
    assert all(each["name"] in shown and each["accuracy"].partition(" of ")[0] in shown for each in answer)


def test_accuracy_is_read_from_a_card() -> None:
    card = "# a\n\n- **Accuracy on longer programs**: 48.5% ± 0.7 of 4,500 (D_test); the paper's: 29.1%; more: 67.3%.\n"
    assert card_accuracy(card) == "48.5% ± 0.7 of 4,500 (D_test)"
    assert card_accuracy(card.partition(";")[0] + ".\n") == "48.5% ± 0.7 of 4,500 (D_test)"
    assert card_accuracy("# nothing\n") is None
    both = card + "- **Accuracy on the paper's test set**: 100.0% ± 0.0 of 4,500 (D_test); 6 digits: 99%.\n"
    assert card_accuracy(both) == "100.0% ± 0.0 of 4,500 (D_test)"


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1"])
@pytest.mark.parametrize("command", ["predict", "explain"])
def test_output_in_any_encoding(weights: Path, encoding: str, command: str) -> None:
    def shown(name: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "ipagnn", command, "-", "--model", weights],
            input=LOOP.encode(),
            capture_output=True,
            check=False,
            env=os.environ | {"PYTHONIOENCODING": name},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.decode(name)

    plain, rich = shown(encoding).splitlines(), shown("utf-8").splitlines()
    assert [len(line.rstrip()) for line in plain if "says" in line] == [len(line) for line in rich if "says" in line]
    assert len(plain) == len(rich)
    assert not any("?" in line for line in plain)
    assert any(re.search(r"1 v0 = 7 +#", line) for line in plain) or command == "predict"


@pytest.mark.parametrize("command", ["predict", "explain", "inspect", "models"])
def test_forty_columns_are_enough(weights: Path, tmp_path: Path, run_terminal: Any, command: str) -> None:
    program = tmp_path / "a.py"
    program.write_text(LOOP)
    model = ["--model", weights] if command in ("predict", "explain") else []
    shown = run_terminal(command, *([] if command == "models" else [program]), *model, columns=40)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
    drawn = [line for line in text.splitlines() if re.match(r"^[ 0-9]*[┃│┏└┡]|^[1-5] ", line)]
    assert max(map(len, drawn), default=0) <= 40
    if command == "inspect":
        assert "while v1 > 0:" in text
    if command == "models":
        assert all(name in text for name in available_models())
        marked = re.findall(r"^ *(\S+) \* ", text, re.MULTILINE)
        assert marked == ["env-ipa-gnn-full", "env-ipa-gnn-partial"]
        assert "…" not in text


@pytest.mark.parametrize("command", ["predict", "explain"])
def test_columns_count_without_a_terminal_too(weights: Path, run: Any, monkeypatch: Any, command: str) -> None:
    def widest() -> int:
        shown = run(command, "-", "--model", weights, stdin=LOOP.encode()).out
        return max(len(line) for line in shown.splitlines() if re.match(r"[┃│┏└┡]|[1-5] ", line))

    monkeypatch.delenv("COLUMNS", raising=False)
    assert widest() > 36
    monkeypatch.setenv("COLUMNS", "36")
    assert widest() <= 36
    monkeypatch.setenv("COLUMNS", "")
    assert widest() > 36
