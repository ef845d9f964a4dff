"""The captured steps must be the plain ones, only faster. Needs a CUDA GPU; skipped elsewhere."""

from typing import Any

import pytest
import torch

from ipagnn.data.splits import training_sampler
from ipagnn.data.stream import Stream
from ipagnn.models import build_model, model_config
from ipagnn.training.config import TrainConfig
from ipagnn.training.step import PlainStep, make_step

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
GPU = torch.device("cuda")
TABLES = [training_sampler("full", 10, 1).table(24 * k, 24) for k in range(12)]
PACKED = ("ipa-gnn", "hard-ip-rnn", "trace-rnn", "line-rnn")
MESSAGES = ("ggnn", "no-execute")


def config(name: str, **changes: object) -> TrainConfig:
    return TrainConfig(model=model_config(name, hidden=40)).replace(batch_size=24, device="cuda").replace(**changes)


OPTIONS = ("line-rnn decoder", "no-execute absorbing_exit")


@pytest.mark.parametrize("name", [*PACKED, *MESSAGES, *OPTIONS])
def test_captured_and_plain_steps_learn_the_same(name: str) -> None:
    name, _, option = name.partition(" ")
    settings = config(name, averaging=0.9)
    if option:
        settings = settings.replace(model=settings.model.replace(**{option: True}))
    tables = TABLES if name in PACKED else TABLES[:6]
    steps = [
        PlainStep(build_model(settings.trained_model, 0), settings, GPU),
        make_step(build_model(settings.trained_model, 0), settings, GPU),
    ]
    assert type(steps[0]) is not type(steps[1])
    before = steps[0].weights()
    for step in steps:
        for table in tables:
            step(step.prepare(table))
    plain, captured = steps
    for averaged in (False, True):
        weights, others = plain.weights(averaged=averaged), captured.weights(averaged=averaged)
        for key, weight in weights.items():
            if name in MESSAGES or "branch" in key or not torch.equal(weight, before[key]):
                near = 1e-4 if name in PACKED else 2e-4
                torch.testing.assert_close(others[key], weight, rtol=1e-3, atol=near, msg=key)
        assert not torch.equal(weights["cell.hidden_1"], before["cell.hidden_1"])
    found, other = plain.metrics(), captured.metrics()
    assert found.steps == other.steps == len(tables)
    assert other.loss == pytest.approx(found.loss, rel=1e-4)
    assert other.norm == pytest.approx(found.norm, rel=1e-3)


@pytest.mark.parametrize("name", ["ipa-gnn", *MESSAGES])
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


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    settings = config("ipa-gnn", on_nan="skip", norm_limit=1e-9)
    step = make_step(build_model(settings.model, 0), settings, GPU)
    first = step.weights()
    for table in TABLES[:3]:
        step(step.prepare(table))
    assert all(torch.equal(first[key], weight) for key, weight in step.weights().items())
    found = step.metrics()
    assert (found.steps, found.skipped, found.first_skipped) == (3, 3, 0)


@pytest.mark.parametrize("name", ["ipa-gnn", *MESSAGES])
def test_a_run_goes_on_bit_for_bit(name: str) -> None:
    settings = config(name)
    tables = TABLES[:6]
    one, two = (make_step(build_model(settings.model, 0), settings, GPU) for _ in range(2))
    for table in tables:
        one(one.prepare(table))
    for table in tables[:3]:
        two(two.prepare(table))
    three = make_step(build_model(settings.model, 7), settings, GPU)
    three.load(two.weights(), two.state_dict())
    for table in tables[3:]:
        three(three.prepare(table))
    for key, weight in one.weights().items():
        assert torch.equal(three.weights()[key], weight), key


@pytest.mark.parametrize("name", ["ipa-gnn", "ggnn", "no-execute"])
def test_every_step_reads_the_plan_that_was_made(name: str) -> None:
    from ipagnn.training.graph_step import GraphStep  # needs Triton, which comes with CUDA builds of torch
    from ipagnn.training.message_step import MessageStep

    settings = config(name)
    step: Any = (GraphStep if name in PACKED else MessageStep)(build_model(settings.model, 0), settings, GPU)
    run, read = step._run, torch.zeros(1000, dtype=torch.int64, device=GPU)
    count = torch.zeros(1, dtype=torch.int64, device=GPU)

    def watched(plan: Any, launcher: Any) -> None:
        run(plan, launcher)
        if torch.cuda.is_current_stream_capturing():
            read.scatter_(0, count, plan.flat.sum(dtype=torch.int64)[None])
            count.add_(1)

    step._run = watched
    made = []
    with Stream(training_sampler("full", 10, 1), 24, step.prepare, threads=4, ahead=16) as stream:
        for _, plan in zip(range(1000), stream, strict=False):
            made.append(int(plan.flat.sum(dtype=torch.int64)))
            step(plan)
    assert read.tolist() == made


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_in_half_precision_stay_near(name: str) -> None:
    losses = []
    for precision in ("tf32", "bf16"):
        # At 1e-3 the norms of R-GAT's first steps differ by a quarter where weights differ by 2^-9, in fp32 as well.
        settings = config(
            name, batch_size=512, precision=precision, learning_rate=1e-6, model=model_config(name, hidden=200)
        )
        step = make_step(build_model(settings.model, 0), settings, GPU)
        sampler = training_sampler("full", 10, 1)
        for k in range(4):
            step(step.prepare(sampler.table(512 * k, 512)))
        found = step.metrics()
        losses.append((found.loss, found.norm))
    assert losses[1] == pytest.approx(losses[0], rel=0.03)


@pytest.mark.parametrize("name", ["ipa-gnn", "trace-rnn"])
@pytest.mark.parametrize("hidden", [24, 200])
@pytest.mark.parametrize("programs", [24, 600])
def test_half_precision_stays_close_to_float32(name: str, hidden: int, programs: int) -> None:
    # On a Hopper GPU these are the persistent kernels: with one block a cluster and with seven, with one group and two.
    settings = config(name, batch_size=programs, algorithm="sgd", model=model_config(name, hidden=hidden))
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
    settings = config("ipa-gnn", precision="bf16")
    weights = []
    for _ in range(2):
        step = make_step(build_model(settings.model, 0), settings, GPU)
        for table in TABLES:
            step(step.prepare(table))
        weights.append(step.weights())
    for key, weight in weights[0].items():
        assert torch.equal(weights[1][key], weight), key
