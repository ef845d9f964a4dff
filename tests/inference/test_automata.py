"""Models whose values are digits run over automata: numbers of 18 digits, no bound on steps, endless programs told."""

import json
from collections.abc import Iterable
from io import StringIO

import pytest
from rich.console import Console

from ipagnn import explain, predict
from ipagnn.cli.explain_text import print_explanation
from ipagnn.evaluation import build_test_recipe, evaluate
from ipagnn.languages.arithmetic import Grammar, Lengths, Sampler, execute, format_program, parse
from ipagnn.languages.arithmetic.automata import Automaton, true_automaton
from ipagnn.languages.arithmetic.holes import hole_distribution
from ipagnn.languages.arithmetic.interpreter import trace_values
from ipagnn.languages.arithmetic.vocabulary import MULTIPLY
from ipagnn.models import EnvIPAGNN

LANGUAGE = Grammar(modulus=10**18)
LARGE = "v0 = 999\nv1 = 5\nwhile v1 > 0:\n  v1 -= 1\n  v0 *= 9\n  v0 *= 9\n  v0 *= 9\nif v0 % 10 < 4:\n  v0 -= 3"


class Planted(EnvIPAGNN):
    """A model whose automata are the true ones, but for `*= 7` if `wrong`."""

    name = "planted-automata"
    wrong = False

    def automata(self, statements: Iterable[tuple[int, int]]) -> list[Automaton]:
        return [
            true_automaton(operation, 8 if self.wrong and (operation, operand) == (MULTIPLY, 7) else operand)
            for operation, operand in statements
        ]


@pytest.fixture
def planted() -> Planted:
    return Planted(hidden=3, width=2, states=2, values="digits", grammar=LANGUAGE).eval()  # type: ignore[return-value]


def test_answers_are_exact_where_all_automata_are_true(planted: Planted) -> None:
    programs = list(Sampler("full", Lengths.uniform(range(2, 60)), seed=8).table(0, 30))
    sources = [format_program(program) for program in programs]
    for digits in (3, 18):
        for program, answer in zip(programs, predict(sources, planted, digits=digits), strict=True):
            assert answer.value == answer.true_value == execute(program, 10**digits).value
            assert (answer.confidence, answer.exit_mass, answer.steps, answer.warnings) == (1.0, 1.0, None, [])
    assert predict(LARGE, planted).value == 999 * 9**15 % 10**18 - 3


def test_masked_programs_have_the_exact_distribution(planted: Planted) -> None:
    for source in ("v0 = 5\n[MASK]\nv0 += 2", "v0 = 5\n[MASK]\nv1 = 3\nwhile v1 > 0:\n  v1 -= 1\n  _"):
        answer = predict(source, planted)
        exact = hole_distribution(parse(source), LANGUAGE).probabilities
        assert {each.value: each.probability for each in answer.top(1_000)} == pytest.approx(exact)
        assert answer.exit_mass == pytest.approx(1)
    with pytest.raises(ValueError, match="3 masked lines; a model that runs over automata takes at most 2"):
        predict("v0 = 5\n_\n_\n_", planted)


def test_all_fillings_together_take_no_more_steps_than_one_program_may(planted: Planted) -> None:
    """Otherwise a short program with two masked lines would hold a server for a quarter of an hour."""
    lines, deep = ["v0 = 7"], ""
    for k in range(1, 6):
        lines += [f"{deep}v{k} = 9", f"{deep}while v{k} > 0:", f"{deep}  v{k} -= 1"]
        deep += "  "
    nest = "\n".join(lines) + f"\n{deep}v0 += 1"
    complete = predict(nest, planted, digits=5)
    assert (complete.value, complete.warnings) == (7 + 9**5, [])
    partial = predict(f"{nest}\n_\n_", planted, digits=5)
    assert partial.exit_mass == 0.0
    assert any("goes on for longer than was followed" in warning for warning in partial.warnings)


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("v0 = 0\nv1 = 1\nwhile v1 > 0:\n  v0 += 2", 3),
        ("v0 = 7\nv1 = 1\nwhile v1 > 0:\n  if v0 % 10 > 9:\n    v1 -= 1\n  v0 *= 3\n  v0 += 1", 0),
    ],
)
def test_programs_that_never_end_are_reported(planted: Planted, source: str, line: int) -> None:
    answer = predict(source, planted)
    assert (answer.exit_mass, answer.confidence, answer.true_value) == (0.0, 0.0, None)
    [told] = [warning for warning in answer.warnings if "never ends by what" in warning]
    assert not line or f"line {line}" in told


def test_values_by_step_are_those_of_the_trace(planted: Planted) -> None:
    explanation = explain(LARGE, planted)
    beliefs = explanation.beliefs
    assert beliefs is not None
    values = [(0,) * 2, *(state[:2] for state in trace_values(parse(LARGE), 100, 10**18))]
    assert beliefs.values.tolist() == [list(each) for each in values]
    assert beliefs.parts is None
    assert explanation.path_ends
    assert explanation.soft == []
    assert explanation.shortcuts == []
    assert json.loads(json.dumps(explanation.to_dict()))["beliefs"]["values"][-1][0] == 999 * 9**15 % 10**18 - 3
    console = Console(file=StringIO(), width=120)
    print_explanation(console, explanation, 3)
    assert str(999 * 9**15 % 10**18 - 3) in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_wrong_automaton_shows_where_it_is_wrong(planted: Planted) -> None:
    planted.wrong = True
    explanation = explain("v0 = 11\nv0 += 2\nv0 *= 7\nv0 -= 1", planted)
    assert (explanation.prediction.value, explanation.prediction.true_value) == (103, 90)
    assert explanation.beliefs is not None
    assert explanation.beliefs.parts == 3


def test_evaluation_with_any_number_of_digits(planted: Planted) -> None:
    for digits in (3, 18):
        model = planted.with_digits(digits)
        table = build_test_recipe("full", (10, 60), 20, None, model.config.grammar).table(0, 40)
        same = build_test_recipe("full", (10, 60), 20).table(0, 40)
        assert (table.line_tokens == same.line_tokens).all()
        found = evaluate(model, table)
        assert found.correct.all()
        assert not found.bounded
        assert (found.steps == found.trace_length).all()
        assert (found.answers["value"].rank == 0).all()
        assert found.loop_depth.max() >= 2
    planted.wrong = True
    found = evaluate(planted, table)
    assert 0 < found.correct.sum() < len(table)
    assert (found.answers["value"].rank[~found.correct] == 1).all()


def test_partial_programs_are_evaluated(planted: Planted) -> None:
    table = build_test_recipe("partial", (8,), 30, None, LANGUAGE).table(0, 30)
    found = evaluate(planted, table)
    for i in range(5):
        exact = hole_distribution(table[i], LANGUAGE).probabilities
        assert found.answers["value"].confidence[i] == pytest.approx(max(exact.values()))
        assert found.correct[i] == (found.prediction[i] == table.target[i])
        assert (found.answers["value"].rank[i] == 0) == found.correct[i]


def test_digits_are_no_choice_for_classes() -> None:
    model = EnvIPAGNN(hidden=3, width=2)
    with pytest.raises(ValueError, match="modulo 1,000 and no others; the number of digits is a choice"):
        predict(LARGE, model, digits=18)
    with pytest.raises(ValueError, match="1 to 18 digits"):
        predict(LARGE, EnvIPAGNN(hidden=3, width=2, values="digits", grammar=LANGUAGE), digits=19)
