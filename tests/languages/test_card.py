"""The language card tells the truth, and is where people look."""

from contextlib import suppress
from pathlib import Path

import pytest

import ipagnn
from ipagnn.languages.arithmetic import ProgramError, execute, parse
from ipagnn.languages.arithmetic.card import EXAMPLES, FORMS, Example, Form, help_text, markdown
from ipagnn.languages.arithmetic.membership import outside_grammar
from ipagnn.models import available_models, load_model

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.text)
def test_every_form_can_be_typed(form: Form) -> None:
    around = {
        "else:": "v0 = 1\nif v0 > 0:\n  pass\nelse:\n  pass",
        "break": "v0 = 1\nv1 = 4\nwhile v1 > 0:\n  v1 -= 1\n  break",
    }
    source = around.get(form.text, f"v0 = 1\nv1 = 4\n{form.text}\n{'  v1 -= 1' if form.text.endswith(':') else ''}")
    assert form.text in source
    assert len(parse(source)) > 1


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_examples_are_programs_of_the_training_language(example: Example) -> None:
    if example.model is None:
        assert outside_grammar(parse(example.source)) == []
    elif example.model in available_models():
        grammar = load_model(example.model).config.grammar
        with suppress(ProgramError):  # of a language that the model does not have: it is not shown
            outside = outside_grammar(parse(example.source, grammar=grammar), grammar)
            assert [each for each in outside if "; trained on 0 to 99999" not in each] == []  # numbers may be larger


@pytest.mark.parametrize("example", [each for each in EXAMPLES if each.compare], ids=lambda example: example.name)
def test_where_two_models_are_compared_one_of_them_is_wrong(example: Example) -> None:
    if example.compare not in available_models():
        pytest.skip("this installation comes without weights")
    assert "wrong" in example.about
    assert ipagnn.predict(example.source, example.model).value == execute(parse(example.source))[0]
    assert ipagnn.predict(example.source, example.compare).value != execute(parse(example.source))[0]


def test_readme_has_the_card() -> None:
    assert markdown() in README.read_text()
    assert all(f"`{form.text}` {form.meaning}." in help_text() for form in FORMS)
