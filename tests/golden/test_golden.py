"""What the code computes is what it computed when the golden files were made; `make.py` tells what they hold."""

import copy
import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

HERE = Path(__file__).parent
MAKE = runpy.run_path(str(HERE / "make.py"))
GOLDEN: dict[str, Any] = json.loads((HERE / "golden.json").read_text())
CASES = [(section, name) for section, (_, names) in MAKE["SECTIONS"].items() for name in names]
TOLERANCE = {"training": 1e-3}
"""Of floats, where it is not 1e-4: another CPU rounds otherwise, and ten steps amplify it."""


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(("section", "name"), CASES)
def test_is_as_it_was(section: str, name: str) -> None:
    if name not in GOLDEN[section]:
        pytest.fail(f"golden.json has no {name} among its {section}; add it with `python tests/golden/make.py`.")
    found = json.loads(json.dumps(MAKE["SECTIONS"][section][0](name)))
    assert MAKE["differences"](GOLDEN[section][name], found, TOLERANCE.get(section, 1e-4)) == []


def test_nothing_has_gone() -> None:
    for section, there in GOLDEN.items():
        assert there.keys() == set(MAKE["SECTIONS"][section][1])


def test_comparison_sees_values_hashes_and_names() -> None:
    differences, golden = MAKE["differences"], GOLDEN["training"]["ipa-gnn"]
    found = copy.deepcopy(golden)
    found["loss"]["bits"] = "other"
    assert differences(golden, found, 1e-3) == []
    assert len(differences(golden, found, 0.0)) == 1
    found["loss"]["values"][3] *= 1.01
    found["steps"][0] += 1
    found["tensors"]["weights.new"] = found["tensors"].pop("weights.output.weight")
    assert len(differences(golden, found, 1e-3)) == 4
