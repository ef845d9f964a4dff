"""Several processes, as `torchrun` starts them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ipagnn._common.toml import to_toml
from ipagnn.training import RunFolder, TrainConfig, train
from ipagnn.training.processes import arithmetic, choose_device, join_processes
from ipagnn.training.runs.checkpoint import Checkpoint


def test_two_processes_give_the_weights_of_one_with_the_joint_batch(
    tiny: TrainConfig,
    tmp_path: Path,
    final: Callable[[Path], dict[str, torch.Tensor]],
    lines: Callable[[Path], list[dict[str, object]]],
) -> None:
    config = tiny.replace(bucket_batches=3, max_grad_norm=0.3)
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


@pytest.mark.slow
@pytest.mark.parametrize("worlds", [(2, 1), (1, 2)])
def test_killed_it_goes_on_in_another_number_of_processes(
    tiny: TrainConfig,
    tmp_path: Path,
    final: Callable[[Path], dict[str, torch.Tensor]],
    worlds: tuple[int, int],
) -> None:
    """`kill -9` of all processes in the middle; the others end with the weights of a run that nothing stopped."""
    config = tiny.replace(examples=4_800, checkpoint_steps=20, validation_every=1_600)
    file = tmp_path / "config.toml"
    file.write_text(to_toml(config.to_dict()))
    train(config, tmp_path / "whole")
    run = tmp_path / "r"

    def start(world: int) -> "subprocess.Popen[bytes]":
        launch = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(world), "-m"]
        command = [sys.executable, "-m", *launch, "ipagnn", "train", str(run), "--config", str(file)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)

    first = start(worlds[0])
    while first.poll() is None and not RunFolder(run).last.is_file():
        time.sleep(0.002)
    assert first.poll() is None, first.communicate()
    for pid in [*_children(first.pid), first.pid]:  # workers have process groups of their own
        os.kill(pid, signal.SIGKILL)
    first.communicate()
    assert RunFolder(run).result() is None
    assert 0 < Checkpoint.read(RunFolder(run).last).position.step < config.steps
    second = start(worlds[1])
    _, errors = second.communicate(timeout=300)
    assert second.returncode == 0, errors.decode()
    whole, resumed = final(tmp_path / "whole"), final(run)
    assert whole.keys() == resumed.keys()
    for name in whole:
        torch.testing.assert_close(whole[name], resumed[name], rtol=1e-3, atol=1e-5, msg=name)


def _children(pid: int) -> list[int]:
    """Processes that a process started, and those that they started."""
    direct = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [each for child in map(int, direct) for each in (*_children(child), child)]


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


def test_numbers_that_are_not_normal_count_as_zero_while_training(tiny: TrainConfig) -> None:
    small = torch.tensor(1e-40)
    with arithmetic(tiny):
        assert small.mul(1.0).item() == 0
        with arithmetic(tiny):
            pass
        assert small.mul(1.0).item() == 0
    assert small.mul(1.0).item() > 0
