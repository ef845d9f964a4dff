"""Evaluation of all 4,500 test programs on a GPU, exactly: seconds, TFLOP/s, and what precision does to the answers.

    PYTHONPATH=src python benchmarks/gpu_evaluation.py [--count 500] [--models ipa-gnn,hard-ip-rnn,...] [--cpu 100]

The weights are those of the package (`ipa-gnn-full`); models of other parameters have random ones. Prints what it
measures and asserts nothing.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ipagnn.data import build_test_set
from ipagnn.evaluation import evaluate
from ipagnn.languages.arithmetic import ProgramTable
from ipagnn.models import MODELS, ProgramModel, build_model, load_model
from ipagnn.ops import steps_to_exit

FLOP_A_ROW = 96  # x H^2: 12 H^2 multiply-adds a token, 4 tokens
DEVICE = torch.device("cuda")


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """What a function gives, and its seconds."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    result = function()
    torch.cuda.synchronize()
    return result, time.perf_counter() - began


def one_batch(model: ProgramModel, table: ProgramTable) -> None:
    """One batch of all programs."""
    collated, preparing = timed(lambda: model.collate(table))
    batch, copying = timed(lambda: collated.to(DEVICE))
    part = collated.steps[collated.node_program.long()] - steps_to_exit(collated.graphs)
    rows = int((part + 1).clamp(min=0).sum()) - len(table)
    print(f"{len(table)} programs, {len(batch.true):,} nodes; at most {rows / 1e6:.1f} million rows")
    print(f"data {preparing:.3f} s, copying {copying:.3f} s")
    with torch.inference_mode():
        _, first = timed(lambda: model(batch))
        torch.cuda.reset_peak_memory_stats()
        output, again = timed(lambda: model(batch))
    right = (output.logits.argmax(dim=1) == batch.target).float().mean().item()
    work = rows * FLOP_A_ROW * model.config.hidden**2 / 1e12
    print(
        f"{again:7.2f} s (first time {first:.2f} s), {work / again:6.1f} TFLOP/s or less, "
        f"{torch.cuda.max_memory_allocated() / 1e9:.1f} GB; accuracy {right:.4f}"
    )


def everything(names: list[str], table: ProgramTable, hidden: int) -> None:
    """`evaluate` as the command runs it, with and without the pointer's numbers."""
    for name in names:
        if name in ("ipa-gnn", "hard-ip-rnn"):
            model = load_model("ipa-gnn-full", name=name)
        else:
            model = build_model(name, hidden=hidden).eval()
        evaluate(model, table.slice(0, 8), device=DEVICE)  # compiles
        for pointer in (False, True):
            torch.cuda.reset_peak_memory_stats()
            result, seconds = timed(lambda: evaluate(model, table, pointer=pointer))  # noqa: B023
            found = f"{result.correct.mean():.4f}, {torch.cuda.max_memory_allocated() / 1e9:.1f} GB"
            print(f"evaluate {name}, pointer={pointer}: {seconds:.2f} s, accuracy {found}", flush=True)


def against_cpu(table: ProgramTable, count: int) -> None:
    """Programs of all lengths that a CPU can bear, there and here."""
    model = load_model("ipa-gnn-full")
    steps = model.collate(table).steps.numpy()
    some = np.flatnonzero(steps <= np.median(steps))
    some = some[np.linspace(0, len(some) - 1, count).astype(int)]
    here, seconds = timed(lambda: evaluate(model, table.take(some), device="cpu"))
    there = evaluate(model, table.take(some), device=DEVICE)
    apart = np.abs(here.margin - there.margin).max()
    agree = (here.prediction == there.prediction).mean()
    print(f"{count} programs on the CPU, {seconds:.1f} s: same answers {agree:.4f}, margins within {apart:.5f}")


def main() -> None:
    """Run everything that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=500, help="programs of each length")
    parser.add_argument("--models", default="ipa-gnn,hard-ip-rnn,trace-rnn,line-rnn", help="or all")
    parser.add_argument("--hidden", type=int, default=200, help="of the models with random weights")
    parser.add_argument("--cpu", type=int, default=100, help="programs that a CPU evaluates too; 0 for none")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("There is no CUDA GPU here, so nothing was measured.")
        return
    table, drawing = timed(lambda: build_test_set("full", arguments.count))
    print(f"{torch.cuda.get_device_name()}; drawing the test set {drawing:.2f} s", flush=True)
    one_batch(load_model("ipa-gnn-full").to(DEVICE), table)
    names = sorted(MODELS) if arguments.models == "all" else arguments.models.split(",")
    everything([name for name in names if name], table, arguments.hidden)
    if arguments.cpu:
        against_cpu(table, arguments.cpu)


if __name__ == "__main__":
    main()
