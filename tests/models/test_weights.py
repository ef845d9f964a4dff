"""The weights in the package do what their cards say."""

import pytest
import torch

from ipagnn.data.splits import validation_set
from ipagnn.evaluation.paper import POINTER
from ipagnn.models import available_models, build_model, load_model, save_model
from ipagnn.models.base import ModelConfig
from ipagnn.programs import Task, parse, value


def test_the_package_brings_a_model_for_each_task() -> None:
    assert {"ipa-gnn-full", "ipa-gnn-partial"} <= set(available_models())


@pytest.mark.parametrize(("task", "least"), [("full", 0.70), ("partial", 0.29)])
def test_accuracy_on_withheld_programs(task: Task, least: float) -> None:
    """Of 400: 0.776 and 0.346 of the 2,000 that selected the weights, less three standard errors."""
    model = load_model(f"ipa-gnn-{task}")
    table = validation_set(task, 400)
    with torch.inference_mode():
        guess = model(model.collate(table)).logits.argmax(dim=1)
    assert (guess == torch.from_numpy(table.target)).float().mean() > least


@pytest.mark.parametrize("source", POINTER[0])
def test_the_first_program_of_figure_4_is_solved(source: str) -> None:
    model = load_model("ipa-gnn-full")
    program = parse(source)
    with torch.inference_mode():
        assert int(model(model.collate([program])).logits.argmax()) == value(program)


def test_half_precision_files_are_read_as_float32(tmp_path: object) -> None:
    model = build_model(ModelConfig(hidden=8))
    path = f"{tmp_path}/half.safetensors"
    save_model(model, path, half=True)
    read = load_model(path)
    for name, weight in read.state_dict().items():
        assert weight.dtype == torch.float32
        torch.testing.assert_close(weight, model.state_dict()[name], rtol=1e-3, atol=1e-6)
