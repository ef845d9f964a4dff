"""Readers of files that anyone may have written end with a sentence, whatever the files hold."""

import importlib
import random
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipagnn.data import DataSetError

from ..modules import EXPERIMENTS, load

KINDS = ("model", "manifest", "shard", "checkpoint", "config")


@pytest.fixture(scope="module")
def attack() -> Callable[[str], ModuleType]:
    """A module of the attack by its name."""
    sys.modules["attack"] = load(EXPERIMENTS / "attack" / "__init__.py", "attack")
    return lambda name: importlib.import_module(f"attack.{name}")


@pytest.fixture(scope="module")
def samples(attack: Callable[[str], ModuleType], tmp_path_factory: pytest.TempPathFactory) -> Any:
    return attack("readers").Samples(tmp_path_factory.mktemp("samples"))


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_refused_with_a_sentence(
    attack: Callable[[str], ModuleType], samples: Any, kind: str
) -> None:
    tally = attack("readers").attack_files(kind, 60, time.monotonic() + 60, samples, seed=1)
    assert tally.is_clean
    assert tally.injected == 60
    assert tally.refused > 20


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_any_damage(attack: Callable[[str], ModuleType], samples: Any, kind: str) -> None:
    """Hypothesis looks for the damage, and for the least of it."""
    data = samples.path(kind).read_bytes()

    @settings(max_examples=1_000, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(seed=st.integers(0, 2**64), cut=st.none() | st.binary(max_size=200))
    def check(seed: int, cut: bytes | None) -> None:
        damaged = attack("mutations").mutated_file(kind, data, random.Random(seed)) if cut is None else cut
        tally = attack("tally").Tally(kind)

        def read() -> None:
            tally.wrong += not samples.read(kind, damaged)

        attack("tally").watched(tally, read)
        assert tally.is_clean

    check()


def test_programs_and_tokens(attack: Callable[[str], ModuleType]) -> None:
    for area in (attack("readers").attack_programs, attack("readers").attack_tokens):
        tally = area(1_000, time.monotonic() + 60, 3)
        assert tally.is_clean
        assert 0 < tally.refused < tally.injected == 1_000


def test_rows_that_are_read_are_true(attack: Callable[[str], ModuleType], samples: Any) -> None:
    """Changes of single rows, in Parquet that is whole: programs, lengths and targets."""
    draw, data = random.Random(3), samples.path("shard").read_bytes()
    read = 0
    for _ in range(40):
        try:
            assert samples.read("shard", attack("mutations").mutated_rows(data, draw))
            read += 1
        except DataSetError:
            continue
    assert 0 < read < 20


@pytest.mark.slow
def test_a_minute_of_everything(attack: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        found = attack("__main__").attack(minutes=1, programs=5_000, requests=500, files=100, kills=4, seed=5)
    assert [tally.area for tally in found if not tally.is_clean] == []
