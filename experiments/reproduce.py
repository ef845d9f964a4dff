"""Train and evaluate several runs. When the time is up, the same command resumes them.

    python experiments/reproduce.py table experiments/table.toml runs [--together 4] [--seconds 540]
    python experiments/reproduce.py chain ipa-gnn-full runs [--seconds 540] [--set run.device=cpu]

`table` makes the runs of a TOML file. A run is a table of settings over those in `common`; `runs/NAME` becomes its
folder. One with `after = "OTHER"` waits for that run and starts from its weights.

`chain` repeats the runs behind the packaged weights of a name, as records/chains.toml lists them, each started from the
weights of the one before, and prints the accuracy of each beside that of its record.

Runs of small batches leave most of a GPU idle: several at a time share it, if the driver's MPS serves them
(`nvidia-cuda-mps-control -d`). Without it they take turns, which is correct and slower.
"""

import argparse
import json
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipagnn._common.options import merge
from ipagnn._common.toml import parse_settings, to_toml
from ipagnn.models import load_model, save_model
from ipagnn.training import TrainConfig, read_config

SPARE = 20.0
"""Seconds before the end in which nothing new is begun."""
RECORDS = Path(__file__).parents[1] / "records"
EVALUATION = "evaluation.json"


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
        return self.failed or (self.folder / EVALUATION).is_file()

    @property
    def waits(self) -> bool:
        """Whether the weights that it starts from are still to come."""
        return self.after is not None and not self.after.done

    @property
    def weights(self) -> Path:
        """Where runs that come after this one find its weights, under its own name."""
        return self.settings.with_suffix(".safetensors")

    @property
    def log(self) -> Path:
        """What its commands printed."""
        return self.settings.with_suffix(".log")

    def keep_weights(self) -> None:
        """Write its weights as the package stores them, once."""
        if not self.weights.is_file():
            save_model(load_model(self.folder), self.weights, half=True, record=self.name)

    def start(self, seconds: float, together: int) -> None:
        """Train, or evaluate if that is done, for so long at most, as one of some that share a GPU."""
        if self.after is not None:
            self.after.keep_weights()
        if (self.folder / "result.json").is_file():
            command = ["evaluate", str(self.folder), "--save", "--no-pointer"]
        else:
            limit = ["--time-limit", f"{seconds:.0f}s"]
            shared = ["--set", f"run.gpu_processes={together}"]
            command = ["train", str(self.folder), "--config", str(self.settings), *limit, *shared]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ipagnn", *command],
                stdout=log,
                stderr=subprocess.STDOUT,
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


def write_job(name: str, runs: Path, settings: dict[str, Any], after: Job | None) -> Job:
    """A run, its settings written beside its folder."""
    runs.mkdir(parents=True, exist_ok=True)
    if after is not None:
        settings = settings | {"init_from": str(after.weights)}
    job = Job(name, runs / name, runs / f"{name}.toml", after)
    job.settings.write_text(to_toml(settings), "utf-8")
    return job


def read_table(table: Path, runs: Path) -> list[Job]:
    """The runs of a table."""
    values = tomllib.loads(table.read_text("utf-8"))
    jobs: dict[str, Job] = {}
    for name, own in values["runs"].items():
        other = own.pop("after", None)
        if other is not None and other not in jobs:
            above = ", ".join(jobs) or "none"
            sys.exit(
                f"{name} comes after a run that does not stand above it in {table}: {other}. Above it: {above}. "
                "Name one of those, or move it up."
            )
        jobs[name] = write_job(name, runs, merge(values.get("common", {}), own), jobs.get(other))
    return list(jobs.values())


def read_chain(name: str, runs: Path, changes: dict[str, Any]) -> tuple[list[Job], str | None]:
    """The runs behind packaged weights, and the script that makes the weights from the last of them, if one does."""
    packaged = tomllib.loads((RECORDS / "chains.toml").read_text("utf-8"))["packaged"]
    if name not in packaged:
        sys.exit(f"records/chains.toml has no weights {name!r}; it has {', '.join(packaged)}.")
    jobs: list[Job] = []
    for record in packaged[name]["runs"]:
        config = read_config(RECORDS / record / "config.toml").replace(init_from="")
        settings = TrainConfig.from_dict(merge(config.to_dict(), changes)).to_dict()
        jobs.append(write_job(record, runs, settings, jobs[-1] if jobs else None))
    return jobs, packaged[name].get("then")


def work(jobs: list[Job], together: int, seconds: float) -> bool:
    """Do what is left to do, in order, `together` at a time. Returns whether all is done."""
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
            break
        time.sleep(0.2)
    undone = [job.name for job in jobs if job.failed or not job.done]
    tail = f" Left: {', '.join(undone)}." if undone else ""
    print(f"{len(jobs) - len(undone)} of {len(jobs)} runs are done.{tail}")
    return not undone


def accuracy(folder: Path) -> float:
    """Accuracy on D_test, as the evaluation in a run folder or record has it."""
    return float(json.loads((folder / EVALUATION).read_text("utf-8"))["overall"]["accuracy"])


def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    table = commands.add_parser("table", help="Make the runs of a TOML file.")
    table.add_argument("table", type=Path)
    table.add_argument("--together", type=int, default=1, help="Runs at a time.")
    chain = commands.add_parser("chain", help="Repeat the runs behind packaged weights.")
    chain.add_argument("name")
    chain.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="Settings to change in every run.")
    for each in (table, chain):
        each.add_argument("runs", type=Path)
        each.add_argument("--seconds", type=float, default=float("inf"), help="When to stop in good order.")
    options = parser.parse_args()
    seconds = min(options.seconds, 1e9)
    if options.command == "table":
        sys.exit(not work(read_table(options.table, options.runs), options.together, seconds))
    jobs, then = read_chain(options.name, options.runs, parse_settings(options.set))
    if not work(jobs, 1, seconds):
        sys.exit(1)
    for job in jobs:
        print(f"{job.name}: {accuracy(job.folder):.1%} of D_test; its record: {accuracy(RECORDS / job.name):.1%}")
    weights = options.runs / f"{options.name}.safetensors"
    jobs[-1].keep_weights()
    if then is None:
        jobs[-1].weights.replace(weights)
    else:
        subprocess.run([sys.executable, then, jobs[-1].weights, weights], check=True, cwd=RECORDS.parent)
    print(f"{weights} holds the weights.")


if __name__ == "__main__":
    main()
