"""A run of a second or less, and helpers to look at what it left."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ipagnn.training import RunFolder, TrainConfig, preset, read_metrics
from ipagnn.training.runs.checkpoint import Checkpoint

TIMES = ("seconds", "examples_per_second", "memory_mb")


@pytest.fixture
def tiny() -> TrainConfig:
    """Twelve steps, looked at every two, a checkpoint every four, three validations."""
    smoke = preset("smoke", "line-rnn")
    return smoke.replace(
        model=smoke.model.replace(hidden=4),
        batch_size=8,
        examples=96,
        validation_count=20,
        validation_every=32,
        log_every=2,
        checkpoint_every=0.0,
        checkpoint_steps=4,
        averaging=0.9,
        schedule="cosine",
        warmup=16,
    )


@pytest.fixture
def final() -> Callable[[Path], dict[str, torch.Tensor]]:
    """All tensors that a run ends with: weights, moments, average, and the best weights."""

    def read(run: Path) -> dict[str, torch.Tensor]:
        folder = RunFolder(run)
        last, best = Checkpoint.read(folder.last), Checkpoint.read(folder.best)
        return {
            **{f"weights.{name}": x for name, x in last.weights.items()},
            **{f"state.{name}": x for name, x in last.state.items()},
            **{f"best.{name}": x for name, x in best.weights.items()},
        }

    return read


@pytest.fixture
def lines() -> Callable[[Path], list[dict[str, object]]]:
    """The metrics of a run without what the clock decides."""

    def read(run: Path) -> list[dict[str, object]]:
        return [{k: v for k, v in line.items() if k not in TIMES} for line in read_metrics(RunFolder(run))]

    return read


@pytest.fixture
def same() -> Callable[[dict[str, torch.Tensor], dict[str, torch.Tensor]], bool]:
    """Whether two sets of tensors are equal bit for bit."""

    def compare(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
        return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)

    return compare
