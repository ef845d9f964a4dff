"""What is proved of answers over automata, and what is said where something is not."""

import json
from typing import Any

import numpy as np
import pytest

from ipagnn import available_models, explain, predict
from ipagnn.inference.loaded import LoadedModel
from ipagnn.languages.arithmetic import Grammar
from ipagnn.languages.arithmetic.automata import Automaton, Statement, true_automaton
from ipagnn.languages.arithmetic.card import DIGITS_MODEL, EXAMPLES, EXTENDED_MODEL
from ipagnn.languages.arithmetic.vocabulary import ADD, MULTIPLY
from ipagnn.models import EnvIPAGNN
from ipagnn.models.automata import AutomataModel

from ..conftest import EXTENDED

LONG = (
    "v3 = 123456789012\nv0 = 999999999999\nv12 = 9\nwhile v12 > 0:\n"
    "  v12 -= 1\n  v3 += v0\n  if v3 < v0:\n    v3 -= 77777"
)

extended_model = pytest.mark.skipif(EXTENDED_MODEL not in available_models(), reason=f"there is no {EXTENDED_MODEL}")
digits_model = pytest.mark.skipif(DIGITS_MODEL not in available_models(), reason=f"there is no {DIGITS_MODEL}")


class Faulty(EnvIPAGNN):
    """A model whose automata are the true ones, but for a fault in `+=` and in `*= 7` if asked for."""

    name = "faulty-automata"
    faults = False

    def automata(self, statements: Any) -> list[Automaton]:
        return [self._automaton(statement) for statement in statements]

    def _automaton(self, statement: Statement) -> Automaton:
        true = true_automaton(*statement)
        if not self.faults or statement not in ((ADD, None), (MULTIPLY, 7)):
            return true
        gives = np.array(true.gives)
        carry = true.goes[0, -1]
        gives[carry, 5] = (gives[carry, 5] + 1) % 10
        return Automaton(true.operation, true.operand, gives, true.goes, true.stops)


def faulty(grammar: Grammar, *, faults: bool, task: str | None = None) -> Faulty:
    model = Faulty(hidden=3, width=2, states=2, values="digits", grammar=grammar)
    model.faults, model.task = faults, task
    return model.eval()  # type: ignore[return-value]


def test_long_numbers_and_foreign_forms_are_no_warning_where_all_is_proved() -> None:
    answer = predict(LONG, faulty(EXTENDED, faults=False))
    assert answer.value == answer.true_value
    assert (answer.proved, answer.warnings, answer.confidence) == (True, [], 1.0)
    assert answer.trust == "100.0% of the pointer reached the exit; every statement proved; no warning"
    # A large operand, another variable, a long loop, a first line of another kind: nothing that training has seen.
    source = "v5 = 7\nv1 = 200\nwhile v1 > 0:\n  v1 -= 1\n  v5 *= 70\nv0 = 900\nv0 += 999"
    answer = predict(source, faulty(Grammar(modulus=10**18), faults=False, task="partial"))
    assert (answer.value, answer.proved, answer.warnings) == (1899, True, [])


def test_a_fault_is_named_with_the_smallest_numbers() -> None:
    answer = predict(LONG, faulty(EXTENDED, faults=True))
    assert (answer.proved, answer.confidence) == (False, 1.0)
    assert answer.warnings == ["Line 6: `v3 += v0` is learned wrong, first at v3 = 59 and v0 = 1."]
    assert "not every statement proved; 1 warning" in answer.trust
    answer = predict("v3 = 59\nv0 = 1\nv3 += v0", faulty(EXTENDED, faults=True))
    assert answer.value != answer.true_value == 60
    assert answer.warnings == ["Line 3: `v3 += v0` is learned wrong, first at v3 = 59 and v0 = 1."]
    grammar = Grammar(modulus=10**18)
    answer = predict("v0 = 1\nv0 *= 7\nv0 *= 3", faulty(grammar, faults=True))
    assert answer.value == answer.true_value
    [warning] = answer.warnings
    assert warning.startswith("Line 2: `v0 *= 7` is learned wrong, first at v0 = ")
    assert predict("v0 = 1\nv0 *= 3", faulty(grammar, faults=True)).warnings == []


