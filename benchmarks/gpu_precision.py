"""One training run in fp32 and again in bf16, on a GPU: do their losses lie on each other?

    PYTHONPATH=src python benchmarks/gpu_precision.py [--out benchmarks/precision] [--seconds 180] [--batch 32]

fp32 trains for so long, then bf16 for as many steps, on the same programs from the same weights. Adds the losses to
OUT.json, by batch and rate, and draws all that are there: OUT.svg.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from ipagnn.reporting.style import BLACK, ORANGE, figure_bytes, style
from ipagnn.training import RunFolder, read_metrics, train
from ipagnn.training.config import TrainConfig

LOG_EVERY = 250


def measure(seconds: float, batch: int, rate: float) -> dict[str, Any]:
    """The mean loss of every LOG_EVERY steps, in both precisions."""
    found: dict[str, Any] = {"batch": batch, "rate": rate, "every": LOG_EVERY, "gpu": torch.cuda.get_device_name()}
    config = TrainConfig().replace(
        batch_size=batch,
        learning_rate=rate,
        precision="fp32",
        device="cuda",
        workers=3,
        examples=1_000_000 * batch,
        validation_count=100,
        validation_every=2_000_000 * batch,
        log_every=LOG_EVERY,
        checkpoint_every=0.0,
    )
    with tempfile.TemporaryDirectory() as folder:
        done = train(config, f"{folder}/fp32", time_limit=seconds)
        train(config.replace(precision="bf16", examples=done.examples), f"{folder}/bf16")
        for precision in ("fp32", "bf16"):
            lines = [line for line in read_metrics(RunFolder(f"{folder}/{precision}")) if line["kind"] == "train"]
            found[precision] = [round(line["loss"], 4) for line in lines]
            found[f"{precision}_seconds"] = round(lines[-1]["seconds"], 1)
    return found


def draw(pairs: list[dict[str, Any]]) -> Figure:
    """The losses of each pair of runs, in a panel of its own."""
    with style():
        figure = Figure(figsize=(3.2 * len(pairs), 2.4), layout="constrained")
        for axes, pair in zip(figure.subplots(1, len(pairs), squeeze=False)[0], pairs, strict=True):
            steps = [pair["every"] * (i + 1) for i in range(len(pair["fp32"]))]
            axes.plot(steps, pair["fp32"], color=BLACK, linewidth=2.2, label="fp32")
            axes.plot(steps, pair["bf16"], color=ORANGE, linewidth=1.0, label="bf16")
            axes.set(xlabel=f"step (batch {pair['batch']}, Adam at {pair['rate']:g})", ylabel="training loss, nats")
            axes.legend(frameon=False)
        return figure


def main() -> None:
    """Measure and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/precision"))
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=1e-3)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("There is no CUDA GPU here, so nothing was measured.")
        return
    kept = options.out.with_suffix(".json")
    pairs = json.loads(kept.read_text()) if kept.exists() else []
    pair = measure(options.seconds, options.batch, options.rate)
    pairs = [*(each for each in pairs if (each["batch"], each["rate"]) != (options.batch, options.rate)), pair]
    kept.write_text(json.dumps(pairs) + "\n")
    options.out.with_suffix(".svg").write_bytes(figure_bytes(draw(pairs), "svg"))
    gaps = [a - b for a, b in zip(pair["bf16"], pair["fp32"], strict=True)]
    print(
        f"batch {options.batch}, {len(gaps) * LOG_EVERY:,} steps, {pair['fp32_seconds']} s in fp32, "
        f"{pair['bf16_seconds']} in bf16: fp32 from {pair['fp32'][0]:.3f} to {pair['fp32'][-1]:.3f}; bf16 less fp32 "
        f"{sum(gaps) / len(gaps):+.4f} on average, from {min(gaps):+.4f} to {max(gaps):+.4f}"
    )


if __name__ == "__main__":
    main()
