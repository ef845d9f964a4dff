"""Predictions and explanations of models that run over their tables, and the values of variables by step."""

import json
from collections.abc import Callable
from io import StringIO
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from ipagnn import explain, predict
from ipagnn.cli.beliefs_text import MOST_STEPS
from ipagnn.cli.explain_text import print_explanation
from ipagnn.inference.loaded import LoadedModel
from ipagnn.languages.arithmetic import Lengths, Sampler, execute, format_program, parse
from ipagnn.languages.arithmetic.holes import hole_distribution
from ipagnn.languages.arithmetic.interpreter import trace_values
from ipagnn.languages.arithmetic.vocabulary import ADD, MULTIPLY, OPERATION_ID, SUBTRACT
from ipagnn.models import ProgramModel, build_model

Make = Callable[..., ProgramModel]
LOOP = "v0 = 412\nv1 = 2\nwhile v1 > 0:\n  v1 -= 1\n  v0 += 1\n  v0 *= 7\nv0 -= 3"
ENDLESS = "v0 = 0\nv1 = 1\nwhile v1 > 0:\n  v0 += 2"


def test_predictions_are_exact_where_all_facts_are_true(lookup: Make) -> None:
    programs = list(Sampler("full", Lengths.uniform(range(2, 300)), seed=8).table(0, 60))
    answers = predict([format_program(program) for program in programs], lookup())
    for program, answer in zip(programs, answers, strict=True):
        assert answer.value == answer.true_value == execute(program).value
        assert (answer.confidence, answer.exit_mass, answer.steps, answer.warnings) == (1.0, 1.0, None, [])


def test_masked_programs_have_the_exact_distribution(lookup: Make) -> None:
    for source in ("v0 = 5\n[MASK]\nv0 += 2", "v0 = 5\n[MASK]\nv1 = 3\nwhile v1 > 0:\n  v1 -= 1\n  _"):
        answer = predict(source, lookup())
        exact = hole_distribution(parse(source)).probabilities
        assert {value: pytest.approx(p) for value, p in exact.items()} == {
            value: answer.probabilities[value] for value in exact
        }
        assert answer.probabilities.sum() == pytest.approx(1)


def test_more_masks_are_sampled_and_the_error_is_told(lookup: Make) -> None:
    answer = predict("v0 = 5\n_\n_\n_", lookup())
    assert any("the standard error of the answer is" in warning for warning in answer.warnings)


def test_a_budget_brings_back_the_soft_pointer() -> None:
    model = build_model("env-ipa-gnn", hidden=8, width=4)
    unbounded, bounded = predict(LOOP, model), predict(LOOP, model, budget="paper")
    assert unbounded.steps is None
    assert bounded.steps == model.collate([parse(LOOP)]).steps[0]
    assert LoadedModel("x", model, bounded=True).runs_on is None


def test_a_program_that_never_ends_is_reported(lookup: Make) -> None:
    answer = predict(ENDLESS, lookup())
    assert answer.exit_mass == 0
    expected = "The program never ends by what lookup has learned, here at `while v1 > 0:` in line 3."
    assert expected in answer.warnings
    part = predict("v0 = 1\n_\nv1 = 1\nwhile v0 > 5:\n  v1 += 1", lookup())
    assert any(w.startswith("With fillings of ") and w.endswith("in line 4.") for w in part.warnings)
    assert 0 < (part.exit_mass or 0) < 1
    assert explain(ENDLESS, lookup()).visits is None


def test_beliefs_without_a_wrong_fact_are_the_true_values(lookup: Make) -> None:
    explanation = explain(LOOP, lookup())
    beliefs = explanation.beliefs
    assert beliefs is not None
    assert (beliefs.variables, beliefs.parts) == ([0, 1], None)
    assert beliefs.values[:, 0].tolist() == [0, 412, 412, 412, 412, 413, 891, 891, 891, 892, 244, 244, 241]
    assert np.array_equal(beliefs.values, beliefs.true_values)
    assert beliefs.lines.tolist() == [0, 1, 2, 3, 4, 5, 2, 3, 4, 5, 2, 6, -1]
    assert explanation.pointer is not None
    assert explanation.pointer.sum(axis=1).tolist() == [1.0] * 13
    assert (explanation.path_ends, explanation.soft, explanation.shortcuts) == (True, [], [])


def test_a_path_that_is_too_long_to_show_is_not_said_to_miss_the_exit(lookup: Make) -> None:
    deep = "v0 = 1\n"
    for k in range(1, 5):
        indent = "  " * (k - 1)
        deep += f"{indent}v{k} = 9\n{indent}while v{k} > 0:\n{indent}  v{k} -= 1\n"
    explanation = explain(f"{deep}        v0 += 1", lookup())
    assert (explanation.path_ends, explanation.exit_mass) == (None, 1.0)
    assert explanation.prediction.value == (1 + 9**4) % 1000
    console = Console(record=True, width=120, file=StringIO())
    print_explanation(console, explanation, 5)
    assert "Most likely path (more than 1,999 statements)" in console.export_text().replace("\n", " ")
    endless = explain("v0 = 1\nwhile v0 > 0:\n  v0 = 1", lookup())
    assert not endless.path_ends
    assert endless.path_ends is not None