def test_masked_lines_may_be_what_is_learned_wrong() -> None:
    answer = predict("v0 = 1\n_\nv0 *= 30", faulty(Grammar(modulus=10**6), faults=True))
    assert answer.proved is None
    assert answer.warnings[0].startswith(
        "Line 2: the masked line may be `v0 *= 7`, which is learned wrong, first at v0 = "
    )
    assert answer.warnings[1:] == ["Line 3: operand 30; trained on 1 to 9."]
    answer = predict("v0 = 1\n_", faulty(Grammar(modulus=10**6), faults=False))
    assert (answer.proved, answer.warnings) == (None, [])


def test_an_untrained_model_is_warned_of() -> None:
    model = EnvIPAGNN(hidden=8, values="digits", grammar=Grammar(modulus=10**6)).eval()
    answer = predict("v0 = 12\n" + "".join(f"v0 *= {k}\n" for k in range(2, 10)), model)  # type: ignore[arg-type]
    assert answer.proved is False
    assert answer.warnings[0].startswith("Line 1: `v0 = 12` is learned wrong, first at v0 = ")
    assert answer.warnings[-1] == "3 more statements in it are not proved to be right."


def test_runs_with_a_bound_are_not_runs_over_automata() -> None:
    answer = predict("v0 = 1\nv0 += 30", faulty(Grammar(), faults=False), budget="trace")
    assert answer.proved is None
    assert "Line 2: operand 30; trained on 1 to 9." in answer.warnings
    assert "proved" not in answer.trust


def test_statements_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = LoadedModel("faulty", faulty(EXTENDED, faults=True))
    assert isinstance(chosen.unbounded, AutomataModel)
    first = chosen.unbounded.doubts(chosen.parse(LONG))
    monkeypatch.setattr("ipagnn.models.automata.disagreement_at", None)
    assert chosen.unbounded.doubts(chosen.parse(LONG)) == first != []


def test_all_forms_of_answers_say_it(run: Any) -> None:
    answer = predict(LONG, faulty(EXTENDED, faults=True))
    assert answer.to_dict()["proved"] is False
    explanation = explain(LONG, faulty(EXTENDED, faults=True))
    assert explanation.prediction.warnings == answer.warnings
    assert answer.warnings[0].replace("`", "") in answer._repr_html_().replace("`", "")


@extended_model
def test_the_extended_model_is_warned_of_what_it_has_wrong(run: Any) -> None:
    source = "v0 = 22\nv1 = 22\nif v0 >= v1:\n  v0 -= 1"
    answer = predict(source, EXTENDED_MODEL)
    if answer.proved:
        assert answer.value == answer.true_value
        pytest.skip("the packaged model has learned it")
    assert answer.warnings == ["Line 3: `if v0 >= v1` is learned wrong, first at v0 = 22 and v1 = 22."]
    done = run("predict", "-", "--model", EXTENDED_MODEL, stdin=source.encode())
    assert (
        f"{EXTENDED_MODEL} says {answer.value} (not proved to be right, resting on 100.0% of the pointer)" in done.out
    )
    assert f"Warning: {answer.warnings[0]}" in done.out
    assert json.loads(run("predict", "-", "--model", EXTENDED_MODEL, "--json", stdin=source.encode()).out) == (
        answer.to_dict()
    )


@digits_model
def test_loops_beyond_what_is_proved_are_warned_of() -> None:
    for count in (9, 12):
        answer = predict(f"v0 = 7\nv1 = {count}\nwhile v1 > 0:\n  v1 -= 1\n  v0 *= 2", DIGITS_MODEL)
        if count == 9:
            assert (answer.value, answer.proved, answer.warnings) == (7 * 2**9, True, [])
        elif not answer.proved:
            assert answer.warnings == ["Line 3: `while v1 > 0` is learned wrong, first at v1 = 10."]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_examples_for_these_models_are_proved(example: Any) -> None:
    if example.model not in (DIGITS_MODEL, EXTENDED_MODEL):
        pytest.skip("for another model")
    if example.model not in available_models():
        pytest.skip("this installation comes without the model")
    answer = predict(example.source, example.model)
    assert answer.value == answer.true_value
    assert (answer.proved, answer.warnings) == (True, [])
