"""Training steps of the other seven models on a GPU: examples/s, and the share of the chip's peak.

    PYTHONPATH=src python benchmarks/gpu_models.py [--models ggnn no-execute] [--hidden 200] [--batch 1024] [--fed 500]

The products counted are those of the formulas, over the rows that the kernels run, with nothing padded; forward once
and backward twice. Measures, asserts nothing but that every step of `--fed` read the batch that was made.
"""

import argparse
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch

from ipagnn.data.splits import training_sampler
from ipagnn.data.stream import Source, Stream
from ipagnn.models import ModelConfig, build_model
from ipagnn.models.message_plan import MessagePlan
from ipagnn.models.packed_plan import Plan
from ipagnn.training.config import TrainConfig
from ipagnn.training.sources import Windows
from ipagnn.training.step import make_step

MODELS = ("ggnn", "no-execute", "no-control", "r-gat", "line-rnn", "trace-rnn", "hard-ip-rnn")
PEAK = 989e12
"""bf16 FLOP/s of an H100 or H200 without sparsity."""
DEVICE = torch.device("cuda")


def source(batch: int, window: int) -> Source:
    """Training programs, sorted by T(x) within windows if there is more than one batch in a window."""
    sampler = training_sampler("full", 10, 0)
    return Windows(sampler, batch, window, 0) if window > 1 else sampler


def multiply_adds(name: str, plan: Any) -> float:
    """Of a forward pass, in units of H^2."""
    statement = 4 * 12  # an LSTM of two layers over four tokens; its first input product is a table
    if isinstance(plan, Plan):
        return statement * float(plan.offsets.flatten()[-1])
    if not isinstance(plan, MessagePlan):
        return float("nan")
    rows = int(plan.offsets[-1])
    going_on = int((plan.next[:rows] >= 0).sum())
    sent = int((plan.departure_offsets.diff()[: plan.capacity.slots * rows] > 0).sum())
    statements = statement * int(plan.waves[1])
    if name == "no-control":
        return statement * float(plan.waves[1:-1:2].sub(plan.waves[:-1:2]).sum())
    if name == "r-gat":
        return statements + sent
    receiving = int((plan.arrival_offsets.diff()[:rows] > 0).sum())
    return statements + 4 * (sent + 3 * receiving + 3 * going_on)


def measure(name: str, hidden: int, batch: int, window: int, seconds: float) -> None:
    """The step alone, on batches prepared beforehand."""
    settings = TrainConfig(ModelConfig(name, hidden=hidden), batch_size=batch, precision="bf16", device="cuda")
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.cuda.reset_peak_memory_stats()
    step = make_step(build_model(settings.model, 0), settings, DEVICE)
    tables = [source(batch, window).table(k * batch, batch) for k in range(16)]
    began = time.perf_counter()
    prepared = [step.prepare(table) for table in tables]
    preparing = (time.perf_counter() - began) / len(tables)
    for item in prepared:
        step(item)
    torch.cuda.synchronize()
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        for item in prepared:
            step(item)
        torch.cuda.synchronize()
        count += len(prepared)
    passed = (time.perf_counter() - began) / count
    work = sum(multiply_adds(name, item) for item in prepared) / len(prepared) * 2 * 3 * hidden**2
    print(
        f"{name:12s} batch {batch:5d} window {window:2d}  {type(step).__name__:11s} {1e3 * passed:7.3f} ms a step "
        f"{batch / passed:10,.0f} examples/s  {work / passed / 1e12:6.1f} TFLOP/s, {work / passed / PEAK:5.1%} of peak "
        f"{torch.cuda.max_memory_allocated() / 2**30:5.2f} GiB  plan {1e3 * preparing:5.1f} ms  "
        f"loss {step.metrics().loss:.3f}",
        flush=True,
    )


def profile(name: str, hidden: int, batch: int) -> None:
    """Where a step's time goes, by kernel."""
    settings = TrainConfig(ModelConfig(name, hidden=hidden), batch_size=batch, precision="bf16", device="cuda")
    step = make_step(build_model(settings.model, 0), settings, DEVICE)
    prepared = [step.prepare(source(batch, 16).table(k * batch, batch)) for k in range(16)]
    for item in prepared:
        step(item)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as told:
        for item in prepared:
            step(item)
        torch.cuda.synchronize()
    events = sorted(told.key_averages(), key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in events) / 1e3 / len(prepared)
    print(f"{name}: {total:.3f} ms of kernels a step")
    for event in events[:20]:
        time_ms, calls = event.self_device_time_total / 1e3 / len(prepared), event.count / len(prepared)
        print(f"  {time_ms:7.3f} ms {calls:6.1f} calls  {event.key[:90]}", flush=True)


def fed(name: str, hidden: int, batch: int, workers: int, steps: int) -> None:
    """Training from the stream, at full speed, each step's plan held against the one that was made."""
    from ipagnn.training.message_step import MessageStep  # needs Triton, which comes with CUDA builds of torch

    settings = TrainConfig(ModelConfig(name, hidden=hidden), batch_size=batch, precision="bf16", device="cuda")
    step = MessageStep(build_model(settings.model, 0), settings, DEVICE, watch=2 * steps)
    made: list[int] = []
    with Stream(source(batch, 16), batch, step.prepare, threads=workers, ahead=2 * workers) as stream:

        def plans(count: int) -> Iterator[MessagePlan]:
            for plan in islice(stream, count):
                made.append(int(plan.flat.sum(dtype=torch.int64)))
                yield plan

        for plan in plans(steps):  # compiles and captures
            step(plan)
        torch.cuda.synchronize()
        began = time.perf_counter()
        for plan in plans(steps):
            step(plan)
        torch.cuda.synchronize()
        passed = (time.perf_counter() - began) / steps
    same = step.seen.tolist() == made
    print(
        f"{name:12s} batch {batch:5d} window 16  fed by {workers} threads: {1e3 * passed:7.3f} ms a step "
        f"{batch / passed:10,.0f} examples/s; of {2 * steps} steps all read the plan that was made: {same}; "
        f"loss {step.metrics().loss:.3f}",
        flush=True,
    )
    assert same


def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=MODELS)
    parser.add_argument("--hidden", type=int, default=200)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--windows", type=int, nargs="*", default=[1, 16])
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--fed", type=int, default=0, help="train so many steps from the stream, twice")
    parser.add_argument("--profile", action="store_true", help="also tell where the time goes, by kernel")
    parser.add_argument("--workers", type=int, default=12)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("There is no CUDA GPU here, so nothing was measured.")
        return
    print(torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
    for name in options.models:
        for window in options.windows:
            measure(name, options.hidden, options.batch, window, options.seconds)
        if options.profile:
            profile(name, options.hidden, options.batch)
        if options.fed and name in MODELS[:4]:
            fed(name, options.hidden, options.batch, options.workers, options.fed)


if __name__ == "__main__":
    main()
