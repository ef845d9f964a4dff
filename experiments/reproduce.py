"""Train and evaluate the runs of a table, some at a time; when the time is up, the same command goes on.

    python experiments/reproduce.py experiments/table.toml runs [--together 4] [--seconds 540]

A run is a table of settings in the TOML file, over those in `common`; `runs/NAME` becomes its folder. One with
`after = "OTHER"` waits for that run and begins with its weights. Runs of small batches leave most of a GPU idle:
several at a time share it, if the driver's MPS serves them (`nvidia-cuda-mps-control -d`). Without it they take turns,
which is correct and slower.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

from ipagnn._common.options import merge
from ipagnn._common.toml import to_toml
from ipagnn.models.files import MODEL_FILE
from ipagnn.ops.pointer.hopper.source import SHARE

SPARE = 20.0
"""Seconds before the end in which nothing new is begun."""


@dataclass
class Job:
    """One run, and what is being done about it."""

    name: str
    folder: Path
    settings: Path
    after: "Job | None" = None
    process: "subprocess.Popen[bytes] | None" = None
    failed: bool = False

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return self.failed or (self.folder / "evaluation.json").is_file()

    @property
    def waits(self) -> bool:
        """Whether the weights that it begins with are still to come."""
        return self.after is not None and not self.after.done

    @property
    def weights(self) -> Path:
        """Where runs that come after this one find its weights, under its own name."""
        return self.settings.with_suffix(".safetensors")

    @property
    def log(self) -> Path:
        """What its commands printed."""
        return self.settings.with_suffix(".log")

    def start(self, seconds: float, together: int) -> None:
        """Train, or evaluate if that is done, for so long at most, as one of some that share a GPU."""
        if self.after is not None and not self.after.weights.is_file():
            shutil.copy(self.after.folder / MODEL_FILE, self.after.weights)
        if (self.folder / "result.json").is_file():
            command = ["evaluate", str(self.folder), "--save", "--no-pointer"]
        else:
            limit = ["--time-limit", f"{seconds:.0f}s"]
            command = ["train", str(self.folder), "--config", str(self.settings), *limit]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ipagnn", *command],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {SHARE: str(together)},
            )

    def poll(self) -> bool:
        """Whether its command has ended; says so if it failed."""
        if self.process is None or self.process.poll() is None:
            return False
        if self.process.returncode:
            self.failed = True
            print(f"{self.name} failed; {self.log} ends in\n{self.log.read_text()[-1000:]}", flush=True)
        self.process = None
        return True


def read_jobs(table: Path, runs: Path) -> list[Job]:
    """The runs of a table; the settings of each are written beside its folder."""
    values = tomllib.loads(table.read_text("utf-8"))
    runs.mkdir(parents=True, exist_ok=True)
    jobs: dict[str, Job] = {}
    for name, own in values["runs"].items():
        job = jobs[name] = Job(name, runs / name, runs / f"{name}.toml")
        if "after" in own:
            other = own.pop("after")
            job.after = jobs.get(other) if other != name else None
            if job.after is None:
                above = ", ".join(list(jobs)[:-1]) or "none"
                sys.exit(
                    f"{name} comes after a run that does not stand above it in {table}: {other}. Above it: {above}. "
                    "Name one of those, or move it up."
                )
            own["init_from"] = str(job.after.weights)
        job.settings.write_text(to_toml(merge(values.get("common", {}), own)), "utf-8")
    return list(jobs.values())


def work(jobs: list[Job], together: int, seconds: float) -> None:
    """Do what is left to do, in order, `together` at a time."""
    end = time.monotonic() + seconds
    while True:
        for job in jobs:
            if job.poll() and job.done and not job.failed:
                print(f"{job.name} is done", flush=True)
        running = [job for job in jobs if job.process is not None]
        left = end - time.monotonic()
        for job in jobs:
            job.failed |= job.after is not None and job.after.failed
        waiting = [job for job in jobs if job.process is None and not job.done] if left > SPARE else []
        for job in [job for job in waiting if not job.waits][: together - len(running)]:
            job.start(left - SPARE / 2, together)
        if not running and not waiting:
            return
        time.sleep(0.2)


def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--together", type=int, default=1, help="Runs at a time.")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="When to stop in good order.")
    options = parser.parse_args()
    jobs = read_jobs(options.table, options.runs)
    work(jobs, options.together, min(options.seconds, 1e9))
    undone = [job.name for job in jobs if job.failed or not job.done]
    left = f" Left: {', '.join(undone)}." if undone else ""
    print(f"{len(jobs) - len(undone)} of {len(jobs)} runs are done.{left}")
    sys.exit(bool(undone))


if __name__ == "__main__":
    main()
