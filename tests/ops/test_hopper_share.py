"""How processes share a GPU."""

import pytest

from ipagnn.training import TrainConfig


def test_each_takes_its_part_of_the_clusters() -> None:
    part = pytest.importorskip("ipagnn.ops.pointer.hopper.launcher", exc_type=ImportError).part  # needs triton
    assert part(15, 1) == 15
    assert (part(15, 4), part(3, 4)) == (3, 1)


def test_it_is_a_setting() -> None:
    assert TrainConfig().replace(gpu_processes=4).run.gpu_processes == 4
    with pytest.raises(ValueError, match="gpu_processes is 0; it must be from 1 to 64"):
        TrainConfig().replace(gpu_processes=0)
