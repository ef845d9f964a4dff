"""Several processes that train one model together, as `torchrun` starts them, and the devices they compute on."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module

import torch
from torch import distributed

from ipagnn.training.config import TrainConfig


@dataclass(frozen=True, slots=True)
class Processes:
    """Which of how many processes this is.

    Attributes:
        rank: Which one; 0 writes the run folder.
        world: How many.
        device: What it computes on.
    """

    rank: int
    world: int
    device: torch.device

    @property
    def writes(self) -> bool:
        """Whether this is the process that writes and reports."""
        return self.rank == 0

    def any(self, here: bool) -> bool:
        """Whether it holds in any process."""
        if self.world == 1:
            return here
        flag = torch.tensor(float(here), device=self.device)
        distributed.all_reduce(flag, distributed.ReduceOp.MAX)
        return bool(flag.item())

    def wait(self) -> None:
        """Until all processes have come here."""
        self.any(False)


def rank_and_world() -> tuple[int, int]:
    """Which of how many processes `torchrun` has started this is; 0 of 1 without it."""
    world = int(os.environ.get("WORLD_SIZE", 1))
    return (int(os.environ["RANK"]) if world > 1 else 0), world


@contextmanager
def join_processes(config: TrainConfig) -> Iterator[Processes]:
    """Meet the other processes that `torchrun` started, if it did, and choose the device.

    Raises:
        ValueError: The batch cannot be shared evenly, or the device is not there.
    """
    rank, world = rank_and_world()
    device = choose_device(config, int(os.environ.get("LOCAL_RANK", 0)) if world > 1 else 0)
    if uneven := [size for size in config.batch_sizes if size % world]:
        raise ValueError(
            f"A batch of {uneven[0]} programs cannot be shared evenly by {world} processes; choose a "
            f"batch_size that {world} divides."
        )
    if world == 1:
        yield Processes(0, 1, device)
        return
    # Optimizers import this sooner or later, and it keeps the process group of that moment in default arguments; a
    # group that is never let go makes gloo abort when the process ends.
    import_module("torch.distributed.nn.functional")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo", rank=rank, world_size=world)
    try:
        yield Processes(rank, world, device)
    finally:
        distributed.destroy_process_group()


def choose_device(config: TrainConfig, local: int = 0) -> torch.device:
    """The device that a config names.

    Args:
        config: Its device, and a precision that the device must have.
        local: Which process of this machine it is for, so that each takes a GPU of its own.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    name = config.run.device
    if name == "auto":
        name = "cuda" if gpus else "cpu"
    if name == "cuda":
        name = f"cuda:{local}"
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= gpus:
        there = f"GPUs cuda:0 to cuda:{gpus - 1}" if gpus else "no GPU that torch can use"
        raise ValueError(f"The device {name} was asked for, but there is {there}; choose device=auto or device=cpu.")
    if config.run.precision == "tf32" and device.type != "cuda":
        raise ValueError("precision is tf32, which only NVIDIA GPUs have, and there is none; choose fp32 or bf16.")
    return device


@contextmanager
def arithmetic(config: TrainConfig) -> Iterator[None]:
    """The precision of fp32 products and the number of threads while the block runs.

    Numbers that are not normal (below 1.2e-38 in fp32) count as 0: many processors take a hundred times as long for
    each, and gradients of what is nearly certain are full of them. Threads that begin within the block do the same.
    """
    precision, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    flushed = not torch.tensor(1e-40).mul(1.0).item()
    torch.set_flush_denormal(True)
    torch.set_float32_matmul_precision("high" if config.run.precision == "tf32" else "highest")
    if config.run.threads:
        torch.set_num_threads(config.run.threads)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.set_num_threads(threads)
        torch.set_flush_denormal(flushed)
