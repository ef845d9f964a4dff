"""Training steps of the other seven models on a GPU: examples/s, and the share of the chip's peak.

    PYTHONPATH=src python benchmarks/gpu_models.py [--models ggnn no-execute] [--hidden 200] [--batch 1024] [--fed 500]

The products counted are those of the formulas, over the rows that the kernels run, with nothing padded; forward once
and backward twice. Measures, asserts nothing.
"""

import argparse
import time
from typing import Any

import torch
from gpu import DEVICE, PEAK, config, fed, has_gpu, milliseconds, source, warm_up  # beside this file

from ipagnn.models import build_model
from ipagnn.ops.messages.triton.plan import MessagePlan
from ipagnn.ops.pointer.triton.plan import Plan
from ipagnn.training.step import make_step

MODELS = ("ggnn", "no-execute", "no-control", "r-gat", "line-rnn", "trace-rnn", "hard-ip-rnn")


def multiply_adds(plan: Any) -> float:
    """Of a forward pass, in units of H^2."""
    statement = 4 * 12  # an LSTM of two layers over four tokens; its first input product is a table
    if isinstance(plan, Plan):
        return statement * float(plan.offsets.flatten()[-1])
    if not isinstance(plan, MessagePlan):
        return float("nan")
    rows = int(plan.offsets[-1])
    updated = plan.next[:rows] >= 0
    sent = int((plan.departure_offsets.diff()[: plan.capacity.slots * rows] > 0).sum())
    statements = statement * int(plan.waves[1])
    receiving = int(((plan.arrival_offsets.diff()[:rows] > 0) & updated).sum())
    return statements + 4 * (sent + 3 * receiving + 3 * int(updated.sum()))


def measure(name: str, hidden: int, batch: int, window: int, seconds: float) -> None:
    """The step alone, on batches prepared beforehand."""
    settings = config(hidden, batch, "bf16", model=name)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.cuda.reset_peak_memory_stats()
    step = make_step(build_model(settings.model, 0), settings, DEVICE)
    tables = [source(batch, window, name).table(k * batch, batch) for k in range(16)]
    began = time.perf_counter()
    prepared = [step.prepare(table) for table in tables]
    preparing = (time.perf_counter() - began) / len(tables)
    passed = milliseconds(step, prepared, seconds) / 1e3
    work = sum(multiply_adds(item) for item in prepared) / len(prepared) * 2 * 3 * hidden**2
    print(
        f"{name:12s} batch {batch:5d} window {window:2d}  {type(step).__name__:11s} {1e3 * passed:7.3f} ms a step "
        f"{batch / passed:10,.0f} examples/s  {work / passed / 1e12:6.1f} TFLOP/s, {work / passed / PEAK:5.1%} of peak "
        f"{torch.cuda.max_memory_allocated() / 2**30:5.2f} GiB  plan {1e3 * preparing:5.1f} ms  "
        f"loss {step.metrics().loss:.3f}",
        flush=True,
    )


def profile(name: str, hidden: int, batch: int) -> None:
    """Where a step's time goes, by kernel."""
    settings = config(hidden, batch, "bf16", model=name)
    step = make_step(build_model(settings.model, 0), settings, DEVICE)
    prepared = [step.prepare(source(batch, 16, name).table(k * batch, batch)) for k in range(16)]
    warm_up(step, prepared)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        for item in prepared:
            step(item)
        torch.cuda.synchronize()
    events = sorted(found.key_averages(), key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in events) / 1e3 / len(prepared)
    print(f"{name}: {total:.3f} ms of kernels a step")
    for event in events[:20]:
        time_ms, calls = event.self_device_time_total / 1e3 / len(prepared), event.count / len(prepared)
        print(f"  {time_ms:7.3f} ms {calls:6.1f} calls  {event.key[:90]}", flush=True)


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
    if not has_gpu():
        return
    for name in options.models:
        for window in options.windows:
            measure(name, options.hidden, options.batch, window, options.seconds)
        if options.profile:
            profile(name, options.hidden, options.batch)
        if options.fed:
            fed(options.hidden, options.batch, 16, options.workers, options.fed, name)


if __name__ == "__main__":
    main()
