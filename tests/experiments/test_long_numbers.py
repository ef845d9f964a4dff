"""The script that runs models on long numbers: what it counts, and the figure."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np

from ipagnn.languages.arithmetic import Lengths, Sampler
from ipagnn.languages.arithmetic.automata import true_automaton
from ipagnn.languages.arithmetic.automata.run import statements_of
from ipagnn.languages.arithmetic.vocabulary import ASSIGN


def script() -> ModuleType:
    path = Path(__file__).parents[2] / "experiments" / "long_numbers.py"
    spec = importlib.util.spec_from_file_location("long_numbers", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_right_wrong_and_endless_are_counted_and_drawn(tmp_path: Path) -> None:
    long_numbers = script()
    programs = Sampler("full", Lengths.uniform((5, 20)), seed=2).table(0, 100)
    automata = {statement: true_automaton(*statement) for statement in statements_of(programs)}
    found = long_numbers.score(automata, programs, 18, 1_000_000)
    assert found == {"right": 100, "ended": 100, "programs": 100}
    short = long_numbers.score(automata, programs, 18, 20)
    assert 0 < short["right"] == short["ended"] < 100
    literals = {key: true_automaton(ASSIGN, 1) if key[0] == ASSIGN else each for key, each in automata.items()}
    assert long_numbers.score(literals, programs, 18, 1_000_000)["right"] < 50
    rows = [{"digits": d, "lines": n, **found} for d in long_numbers.DIGITS for n in long_numbers.LENGTHS]
    long_numbers.draw(rows, tmp_path / "map.svg")
    assert (tmp_path / "map.svg").stat().st_size > 1_000
    assert np.prod((len(long_numbers.DIGITS), len(long_numbers.LENGTHS))) == len(rows)
