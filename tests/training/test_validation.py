"""Which weights a validation takes for good."""

import torch

from ipagnn.evaluation import evaluate
from ipagnn.models import build_model, load_model
from ipagnn.training import preset
from ipagnn.training.validation import Validation

CPU = torch.device("cpu")


def test_a_model_with_tables_is_validated_without_a_bound_on_steps() -> None:
    config = preset("environment").replace(validation_count=300)
    validation = Validation(config, CPU)
    score = validation(load_model("env-ipa-gnn-full").state_dict())
    assert score.accuracy == 1.0  # about a third of these programs need more than T(x) steps
    assert 0 < score.loss < 0.05
    untrained = validation(build_model(config.model, 0).state_dict())
    assert untrained.count == 300
    assert untrained.accuracy < 0.1
    assert untrained.loss > score.loss


def test_validation_agrees_with_evaluation() -> None:
    config = preset("environment", task="partial").replace(validation_count=60)
    validation = Validation(config, CPU)
    weights = load_model("env-ipa-gnn-partial").state_dict()
    score = validation(weights)
    evaluation = evaluate(validation.model, validation._table)
    assert score.correct == int(evaluation.correct.sum())
