"""Readers of files that anyone may have written end with a sentence, whatever the files hold."""

import importlib.util
import random
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SCRIPT = Path(__file__).parents[2] / "experiments" / "attack.py"
KINDS = ("model", "manifest", "shard", "checkpoint", "config")


@pytest.fixture(scope="module")
def attack() -> ModuleType:
    spec = importlib.util.spec_from_file_location("attack", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["attack"] = module  # dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def samples(attack: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return attack.Samples(tmp_path_factory.mktemp("samples"))


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_refused_with_a_sentence(attack: ModuleType, samples: Any, kind: str) -> None:
    tally = attack.attack_files(kind, 60, time.monotonic() + 60, samples, seed=1)
    assert tally.is_clean
    assert tally.injected == 60
    assert tally.refused > 20


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_any_damage(attack: ModuleType, samples: Any, kind: str) -> None:
    """Hypothesis looks for the damage, and for the least of it."""
    data = samples.path(kind).read_bytes()

    @settings(max_examples=1_000, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(seed=st.integers(0, 2**64), cut=st.none() | st.binary(max_size=200))
    def check(seed: int, cut: bytes | None) -> None:
        damaged = attack.mutated_file(kind, data, random.Random(seed)) if cut is None else cut
        tally = attack.Tally(kind)
        attack.watched(tally, lambda: samples.read(kind, damaged))
        assert tally.is_clean

    check()


def test_programs_and_tokens(attack: ModuleType) -> None:
    for area in (attack.attack_programs, attack.attack_tokens):
        tally = area(1_000, time.monotonic() + 60, 3)
        assert tally.is_clean
        assert 0 < tally.refused < tally.injected == 1_000


@pytest.mark.slow
def test_a_minute_of_everything(attack: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        found = attack.attack(minutes=1, programs=5_000, requests=500, files=100, kills=4, seed=5)
    assert [tally.area for tally in found if not tally.is_clean] == []