def test_a_wrong_fact_is_where_the_two_part(lookup: Make) -> None:
    explanation = explain(LOOP, lookup((MULTIPLY, 7, 413, 890)))
    beliefs = explanation.beliefs
    assert beliefs is not None
    assert beliefs.parts == 6
    assert beliefs.differs[:, 0].tolist() == [False] * 6 + [True] * 7
    assert not beliefs.differs[:, 1].any()
    assert beliefs.probabilities[6].tolist() == [pytest.approx(0.6), 1.0]
    console = Console(record=True, width=120, file=StringIO())
    print_explanation(console, explanation, 5)
    found = console.export_text()
    assert "890 60% ≠ 891" in found
    assert "After step 6 the value of v0 is not the true one." in found


def test_a_wrong_condition_parts_from_the_trace(lookup: Make) -> None:
    source = "v0 = 3\nif v0 % 10 > 2:\n  v0 += 4\nv0 -= 1"
    beliefs = explain(source, lookup((OPERATION_ID["if > %"], 2, 3, 0))).beliefs
    assert beliefs is not None
    assert beliefs.parts == 2
    assert beliefs.lines.tolist() == [0, 1, 3, -1]
    assert beliefs.true_lines is not None
    assert beliefs.true_lines.tolist() == [0, 1, 2, 3]


def test_long_traces_are_cut_and_say_so(lookup: Make) -> None:
    source = "v0 = 0\nv1 = 999\nwhile v1 > 0:\n  v1 -= 1\n  v0 += 1"
    explanation = explain(source, lookup((ADD, 1, 500, 400)))
    assert explanation.beliefs is not None
    assert explanation.beliefs.parts == 2 + 3 * 501
    console = Console(record=True, width=120, file=StringIO())
    print_explanation(console, explanation, 5)
    found = console.export_text()
    assert "of 2,000 steps are shown." in found or "of 1,999 steps are shown." in found
    assert "400 60% ≠ 501" in found
    assert found.count("\n│") < MOST_STEPS + 10


def test_a_masked_program_is_followed_for_every_filling(lookup: Make) -> None:
    explanation = explain("v0 = 5\n_\nif v0 % 10 > 5:\n  v0 = 1\nv0 -= 1", lookup())
    beliefs = explanation.beliefs
    assert beliefs is not None
    assert (beliefs.true_values, beliefs.true_lines, beliefs.parts) == (None, None, None)
    assert explanation.pointer is not None
    assert explanation.branch is not None
    assert explanation.pointer.sum(axis=1) == pytest.approx(np.ones(len(explanation.pointer)))
    more = sum((5 + k) % 10 > 5 for k in range(1, 10)) + sum((5 - k) % 10 > 5 for k in range(1, 10))
    more += sum(5 * k % 10 > 5 for k in range(1, 10))
    assert explanation.branch[2, 2] == pytest.approx(more / 27)
    assert (beliefs.values[2, 0], beliefs.probabilities[2, 0]) == (10, pytest.approx(2 / 27))  # 5 + 5 and 5 * 2
    json.dumps(explanation.to_dict())


def test_beliefs_of_a_soft_pointer() -> None:
    model = build_model("env-ipa-gnn", hidden=8, width=4)
    explanation = explain(LOOP, model, budget="paper")
    beliefs = explanation.beliefs
    assert beliefs is not None
    output = model(model.collate([parse(LOOP)]), record=("pointer", "beliefs"))
    mixed = np.einsum("tn,tnvy->tvy", output["pointer"].detach(), output["beliefs"].detach()[:, :, :2])
    steps = len(beliefs.lines)
    assert np.array_equal(beliefs.values, mixed.argmax(axis=2)[:steps])
    assert beliefs.probabilities == pytest.approx((mixed / mixed.sum(axis=2, keepdims=True)).max(axis=2)[:steps])
    assert explain(LOOP, build_model("ipa-gnn", hidden=4)).beliefs is None


def test_true_values_are_those_of_the_variables() -> None:
    program = parse("v0 = 3\nv2 = 700\nv2 += 800\nif v2 % 10 < 3:\n  v0 -= 9")
    assert [values[:3] for values in trace_values(program)] == [
        *((3, 0, 0), (3, 0, 700), (3, 0, 500), (3, 0, 500), (994, 0, 500)),
    ]
    assert list(trace_values(program, limit=1)) == [(3,) + (0,) * 19]


def test_json_holds_the_beliefs(lookup: Make) -> None:
    found: Any = explain(LOOP, lookup((SUBTRACT, 1, 2, 1))).to_dict()["beliefs"]
    json.dumps(found)
    assert found["variables"] == [0, 1]
    assert len(found["values"]) == len(found["lines"]) == len(found["true_values"]) == len(found["probabilities"])
    assert found["parts"] is None
