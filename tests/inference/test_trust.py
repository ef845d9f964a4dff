"""What is said about how far an answer can be trusted."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ipagnn.inference.explain import explain
from ipagnn.inference.predict import predict
from ipagnn.inference.trust import loop_depth
from ipagnn.languages.arithmetic import parse
from ipagnn.models import build_model, save_model

from .conftest import decided

Run = Callable[..., Any]
PLAIN = "v0 = 7\nv0 += 2\nv0 *= 3\n"
LOOP = "v0 = 7\nv1 = 3\nwhile v1 > 0:\n  v1 -= 1\n  v0 *= 2\n"
NESTED = "v0 = 7\nv1 = 2\nwhile v1 > 0:\n  v1 -= 1\n  v2 = 2\n  while v2 > 0:\n    v2 -= 1\n    v0 += 1\n"
MASKED = "v0 = 3\n[MASK]\nv0 *= 2\n"


def test_nothing_is_said_where_there_is_nothing_to_say() -> None:
    prediction = predict(PLAIN, decided(0.5))
    assert prediction.warnings == []
    assert prediction.exit_mass == pytest.approx(1)
    assert (
        prediction.trust
        == f"100.0% of the pointer reached the exit; {prediction.steps} steps given, the true trace needs 3; no warning"
    )


def test_mass_that_does_not_arrive_is_told() -> None:
    prediction = predict(LOOP, decided(0.9), budget=1)
    # The exit is reached after 2 + 1 steps by a tenth, and after 3 more at each round by a tenth of what is left.
    rounds = (prediction.steps - 3) // 3 + 1 if prediction.steps else 0
    assert prediction.exit_mass == pytest.approx(1 - 0.9**rounds, abs=1e-5)
    [warning] = [each for each in prediction.warnings if "pointer" in each]
    assert (
        warning
        == f"Only {prediction.exit_mass:.1%} of the pointer reached the exit; the answer rests on that part alone."
    )
    assert explain(LOOP, decided(0.9), budget=1).exit_mass == prediction.exit_mass


def test_too_few_steps_are_told_and_more_can_be_given() -> None:
    model = decided(0.5)
    long = LOOP.replace("3", "9")
    prediction = predict(long, model)
    assert prediction.truth.trace_length == 2 + 10 + 18
    assert prediction.steps is not None
    assert prediction.steps < 30
    assert any(f"took {prediction.steps} steps and the true trace has 30" in each for each in prediction.warnings)
    for budget, steps in (("3", 3 * prediction.steps), (3.0, 3 * prediction.steps), ("trace", 32), ("static", None)):
        more = predict(long, model, budget=budget)
        assert steps in (None, more.steps)
        assert not any("steps" in each for each in more.warnings)
    with pytest.raises(ValueError, match="positive multiple of T"):
        predict(long, model, budget="plenty")


@pytest.mark.parametrize(
    ("source", "warning"),
    [
        ("v0 = 7\nv0 += 999", "Line 2: operand 999; trained on 1 to 9."),
        (LOOP.replace("3", "20"), "Line 3: a loop of 20 rounds; trained on 2 to 9."),
        ("v0 = 7\nif v0 > 50:\n  v0 += 1", "Line 2: `if v0 > 50`; trained on conditions of v0 % 10."),
        (NESTED, "Loops are nested 2 deep; models of the kind ipa-gnn are known to miscount them."),
        ("v0 = 1\nwhile v0 > 0:\n  v0 = 1\n", "Line 2: `while v0 > 0:` never ends: its state repeats."),
    ],
)
def test_what_lies_outside_of_training_is_named(source: str, warning: str) -> None:
    assert warning in predict(source, decided(0.5)).warnings


def test_much_that_lies_outside_is_counted() -> None:
    prediction = predict("v0 = 1\n" + "v0 += 50\n" * 40, decided(0.5))
    assert [each for each in prediction.warnings if "34 more things" in each]
    assert len(prediction.warnings) == 7


def test_depth_of_loops() -> None:
    assert [loop_depth(parse(source)) for source in (PLAIN, LOOP, NESTED)] == [0, 1, 2]


def test_long_programs_are_a_warning_for_models_that_fail_on_them() -> None:
    long = "v0 = 1\n" + "v0 += 1\n" * 30
    assert predict(long, decided(0.5)).warnings == []
    [warning] = predict(long, build_model("line-rnn", hidden=8).eval()).warnings
    assert warning.startswith("The program has 31 lines; models of the kind line-rnn are known to fail more often")


def test_models_of_another_task() -> None:
    model = decided(0.5)
    model.task = "full"
    with pytest.raises(ValueError, match=r"needs complete programs.*choose env-ipa-gnn-partial"):
        predict(MASKED, model)
    model.task = "partial"
    assert predict(MASKED, model).warnings == []
    assert (
        "The program is complete; the model was trained on programs with a masked line."
        in predict(PLAIN, model).warnings
    )


def test_models_without_a_pointer_or_steps() -> None:
    prediction = predict(PLAIN, build_model("ggnn", hidden=8).eval())
    assert prediction.exit_mass is None
    assert prediction.trust.startswith("no instruction pointer; ")
    prediction = predict(PLAIN, build_model("line-rnn", hidden=8).eval())
    assert prediction.steps is None
    assert prediction.trust == "no instruction pointer; no warning"
    assert "exit_mass" not in repr(prediction)


def test_the_representation_is_one_line_with_the_answer() -> None:
    prediction = predict(NESTED.replace("2", "9"), decided(0.9))
    assert repr(prediction).startswith(f"Prediction(value={prediction.value}, confidence=")
    assert f"true_value={prediction.true_value}" in repr(prediction)
    assert len(repr(prediction)) < 120
    assert prediction.value == prediction.top(1)[0].value
    assert prediction.confidence == prediction.top(1)[0].probability == max(prediction.probabilities)


def test_every_form_of_the_answer_tells_it(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "tiny.safetensors"
    save_model(decided(0.5), path)
    answer = predict(NESTED, path)
    assert answer.warnings
    data = answer.to_dict()
    assert (data["trust"], data["warnings"], data["exit_mass"]) == (
        answer.trust,
        answer.warnings,
        answer.exit_mass,
    )
    html = answer._repr_html_()
    done = run("predict", "-", "--model", path, stdin=NESTED.encode())
    assert (
        f"says {answer.value} (confidence {answer.confidence:.1%}, resting on {answer.exit_mass:.1%} of the pointer)"
        in done.out
    )
    for form in (html, done.out):
        assert f"Trust: {answer.trust}" in form
        assert all(each in form for each in answer.warnings)
    done = run("predict", "-", "--model", path, "--budget", "static", "--json", stdin=NESTED.encode())
    assert json.loads(done.out) == predict(NESTED, path, budget="static").to_dict()
    done = run("explain", "-", "--model", path, "--budget", "trace", stdin=NESTED.encode())
    assert f"Trust: {predict(NESTED, path, budget='trace').trust}" in done.out
    assert "must be a positive multiple" in run("predict", "-", "--budget", "0x", stdin=NESTED.encode()).err
