"""IPA-GNN training steps on a GPU: the captured packed step against the step of any model, in one run.

    PYTHONPATH=src python benchmarks/gpu.py [--hidden 200] [--seconds 4] [--workers 12]

Prints milliseconds a step and examples/s; measures, asserts nothing.
"""

import argparse
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import torch

from ipagnn.data.stream import Source, Stream
from ipagnn.models import build_model, model_config
from ipagnn.ops.pointer.rows import plan_rows
from ipagnn.training.config import TrainConfig
from ipagnn.training.presets import preset
from ipagnn.training.sources import make_source
from ipagnn.training.step import PlainStep

if torch.cuda.is_available():
    from ipagnn.training.graph_step import GraphStep, refuses  # need Triton, which comes with CUDA builds of torch
    from ipagnn.training.message_step import MessageStep

FLOP_A_ROW = 24 * 4  # x H^2: 12 H^2 multiply-adds a token, 4 tokens; twice that again for the backward pass
PEAK = 989e12
"""bf16 FLOP/s of an H100 or H200 without sparsity."""
DEVICE = torch.device("cuda")


def has_gpu() -> bool:
    """Whether there is a GPU to measure on; says which, or that nothing was measured."""
    if not torch.cuda.is_available():
        print("There is no CUDA GPU here, so nothing was measured.")
        return False
    print(torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
    return True


def source(batch: int, window: int, model: str = "ipa-gnn") -> Source:
    """Training programs; in windows of more than one batch sorted by the steps that the model takes."""
    return make_source(TrainConfig(model=model_config(model)).replace(batch_size=batch, bucket_batches=window), None)


def warm_up(step: Callable[[Any], None], prepared: list[Any]) -> None:
    """Compile and capture all: a larger batch discards the graphs of smaller ones, which the second pass makes anew."""
    for item in 2 * prepared:
        step(item)
    torch.cuda.synchronize()


def milliseconds(step: Callable[[Any], None], prepared: list[Any], seconds: float) -> float:
    """Mean time of a step over prepared batches, again and again."""
    warm_up(step, prepared)
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        for item in prepared:
            step(item)
        torch.cuda.synchronize()
        count += len(prepared)
    return 1e3 * (time.perf_counter() - began) / count


def config(hidden: int, batch: int, precision: str, model: str = "ipa-gnn") -> TrainConfig:
    """The paper's settings at some batch size."""
    paper = preset("paper", model)
    size = paper.model.replace(hidden=hidden)
    return paper.replace(model=size, batch_size=batch, precision=precision, device="cuda")


def compare(hidden: int, seconds: float) -> None:
    """The step alone, on batches prepared beforehand."""
    for batch, window, count in ((1024, 1, 16), (1024, 16, 32), (256, 1, 16), (32, 1, 64)):
        tables = [source(batch, window).table(k * batch, batch) for k in range(count)]
        for name, kind, precision in (
            ("captured", GraphStep, "bf16"),
            ("captured", GraphStep, "tf32"),
            ("plain", PlainStep, "bf16"),
            ("plain", PlainStep, "fp32"),
        ):
            if window > 1 and kind is PlainStep:
                continue
            torch.backends.cuda.matmul.allow_tf32 = precision != "fp32"
            settings = config(hidden, batch, precision)
            torch.cuda.reset_peak_memory_stats()
            step = kind(build_model(settings.model, 0), settings, DEVICE)
            some = tables if kind is GraphStep else tables[:4]
            prepared = [step.prepare(table) for table in some]
            time_ms = milliseconds(step, prepared, seconds if kind is GraphStep else 1.0)
            batches = map(build_model(settings.model).collate, tables[:4])
            rows = sum(len(made.graphs.plan(plan_rows)) for made in batches)
            rate = rows / 4 * 3 * FLOP_A_ROW * hidden**2 / time_ms / 1e9
            memory = torch.cuda.max_memory_allocated() / 2**30
            print(
                f"batch {batch:5d} window {window:2d}  {name:13s} {precision}  {time_ms:8.3f} ms a step "
                f"{1e3 * batch / time_ms:10,.0f} examples/s  {rate:6.1f} TFLOP/s, "
                f"{1e12 * rate / PEAK:5.1%} of peak  {memory:5.2f} GiB",
                flush=True,
            )
            del step, prepared


def fed(hidden: int, batch: int, window: int, workers: int, steps: int, model: str = "ipa-gnn") -> None:
    """Training from the stream, at full speed."""
    settings = config(hidden, batch, "bf16", model=model)
    built = build_model(settings.model, 0)
    step = (GraphStep if refuses(built) is None else MessageStep)(built, settings, DEVICE)
    with Stream(source(batch, window, model), batch, step.prepare, threads=workers, ahead=2 * workers) as stream:
        for plan in islice(stream, steps):  # compiles and captures
            step(plan)
        torch.cuda.synchronize()
        began = time.perf_counter()
        for plan in islice(stream, steps):
            step(plan)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - began
    metrics = step.metrics()
    print(
        f"{model:12s} batch {batch:5d} window {window:2d}  fed by {workers} threads: "
        f"{1e3 * seconds / steps:8.3f} ms a step {batch * steps / seconds:10,.0f} examples/s; "
        f"loss {metrics.loss:.3f}",
        flush=True,
    )


def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--workers", type=int, default=12)
    options = parser.parse_args()
    if not has_gpu():
        return
    for batch, window in ((1024, 1), (1024, 16), (32, 1)):
        fed(options.hidden, batch, window, options.workers, 500)
    compare(options.hidden, options.seconds)


if __name__ == "__main__":
    main()
