"""Accuracy by length and number of digits: what is counted, which frame is drawn, and the command."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from ipagnn.evaluation.generalisation import Generalisation, generalisation_of, measure_generalisation
from ipagnn.languages.arithmetic import Grammar
from ipagnn.languages.arithmetic.automata import Automaton, Statement, true_automaton
from ipagnn.languages.arithmetic.vocabulary import ADD
from ipagnn.models import EnvIPAGNN, build_model, save_model
from ipagnn.reporting.figure_generalisation import generalisation_figure


class Short(EnvIPAGNN):
    """A model whose automata are the true ones, but for a carry that addition loses at the second place."""

    name = "short"

    def automata(self, statements: Iterable[Statement]) -> list[Automaton]:
        found = []
        for operation, operand in statements:
            true = true_automaton(operation, operand)
            if operation == ADD:
                goes = true.goes.copy()
                goes[1:] = 1  # no carry goes further
                true = Automaton(operation, operand, true.gives, goes, true.stops)
            found.append(true)
        return found


def test_cells_are_the_programs_of_their_length_and_digits() -> None:
    grammar = Grammar(modulus=10**18, initial_values=(90, 99), arithmetic_operations=("+=",), counters=0)
    model = Short(hidden=3, width=2, states=2, widths=(1, 3), values="digits", grammar=grammar).eval()
    found = measure_generalisation(model, "short", (3, 30), (1, 2, 6), 40, trained_lines=2)
    assert (found.lengths, found.digits, found.trained_digits) == ([2, 3, 30], (1, 2, 6), 3)
    assert (found.accuracy[:2] == 1).all()  # the carry that is lost is beyond the second place
    assert found.accuracy[2, 2] < 0.2 < found.accuracy[2, 1] < 1
    [axes, _] = generalisation_figure([found]).axes
    [frame] = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert (frame.get_width(), frame.get_height()) == (1, 2)  # 2 lines; 1 and 2 digits
    assert [text.get_text() for text in axes.texts][:3] == ["100", "100", "100"]
    assert "trained on at most 2 lines and 3 digits" in axes.get_title(loc="left")
    with pytest.raises(ValueError, match="the number of digits is a choice for models whose values are digits"):
        measure_generalisation(EnvIPAGNN(hidden=3, width=2), "classes", (3,), (3,), 2)


def test_an_evaluation_is_one_row() -> None:
    rows = {"20": {"accuracy": 0.5, "count": 10}, "100": {"accuracy": 0.25, "count": 8}}
    found = generalisation_of({"by_length": rows}, "ipa-gnn", 1_000)
    assert (found.lengths, found.digits, found.accuracy.tolist(), found.programs) == ([20, 100], [3], [[0.5, 0.25]], 8)
    both = Generalisation("digits", (10,), (3, 18), np.array([[1.0], [0.9]]), 200, None, 5)
    figure = generalisation_figure([both, found])
    first, second, _ = figure.axes
    assert [text.get_text() for text in first.texts] == ["100", "90.0"]
    assert (len(first.patches), len(second.patches)) == (1, 0)


def test_the_command_draws_models_and_records(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipagnn.evaluation.generalisation.LENGTHS", (4,))
    monkeypatch.setattr("ipagnn.evaluation.generalisation.DIGITS", (3, 18))
    grammar = Grammar(modulus=10**18, counters=0)
    model = build_model("env-ipa-gnn", hidden=4, width=4, states=3, grammar=grammar)
    save_model(model, tmp_path / "digits.safetensors", task="full")
    record = Path(__file__).parents[2] / "records" / "2026-11-16-ipa-gnn-full-steps-muon"
    out = tmp_path / "map.svg"
    files = "--model", tmp_path / "digits.safetensors", "--model", record
    result = run("figure", "generalisation", *files, "--count", 3, "--out", out)
    assert result.code == 0, result.err
    assert out.stat().st_size > 5_000
    refused = run("figure", "generalisation")
    assert "name them with --model" in refused.err
