"""Several processes, as `torchrun` starts them."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ipagnn._common.toml import to_toml
from ipagnn.training import TrainConfig, train
from ipagnn.training.processes import choose_device, join_processes


def test_two_processes_give_the_weights_of_one_with_the_joint_batch(
    tiny: TrainConfig,
    tmp_path: Path,
    final: Callable[[Path], dict[str, torch.Tensor]],
    lines: Callable[[Path], list[dict[str, object]]],
) -> None:
    config = tiny.replace(window=3, clip=0.3)
    train(config, tmp_path / "one")
    (tmp_path / "config.toml").write_text(to_toml(config.to_dict()))
    launch = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "ipagnn"]
    command = [sys.executable, "-m", *launch, "train", str(tmp_path / "two"), "--config", str(tmp_path / "config.toml")]
    done = subprocess.run(command, capture_output=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.count(b"has finished after 12 steps") == 1
    one, two = final(tmp_path / "one"), final(tmp_path / "two")
    assert one.keys() == two.keys()
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=1e-4, atol=1e-6, msg=name)
    for a, b in zip(lines(tmp_path / "one"), lines(tmp_path / "two"), strict=True):
        assert a == {k: pytest.approx(v, rel=1e-4) if isinstance(v, float) else v for k, v in b.items()}


def test_a_batch_must_divide(tiny: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(ValueError, match="8 programs cannot be shared evenly by 3 processes"), join_processes(tiny):
        pass


def test_a_device_that_is_not_there_is_named(tiny: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device(tiny) == torch.device("cpu")
    with pytest.raises(ValueError, match="no GPU that torch can use"):
        choose_device(tiny.replace(device="cuda"))
    with pytest.raises(ValueError, match="tf32"):
        choose_device(tiny.replace(precision="tf32"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device(tiny, 1) == torch.device("cuda:1")
    assert choose_device(tiny.replace(device="cuda:0"), 1) == torch.device("cuda:0")
    with pytest.raises(ValueError, match="cuda:0 to cuda:1"):
        choose_device(tiny.replace(device="cuda:2"))
