"""What training minimises and what counts as right: the default, and a model that decides it itself."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ipagnn.data.contract import Batch
from ipagnn.evaluation import evaluate
from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.models import MODELS, Output, ProgramModel, build_model, register
from ipagnn.models.line_rnn import LineRNN
from ipagnn.training import RunFolder, preset, read_metrics, train
from ipagnn.training.sources import make_source

SHIFT = 1_000.0


@pytest.fixture
def near_enough() -> Iterator[str]:
    """A model to which a prediction is right that is at most 1 beside the target, and whose loss tells it apart."""

    @register
    class NearEnough(LineRNN):
        """Counts neighbours as right."""

        @dataclass(frozen=True, kw_only=True)
        class Config(LineRNN.Config):
            """Its options."""

        name: ClassVar[str] = "near-enough"

        def loss(self, output: Output, batch: Batch) -> Tensor:
            return super().loss(output, batch) + SHIFT

        def correct(self, output: Output, batch: Batch) -> Tensor:
            return (output.logits.detach().argmax(dim=1) - batch.target).abs() <= 1

    yield "near-enough"
    del MODELS["near-enough"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_default_is_cross_entropy_and_arg_max(short: ProgramTable, dtype: torch.dtype) -> None:
    model = build_model("line-rnn", hidden=8).to(dtype)
    batch = model.collate(short)
    output = model(batch)
    loss = model.loss(output, batch)
    assert loss.dtype == dtype
    assert torch.equal(loss, cross_entropy(output.logits, batch.target, reduction="none"))
    loss.sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())
    assert torch.equal(model.correct(output, batch), output.logits.argmax(dim=1) == batch.target)


def test_the_loss_of_bf16_logits_is_computed_in_float32(short: ProgramTable) -> None:
    model = build_model("line-rnn", hidden=8)
    batch = model.collate(short)
    logits = model(batch).logits.bfloat16()
    loss = model.loss(Output({"value": logits}), batch)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, cross_entropy(logits.float(), batch.target, reduction="none"))


def test_training_validation_and_evaluation_ask_the_model(near_enough: str, tmp_path: Path) -> None:
    config = preset("smoke", near_enough).replace(examples=320, log_every=5, validation_every=160)
    result = train(config, tmp_path / "run")
    lines = read_metrics(RunFolder(tmp_path / "run"))
    assert {line["kind"] for line in lines} == {"train", "validation"}
    assert all(line["loss"] > SHIFT for line in lines)
    table = config_table(config.model.grammar.modulus)
    model: ProgramModel = build_model(config.model, seed=4)
    evaluation = evaluate(model, table)
    expected = abs(evaluation.prediction.astype(int) - evaluation.target) <= 1
    assert (evaluation.correct == expected).all()
    assert (evaluation.correct != (evaluation.prediction == evaluation.target)).any()
    assert 0 < result.accuracy <= 1


def config_table(modulus: int) -> ProgramTable:
    """Fifty programs of the smoke preset's language, in order of size neither up nor down."""
    config = preset("smoke", "line-rnn")
    assert config.model.grammar.modulus == modulus
    return make_source(config, None).table(0, 50)
