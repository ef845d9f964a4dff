"""IPA-GNN training steps on a CPU: compiled rows against the reference execution, in one run.

    .venv/bin/python benchmarks/cpu_step.py [--rounds 5] [--one-core]

A step is forward pass, backward pass and update, on the same batches of training lengths. The two take turns, and the
fastest of the rounds counts, so that what else the machine does weighs little; less still with `--one-core`, which uses
one thread and counts the time that a core worked rather than the time that passed. It asserts nothing.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch

from ipagnn.data.splits import training_sampler
from ipagnn.models import build_model
from ipagnn.ops.pointer.rows import plan_rows
from ipagnn.training.config import TrainConfig
from ipagnn.training.step import PlainStep

FLOP_A_ROW = 24 * 4 * 3  # x H^2: 12 H^2 multiply-adds a token, 4 tokens; twice that again for the backward pass
BATCHES = 2


def compare(hidden: int, batch: int, rounds: int, clock: Callable[[], float]) -> None:
    """Print milliseconds a step of both, and their ratio."""
    tables = [training_sampler("full", 10, 0).table(k * batch, batch) for k in range(BATCHES)]
    steps, prepared = {}, {}
    fastest = {name: [float("inf")] * BATCHES for name in ("reference", "auto")}
    for name in fastest:
        model = build_model("ipa-gnn", 0, hidden=hidden)
        model.forward = partial(model.forward, execution=name)  # type: ignore[method-assign]
        config = TrainConfig(model=model.config).replace(batch_size=batch, device="cpu")
        steps[name] = PlainStep(model, config, torch.device("cpu"))
        prepared[name] = [steps[name].prepare(table) for table in tables]
    for _ in range(rounds):
        for name, times in fastest.items():
            for k, item in enumerate(prepared[name]):
                began = clock()
                steps[name](item)
                times[k] = min(times[k], clock() - began)
    dense, packed = (1e3 * sum(times) / BATCHES for times in fastest.values())
    rows = sum(len(item.graphs.plan(plan_rows)) for item in prepared["auto"]) / BATCHES
    print(
        f"  H {hidden:3d} batch {batch:3d}: reference {dense:7.1f} ms a step, compiled rows {packed:6.1f} ms "
        f"({1e3 * batch / packed:,.0f} examples/s, {rows * FLOP_A_ROW * hidden**2 / packed / 1e6:.0f} GFLOP/s), "
        f"{dense / packed:.1f} times as fast",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one-core", action="store_true")
    arguments = parser.parse_args()
    if arguments.one_core:
        torch.set_num_threads(1)
    print(f"  IPA-GNN training steps, float32, {torch.get_num_threads()} thread(s)")
    for hidden in (200, 64):
        for batch in (32, 128):
            compare(hidden, batch, arguments.rounds, time.process_time if arguments.one_core else time.perf_counter)


if __name__ == "__main__":
    main()
