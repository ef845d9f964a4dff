import ctypes
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ipagnn.training import TrainConfig, train
from ipagnn.training.runs.energy import energy_meter

GPU = torch.device("cuda:0")


class Library:
    """NVML with one GPU, whose counter goes up by 1,500 mJ at every reading."""

    def __init__(self, failing: str = "") -> None:
        self.failing, self.millijoules = failing, 7_000
        self.asked = b""

    def nvmlInit_v2(self) -> int:
        return int(self.failing == "init")

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, handle: Any) -> int:
        self.asked = uuid
        return int(self.failing == "handle")

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any, total: Any) -> int:
        self.millijoules += 1_500
        total._obj.value = self.millijoules
        return int(self.failing == "read")


@pytest.fixture(autouse=True)
def _one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid="12-34"))


def test_joules_since_the_meter_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    meter = energy_meter(GPU)
    assert meter is not None
    assert [meter(), meter()] == [1.5, 3.0]
    assert library.asked == b"GPU-12-34"


@pytest.mark.parametrize("failing", ["init", "handle", "read"])
def test_no_meter_where_nobody_measures(failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Library(failing))
    assert energy_meter(GPU) is None
    assert energy_meter(torch.device("cpu")) is None

    def missing(_: str) -> None:
        raise OSError("no such library")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert energy_meter(GPU) is None


def test_energy_adds_up_over_the_starts_of_a_run(
    tiny: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def readings() -> Iterator[float]:
        total = 0.0
        while True:
            total += 10.0
            yield total

    def meter(_: object) -> Any:
        return readings().__next__

    monkeypatch.setattr("ipagnn.training.trainer.energy_meter", meter)
    whole = train(tiny, tmp_path / "whole")
    assert whole.joules is not None
    assert whole.joules > 0
    first = train(tiny, tmp_path / "run", time_limit=0)
    assert first.state == "stopped"
    assert first.joules is not None
    done = train(tiny, tmp_path / "run")
    assert done.joules is not None
    assert done.joules > first.joules

    assert train(tiny, tmp_path / "other", time_limit=0).joules is not None
    monkeypatch.setattr("ipagnn.training.trainer.energy_meter", lambda _: None)
    assert train(tiny, tmp_path / "other").joules is None  # a part of it was not measured
