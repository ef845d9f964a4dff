"""The weights in the package do what their cards say."""

import json
from importlib import resources
from pathlib import Path

import pytest
import torch

from ipagnn.data.splits import recipe
from ipagnn.evaluation import build_test_recipe, evaluate
from ipagnn.languages.arithmetic import Grammar, Lengths, parse, value
from ipagnn.languages.arithmetic.holes import ceiling
from ipagnn.models import available_models, build_model, find_model_file, load_model, save_model
from ipagnn.reporting.paper import POINTER

RECORDS = Path(__file__).parents[2] / "records"
LARGEST = 30_000_000


def test_the_package_brings_a_model_for_each_task() -> None:
    assert {"env-ipa-gnn-full", "env-ipa-gnn-partial", "ipa-gnn-full", "ipa-gnn-partial"} <= set(available_models())


def test_the_weights_are_small_enough_and_each_has_a_card() -> None:
    folder = Path(str(resources.files("ipagnn") / "weights"))
    assert sum(file.stat().st_size for file in folder.iterdir()) < LARGEST
    for name in available_models():
        assert (folder / f"{name}.md").read_text().startswith(f"# {name}\n")


@pytest.mark.parametrize("name", available_models())
def test_accuracy_on_withheld_programs(name: str) -> None:
    """Of 400, what the record says of those that selected the weights, less four standard errors."""
    file = find_model_file(name)
    record = RECORDS / str(file.record)
    if f'task = "{file.task}"' not in (record / "config.toml").read_text():
        pytest.skip("only its weights of masked lines were fitted; they have a test of their own")
    recorded = json.loads((record / "result.json").read_text())["accuracy"]
    assert name.endswith((f"-{file.task}", "-any", "-extended"))
    model = load_model(name)
    table = recipe("validation", str(file.task), 400, None, Lengths.exact(10), model.config.grammar).table(0, 400)
    found = float(evaluate(model, table).correct.mean())
    assert found >= recorded - 4 * (recorded * (1 - recorded) / 400) ** 0.5


def test_the_fitted_weights_of_masked_lines_are_as_good_as_the_exact_ones() -> None:
    """On D_test, within half a point of the guess that knows all fillings and how likely they are."""
    table = build_test_recipe("partial").table(0, 4_500)
    found = evaluate(load_model("env-ipa-gnn-partial"), table).correct.mean()
    exact = (ceiling(table, Grammar()).guess == table.target).mean()
    assert abs(found - exact) < 0.005
    assert found > 0.6


@pytest.mark.parametrize("digits", [3, 18])
def test_values_of_digits_hold_for_the_test_set_with_any_number_of_them(digits: int) -> None:
    model = load_model("env-ipa-gnn-any").with_digits(digits)
    table = build_test_recipe(grammar=model.config.grammar).table(0, 4_500)
    assert evaluate(model, table).correct.all()


@pytest.mark.parametrize("source", POINTER[0])
def test_the_first_program_of_figure_4_is_solved(source: str) -> None:
    model = load_model("ipa-gnn-full")
    program = parse(source)
    with torch.inference_mode():
        assert int(model(model.collate([program])).logits.argmax()) == value(program)


def test_half_precision_files_are_read_as_float32(tmp_path: object) -> None:
    model = build_model("ipa-gnn", hidden=8)
    path = f"{tmp_path}/half.safetensors"
    save_model(model, path, half=True)
    read = load_model(path)
    for name, weight in read.state_dict().items():
        assert weight.dtype == torch.float32
        torch.testing.assert_close(weight, model.state_dict()[name], rtol=1e-3, atol=1e-6)
