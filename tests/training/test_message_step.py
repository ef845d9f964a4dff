"""The captured step of message passing must be the plain one, only faster. Needs a CUDA GPU; skipped elsewhere."""

import pytest
import torch

from ipagnn.data.splits import training_sampler
from ipagnn.data.stream import Stream
from ipagnn.models import ModelConfig, build_model
from ipagnn.training.config import TrainConfig
from ipagnn.training.step import PlainStep, make_step

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
GPU = torch.device("cuda")
TABLES = [training_sampler("full", 10, 1).table(24 * k, 24) for k in range(6)]
MODELS = ("ggnn", "no-execute", "no-control", "r-gat")


def config(name: str, **changes: object) -> TrainConfig:
    return TrainConfig(ModelConfig(name, hidden=40), batch_size=24, device="cuda").replace(**changes)


@pytest.mark.parametrize("name", MODELS)
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
            torch.testing.assert_close(others[key], weight, rtol=1e-3, atol=2e-4, msg=key)
        assert not torch.equal(weights["cell.hidden_1"], before["cell.hidden_1"])
    told, other = plain.metrics(), captured.metrics()
    assert told.steps == other.steps == len(TABLES)
    assert other.loss == pytest.approx(told.loss, rel=1e-4)
    assert other.norm == pytest.approx(told.norm, rel=1e-3)


@pytest.mark.parametrize("name", MODELS)
def test_half_precision_stays_near(name: str) -> None:
    losses = []
    for precision in ("tf32", "bf16"):
        settings = TrainConfig(ModelConfig(name, hidden=200), batch_size=512, device="cuda", precision=precision)
        step = make_step(build_model(settings.model, 0), settings, GPU)
        sampler = training_sampler("full", 10, 1)
        for k in range(4):
            step(step.prepare(sampler.table(512 * k, 512)))
        told = step.metrics()
        losses.append((told.loss, told.norm))
    assert losses[1] == pytest.approx(losses[0], rel=0.03)


@pytest.mark.parametrize("name", MODELS)
def test_the_rate_moves_in_a_captured_step(name: str) -> None:
    settings = config(name)
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


@pytest.mark.parametrize("name", MODELS)
def test_a_run_goes_on_bit_for_bit(name: str) -> None:
    settings = config(name)
    one, two = (make_step(build_model(settings.model, 0), settings, GPU) for _ in range(2))
    for table in TABLES:
        one(one.prepare(table))
    for table in TABLES[:3]:
        two(two.prepare(table))
    three = make_step(build_model(settings.model, 7), settings, GPU)
    three.load(two.weights(), two.state_dict())
    for table in TABLES[3:]:
        three(three.prepare(table))
    for key, weight in one.weights().items():
        assert torch.equal(three.weights()[key], weight), key


@pytest.mark.parametrize("name", ["ggnn", "no-execute"])
def test_every_step_reads_the_plan_that_was_made(name: str) -> None:
    from ipagnn.training.message_step import MessageStep

    settings = config(name)
    step = MessageStep(build_model(settings.model, 0), settings, GPU, watch=1000)
    made = []
    with Stream(training_sampler("full", 10, 1), 24, step.prepare, threads=4, ahead=16) as stream:
        for _, plan in zip(range(1000), stream, strict=False):
            made.append(int(plan.flat.sum(dtype=torch.int64)))
            step(plan)
    assert step.seen.tolist() == made
