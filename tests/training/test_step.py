import math
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from ipagnn.data.contract import Batch
from ipagnn.models import IPAGNN, MODELS, EnvIPAGNN, Output, ProgramModel, build_model
from ipagnn.training import make_step, preset
from ipagnn.training.sources import make_source
from ipagnn.training.step import STEPS, Tally

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def test_tally_by_hand() -> None:
    tally = Tally(CPU)

    def add(programs: int, loss: float, correct: int, norm: float, failed: int) -> None:
        right = torch.arange(programs) < correct
        tally.add(torch.full((programs,), loss), right, torch.tensor(norm), torch.tensor(float(failed)))

    add(4, 2.0, 1, 3.0, 0)
    add(4, math.nan, 2, math.inf, 1)
    add(2, 5.0, 2, 1.0, 0)
    add(4, math.nan, 0, math.nan, 1)
    metrics = tally.read()
    assert (metrics.steps, metrics.skipped, metrics.first_skipped) == (4, 2, 1)
    assert metrics.loss == pytest.approx((4 * 2 + 2 * 5) / 6)
    assert metrics.accuracy == pytest.approx(3 / 6)
    assert (metrics.norm, metrics.largest_norm) == (2.0, 3.0)
    empty = tally.read()
    assert (empty.steps, empty.skipped, empty.first_skipped) == (0, 0, -1)
    assert math.isnan(empty.loss)


@pytest.mark.parametrize("name", list(MODELS))
def test_metrics_are_those_before_the_update(name: str) -> None:
    config = preset("smoke", name)
    table = make_source(config, None).table(0, 32)
    model = build_model(config.model, seed=3)
    batch = model.collate(table)
    output = model(batch, record=model.learns_from)
    expected, correct = model.loss(output, batch).mean(), model.correct(output, batch)
    if type(model).loss is ProgramModel.loss:
        torch.testing.assert_close(expected, cross_entropy(output.logits, batch.target))
        assert torch.equal(correct, output.logits.argmax(1) == batch.target)
    expected.backward()
    norm = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).norm()
    step = make_step(build_model(config.model, seed=3), config, CPU)
    before = step.weights()
    step(step.prepare(table))
    metrics = step.metrics()
    assert metrics.loss == pytest.approx(expected.item(), rel=1e-5)
    assert metrics.accuracy == pytest.approx(float(correct.float().mean()))
    assert metrics.norm == pytest.approx(float(norm), rel=1e-4)
    assert any(not torch.equal(before[key], x) for key, x in step.weights().items())


@pytest.mark.parametrize("name", list(MODELS))
def test_bf16_keeps_weights_in_fp32_and_the_loss_near(name: str) -> None:
    config = preset("smoke", name)
    source = make_source(config, None)
    losses = {}
    for precision in ("fp32", "bf16"):
        step = make_step(build_model(config.model), config.replace(precision=precision), CPU)
        for k in range(3):
            step(step.prepare(source.table(32 * k, 32)))
        losses[precision] = step.metrics().loss
        assert {x.dtype for x in step.weights().values()} == {torch.float32}
        assert all(x.isfinite().all() for x in step.weights().values())
    assert losses["fp32"] != losses["bf16"]
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=0.02)


def test_weights_are_copies() -> None:
    config = preset("smoke", "line-rnn").replace(averaging=0.5)
    step = make_step(build_model(config.model), config, CPU)
    for tensors in (step.weights(), step.weights(averaged=True), step.state_dict()):
        for tensor in tensors.values():
            tensor.fill_(7)
    assert not any((x == 7).all() for x in (*step.weights().values(), *step.weights(averaged=True).values()))
    assert step.state_dict()["applied"] == 0


def test_steps_say_why_they_do_not_train_a_model(caplog: pytest.LogCaptureFixture) -> None:
    class Halved(IPAGNN):
        def forward(self, batch: Batch, **options: Any) -> Output:
            output = super().forward(batch, **options)
            return Output({"value": output.logits / 2}, output.recorded)

    assert IPAGNN(hidden=4).kernels is not None
    assert Halved(hidden=4).kernels is None, "kernels compute another function than this forward"
    gpu, captured = torch.device("cuda"), STEPS[:-1]
    for step in captured:
        assert step.refuses(IPAGNN(hidden=4), CPU) == "training runs on cpu"
        assert "a loss of its own" in str(step.refuses(EnvIPAGNN(hidden=4), gpu))
    config = preset("smoke")
    with caplog.at_level("INFO", logger="ipagnn.training"):
        make_step(build_model(config.model), config, CPU)
    assert caplog.messages[-1].startswith("Training step: plain (not captured (GraphStep), as training runs on cpu")
