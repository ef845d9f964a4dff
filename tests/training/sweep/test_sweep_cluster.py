"""A sweep over two Ray nodes, one of which is lost in the middle."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ipagnn.training import RunFolder, TrainConfig, train
from ipagnn.training.sweep.grid import Trial
from ipagnn.training.sweep.run import sweep


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # Ray's own
def test_a_node_that_is_lost_does_not_change_the_table(
    tiny: TrainConfig,
    tmp_path: Path,
    final: Callable[[Path], dict[str, torch.Tensor]],
    same: Callable[[dict[str, torch.Tensor], dict[str, torch.Tensor]], bool],
) -> None:
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    config = tiny.replace(examples=4_000, validation_every=2_000, checkpoint_steps=20, log_every=5, threads=1)
    trials = [Trial(f"seed={seed}", {"seed": seed}, config.replace(seed=seed)) for seed in (0, 1, 2)]
    for trial in trials:
        train(trial.config, tmp_path / "local" / trial.name)
    expected = sweep(tmp_path / "local", trials)  # all have finished: only the table is made

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    other = cluster.add_node(num_cpus=1)
    began: list[str] = []

    def lose() -> None:
        """Take a node away once both have a trial that has a checkpoint."""
        until = time.monotonic() + 240
        while len(began) < 2 and time.monotonic() < until:
            time.sleep(0.01)
            began[:] = [x.name for x in trials if RunFolder(tmp_path / "cluster" / x.name).last.is_file()]
        cluster.remove_node(other, allow_graceful=False)

    watch = threading.Thread(target=lose)
    watch.start()
    try:
        found = sweep(tmp_path / "cluster", trials, address=cluster.address)
    finally:
        watch.join()
        ray.shutdown()
        cluster.shutdown()
    assert len(began) == 2
    assert found == expected
    starts = [len(json.loads((tmp_path / "cluster" / x.name / "run.json").read_text())["starts"]) for x in trials]
    assert sorted(starts) == [1, 1, 2]  # the trial of the lost node went on where it was
    for trial in trials:
        assert same(final(tmp_path / "cluster" / trial.name), final(tmp_path / "local" / trial.name))
