"""Training steps of the environment IPA-GNN on a CPU: compiled code and plain torch, in one run.

    .venv/bin/python benchmarks/environment_step.py [--rounds 5] [--threads 1 2]

A step is forward pass, backward pass and update, on batches of 512 programs of the preset `environment`: of 2 to 3
lines, and of 2 to 10. All take turns, and the fastest of the rounds counts, so that what else the machine does weighs
little. Drawing and planning programs is not counted; it runs in other threads. It asserts nothing.
"""

import argparse
import time
from dataclasses import replace

import torch

from ipagnn.models import build_model
from ipagnn.nn.values.base import Values
from ipagnn.nn.values.classes import Classes
from ipagnn.training.config import TrainConfig
from ipagnn.training.presets import preset
from ipagnn.training.sources import make_source
from ipagnn.training.step import PlainStep

BATCHES = 3


def measure(config: TrainConfig, length: int, rounds: int, threads: list[int]) -> None:
    """Print programs per second of all, and how much faster compiled code is than plain torch on as many threads."""
    stage = replace(config.stages[0], length=length)
    source = make_source(config, None, stage)
    size = stage.batch_size
    step = PlainStep(build_model(config.trained_model, config.seed), config, torch.device("cpu"))
    step.set_rate(1e-4)
    items = [step.prepare(source.table(k * size, size)) for k in range(BATCHES)]
    ways = [(way, count) for count in threads for way in ("compiled", "torch")]
    fastest = {each: [float("inf")] * BATCHES for each in ways}
    follow = Classes.follow_target
    for _ in range(rounds + 1):
        for way, count in ways:
            Classes.follow_target = follow if way == "compiled" else Values.follow_target  # type: ignore[method-assign]
            torch.set_num_threads(count)
            for k, item in enumerate(items):
                began = time.perf_counter()
                step(item)
                fastest[way, count][k] = min(fastest[way, count][k], time.perf_counter() - began)
    Classes.follow_target = follow  # type: ignore[method-assign]
    for count in threads:
        compiled, plain = (BATCHES * size / sum(fastest[way, count]) for way in ("compiled", "torch"))
        print(
            f"  2 to {length:2d} lines, {count} thread(s): compiled code {compiled:6,.0f} programs/s, "
            f"plain torch {plain:6,.0f}: {compiled / plain:.1f} times as fast",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    torch.set_flush_denormal(True)  # as in training
    print("  Training steps of the environment IPA-GNN, float32, batches of 512")
    for length in (3, 10):
        measure(preset("environment"), length, arguments.rounds, arguments.threads)


if __name__ == "__main__":
    main()
