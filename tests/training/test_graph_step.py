"""The captured step must be the plain one, only faster. Needs a CUDA GPU; skipped elsewhere."""

import pytest
import torch

from ipagnn.data.splits import training_sampler
from ipagnn.models import ModelConfig, build_model
from ipagnn.training.config import TrainConfig
from ipagnn.training.step import PlainStep, make_step

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
GPU = torch.device("cuda")
TABLES = [training_sampler("full", 10, 1).table(24 * k, 24) for k in range(12)]


def config(name: str = "ipa-gnn", **changes: object) -> TrainConfig:
    return TrainConfig(ModelConfig(name, hidden=40), batch_size=24, device="cuda").replace(**changes)


@pytest.mark.parametrize("name", ["ipa-gnn", "hard-ip-rnn", "trace-rnn", "line-rnn"])
def test_captured_and_plain_steps_learn_the_same(name: str) -> None:
    settings = config(name, averaging=0.9)
    steps = [
        PlainStep(build_model(settings.model, 0), settings, GPU),
        make_step(build_model(settings.model, 0), settings, GPU),
    ]
    assert type(steps[0]) is not type(steps[1])
    before = steps[0].weights()
    for step in steps:
        for table in TABLES:
            step(step.prepare(table))
    plain, captured = steps
    for averaged in (False, True):
        weights, others = plain.weights(averaged=averaged), captured.weights(averaged=averaged)
        for key, weight in weights.items():
            if "branch" in key or not torch.equal(weight, before[key]):
                torch.testing.assert_close(others[key], weight, rtol=1e-3, atol=1e-4, msg=key)
        assert not torch.equal(weights["cell.hidden_1"], before["cell.hidden_1"])
    told, other = plain.metrics(), captured.metrics()
    assert told.steps == other.steps == len(TABLES)
    assert other.loss == pytest.approx(told.loss, rel=1e-4)
    assert other.norm == pytest.approx(told.norm, rel=1e-3)


def test_the_rate_moves_in_a_captured_step() -> None:
    settings = config()
    step = make_step(build_model(settings.model, 0), settings, GPU)
    plan = step.prepare(TABLES[0])
    step.set_rate(0.0)
    step(plan)
    first = step.weights()["cell.hidden_1"]
    step(plan)
    assert torch.equal(step.weights()["cell.hidden_1"], first)
    step.set_rate(1e-2)
    step(plan)
    moved = (step.weights()["cell.hidden_1"] - first).abs().max()
    assert 1e-3 < moved < 2e-2


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    settings = config(on_nan="skip", norm_limit=1e-9)
    step = make_step(build_model(settings.model, 0), settings, GPU)
    first = step.weights()
    for table in TABLES[:3]:
        step(step.prepare(table))
    assert all(torch.equal(first[key], weight) for key, weight in step.weights().items())
    told = step.metrics()
    assert (told.steps, told.skipped, told.first_skipped) == (3, 3, 0)


def test_a_run_goes_on_bit_for_bit() -> None:
    settings = config()
    one, two = (make_step(build_model(settings.model, 0), settings, GPU) for _ in range(2))
    for table in TABLES:
        one(one.prepare(table))
    for table in TABLES[:5]:
        two(two.prepare(table))
    three = make_step(build_model(settings.model, 7), settings, GPU)
    three.load(two.weights(), two.state_dict())
    for table in TABLES[5:]:
        three(three.prepare(table))
    for key, weight in one.weights().items():
        assert torch.equal(three.weights()[key], weight), key


@pytest.mark.parametrize("name", ["ipa-gnn", "trace-rnn"])
@pytest.mark.parametrize("hidden", [24, 200])
@pytest.mark.parametrize("programs", [24, 600])
def test_half_precision_stays_close_to_float32(name: str, hidden: int, programs: int) -> None:
    # On a Hopper GPU these are the persistent kernels: with one block a cluster and with seven, with one group and two.
    settings = TrainConfig(ModelConfig(name, hidden=hidden), batch_size=programs, device="cuda", optimizer="sgd")
    table = training_sampler("full", 10, 1).table(0, programs)
    before = build_model(settings.model, 0).state_dict()
    moved = []
    for half in (False, True):
        model = build_model(settings.model, 0)
        chosen = settings.replace(precision="bf16" if half else "fp32")
        step = (make_step if half else PlainStep)(model, chosen, GPU)
        step.set_rate(1.0)
        step(step.prepare(table))
        moved.append({key: weight.cpu() - before[key] for key, weight in step.weights().items()})
    for key, exact in moved[0].items():
        assert (moved[1][key] - exact).norm() <= 0.03 * exact.norm() + 1e-6, key


def test_half_precision_is_reproducible() -> None:
    settings = config(precision="bf16")
    weights = []
    for _ in range(2):
        step = make_step(build_model(settings.model, 0), settings, GPU)
        for table in TABLES:
            step(step.prepare(table))
        weights.append(step.weights())
    for key, weight in weights[0].items():
        assert torch.equal(weights[1][key], weight), key
