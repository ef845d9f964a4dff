"""`kill -9` of processes that write files."""

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from .readers import Samples
from .tally import Tally, peak_mb


def digests(folder: Path, pattern: str) -> dict[str, str]:
    """Hashes of files."""
    found = sorted(folder.rglob(pattern))
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def attack_by_killing(count: int, deadline: float, root: Path, samples: Samples, seed: int) -> Tally:
    """`kill -9` at any time; what is done again must end with the same bytes."""
    tally, draw = Tally("kills"), random.Random(seed)
    (root / "config.toml").write_bytes((samples.root / "run" / "config.toml").read_bytes())
    jobs: dict[str, tuple[list[str], str]] = {
        "data": (["generate", "{}", "--count", "100000", "--threads", "1"], "*.parquet"),
        "run": (["train", "{}", "--config", str(root / "config.toml")], "model.safetensors"),
    }
    whole: dict[str, tuple[dict[str, str], float]] = {}
    for name, (arguments, pattern) in jobs.items():
        began = time.monotonic()
        command = [sys.executable, "-m", "ipagnn", *(x.format(root / f"whole-{name}") for x in arguments)]
        subprocess.run(command, check=True, capture_output=True)
        whole[name] = digests(root / f"whole-{name}", pattern), time.monotonic() - began
    number = 0
    while tally.injected < count and time.monotonic() < deadline:
        number += 1
        name = draw.choice(sorted(jobs))
        (arguments, pattern), (expected, usual) = jobs[name], whole[name]
        folder = root / f"{name}-{number}"
        command = [sys.executable, "-m", "ipagnn", *(x.format(folder) for x in arguments)]
        for _ in range(min(3, count - tally.injected)):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                process.wait(draw.uniform(0, usual))
            except subprocess.TimeoutExpired:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
            tally.injected += 1
        done = subprocess.run(command, capture_output=True, check=False, text=True)
        tally.tracebacks += "Traceback" in done.stderr
        tally.lost += done.returncode != 0
        tally.wrong += done.returncode == 0 and digests(folder, pattern) != expected
        tally.lost += bool(list(folder.rglob("*.part")))
    tally.peak_mb = peak_mb()
    return tally
