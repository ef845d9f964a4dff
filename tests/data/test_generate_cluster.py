"""A data set made by two Ray nodes, one of which is lost in the middle."""

from pathlib import Path

import pytest

from ipagnn.data import generate, read_shards
from ipagnn.data.manifest import MANIFEST

ARGUMENTS = {"task": "full", "split": "train", "count": 20_000, "seed": 3, "shard_size": 1_000}


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # Ray's own
def test_a_node_that_is_lost_does_not_change_a_byte(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    generate(tmp_path / "local", **ARGUMENTS)  # type: ignore[arg-type]
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    other = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    lost: list[int] = []

    def lose(programs: int) -> None:
        if not lost:
            cluster.remove_node(other, allow_graceful=False)
            lost.append(programs)

    try:
        assert sum(node["Alive"] for node in ray.nodes()) == 2
        generate(tmp_path / "cluster", **ARGUMENTS, on="ray", progress=lose)  # type: ignore[arg-type]
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert lost
    assert lost[0] < ARGUMENTS["count"]
    read_shards(tmp_path / "cluster").verify()
    for path in [*(tmp_path / "local").glob("*.parquet"), tmp_path / "local" / MANIFEST]:
        assert (tmp_path / "cluster" / path.name).read_bytes() == path.read_bytes()
