"""Training with other steps than the model is used with."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipagnn.data import StepBudget
from ipagnn.languages.arithmetic import trace_length
from ipagnn.models import build_model, load_model, model_config
from ipagnn.training import TrainConfig, train
from ipagnn.training.sources import data_fingerprint, make_source, steps_of
from ipagnn.training.step import PlainStep


def test_the_model_keeps_its_own_budget(tiny: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    prepare = PlainStep.prepare

    def watch(self: PlainStep, table: Any) -> Any:
        batch = prepare(self, table)
        seen.extend(batch.steps.tolist())
        return batch

    monkeypatch.setattr(PlainStep, "prepare", watch)
    config = tiny.replace(model=model_config("ipa-gnn", tiny.model), budget="static", budget_cap=7, length=8)
    train(config, tmp_path / "r")
    first = make_source(config, None).table(0, 4 * config.data.batch_size)
    wanted = steps_of(config.model.replace(budget=StepBudget("static", cap=7)), first).tolist()
    assert seen[: len(wanted)] == wanted
    assert wanted != steps_of(config.model, first).tolist()
    assert load_model(tmp_path / "r" / "model.safetensors").config == config.model


def test_windows_sort_by_the_steps_of_training() -> None:
    config = TrainConfig().replace(batch_size=8, bucket_batches=4, budget="static", budget_cap=50)
    steps = steps_of(config.trained_model, make_source(config, None).table(0, 32)).reshape(4, 8)
    spans = sorted((row.min(), row.max()) for row in steps)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_steps_by_traces_are_a_quarter_more_and_no_program_needs_more_than_the_most() -> None:
    config = TrainConfig().replace(batch_size=8, budget="trace", budget_cap=20)
    table = make_source(config, None).table(0, 400)
    lengths = np.array([trace_length(program) for program in table])
    assert lengths.max() <= 20
    assert lengths.max() > 16  # so the most is not far
    steps = steps_of(config.trained_model, table)
    assert steps.tolist() == np.minimum(np.ceil(1.25 * (lengths + 2)), 20).astype(int).tolist()
    batch = build_model(config.trained_model).collate(table)
    assert batch.steps.tolist() == steps.tolist()
    assert "at most 20 statements" in data_fingerprint(config, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"budget": "papr"}}, "one of model, static, trace"),
        ({"data": {"budget": "trace"}, "task": "partial"}, "no trace to count"),
        ({"data": {"budget_cap": 0}}, "budget_cap is 0; it must be from 1 to"),
    ],
)
def test_mistakes_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainConfig.from_dict(changes)
