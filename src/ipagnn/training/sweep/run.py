"""Sweeps: trials of a grid on Ray Tune, each an ordinary run in a folder of its own, and the best of them.

Ray only decides what runs where. Runs go on exactly where they were, so a trial whose worker died is simply started
again, and a sweep that was stopped looks at its run folders; nothing of Ray's own state is kept.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal

from ipagnn._common.typed import parse_json, typed_fields
from ipagnn.training.config import TrainConfig
from ipagnn.training.loop import Progress
from ipagnn.training.runs.files import RunError, is_locked, locked, write_whole
from ipagnn.training.runs.folder import RUN, RunFolder, read_file, read_metrics
from ipagnn.training.runs.listing import summarise
from ipagnn.training.sweep.grid import Trial
from ipagnn.training.trainer import train

State = Literal["finished", "ended early", "failed", "stopped", "waiting"]

SWEEP: Final = "sweep.json"
"""What is known of all trials; the run folders lie beside it."""
DEATHS: Final = 3
"""So often a trial is started again after its worker died; a machine may fail, but not always under the same trial."""
HALVING: Final = 4
"""ASHA lets one trial of so many go on, at each of its looks."""
_RAY: Final = ".ray"
_QUIET: Final = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # `data` may be a relative path
    "RAY_USAGE_STATS_ENABLED": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C is to raise KeyboardInterrupt here as everywhere
}


@dataclass(frozen=True, slots=True)
class TrialResult:
    """Where a trial stands.

    Attributes:
        run: Name of its folder in that of the sweep.
        values: Its point of the grid, by dotted setting.
        state: `finished`; `ended early` by ASHA; `failed`, and `error` says why; `stopped` on its way; or `waiting`.
        step, steps: Steps taken, and of the whole run.
        accuracy: Best accuracy on validation so far; None before the first.
        selected: Whether it is the best of the finished ones.
        error: Why it failed.
    """

    run: str
    values: dict[str, Any]
    state: State
    step: int
    steps: int
    accuracy: float | None
    selected: bool = False
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""
        return asdict(self)


def sweep(
    directory: Path | str,
    trials: Sequence[Trial],
    *,
    address: str | None = None,
    parallel: int | None = None,
    asha: bool = False,
    report: Callable[[TrialResult], None] | None = None,
    command: Sequence[str] = (),
) -> list[TrialResult]:
    """Run all trials, or resume those that have not ended.

    Args:
        directory: Holds a run folder for each trial. Created if missing; resumed if it exists. On a cluster, all
            machines must share it.
        trials: From `expand`.
        address: Of a Ray cluster; by default RAY_ADDRESS, or a new one on this machine.
        parallel: Trials at the same time; by default one a GPU, or as many as have the threads they ask for.
        asha: End trials early that are behind the others at the same number of examples.
        report: Called whenever a trial ends.
        command: What was typed, for the record of each run.

    Returns:
        Where each trial stands, in the order of `trials`.

    Raises:
        RunError: A folder holds something else, another sweep is at work there, or there is no Ray.
    """
    root = Path(directory).absolute()
    for trial in trials:
        RunFolder(root / trial.name).check(trial.config)
    board = _Board(root, trials, report)
    if all(board.over(i, asha) for i in range(len(trials))):
        return board.results()
    with _ray(address) as (ray, tune):
        root.mkdir(parents=True, exist_ok=True)
        with locked(root):
            board.write()
            try:
                _run(ray, tune, board, parallel, asha, list(command))
            finally:
                shutil.rmtree(root / _RAY, ignore_errors=True)
                board.write()
    return board.results()


def select(results: Sequence[TrialResult]) -> TrialResult | None:
    """The finished trial with the best accuracy on validation, the first of several; None if none has finished."""
    finished = [result for result in results if result.state == "finished" and result.accuracy is not None]
    return max(finished, key=lambda result: result.accuracy or 0.0, default=None)


@dataclass(frozen=True, slots=True)
class _Table:
    """The content of `sweep.json`."""

    trials: list[TrialResult]


class _Board:
    """Where all trials stand: what the run folders say, and what only the sweep knows of them."""

    def __init__(
        self, root: Path, trials: Sequence[Trial], report: Callable[[TrialResult], None] | None = None
    ) -> None:
        self.root, self.trials = root, trials
        self._report = report
        self._early: set[str] = set()
        self._errors: dict[str, str] = {}
        if (root / SWEEP).is_file():
            saved = read_file(root / SWEEP, lambda text: typed_fields(_Table, parse_json(text), "it"))
            self._early.update(trial.run for trial in saved.trials if trial.state == "ended early")

    def over(self, index: int, asha: bool) -> bool:
        """Whether nothing is left to do for a trial; without ASHA those that it ended go on."""
        state = self._result(index).state
        return state == "finished" or (asha and state == "ended early")

    def ended(self, index: int, error: str | None) -> None:
        """Note that a trial has ended."""
        name = self.trials[index].name
        if error is not None:
            self._errors[name] = error
        elif RunFolder(self.root / name).result() is None:
            self._early.add(name)
        self.write()
        if self._report:
            self._report(self._result(index))

    def results(self) -> list[TrialResult]:
        found = [self._result(i) for i in range(len(self.trials))]
        best = select(found)
        return [replace(result, selected=result is best) for result in found]

    def write(self) -> None:
        content = {"trials": [result.to_dict() for result in self.results()]}
        write_whole(self.root / SWEEP, (json.dumps(content, indent=2) + "\n").encode())

    def _result(self, index: int) -> TrialResult:
        trial = self.trials[index]
        folder = RunFolder(self.root / trial.name)
        result = TrialResult(trial.name, trial.values, "waiting", 0, trial.config.steps, None)
        if folder.exists and (folder.path / RUN).is_file():
            summary = summarise(folder, self.root)
            state: State = "finished" if summary.state == "finished" else "stopped"
            result = replace(result, state=state, step=summary.step, accuracy=summary.accuracy)
        if result.state == "finished":
            return result
        if trial.name in self._errors:
            return replace(result, state="failed", error=self._errors[trial.name])
        return replace(result, state="ended early") if trial.name in self._early else result


def _run(ray: Any, tune: Any, board: _Board, parallel: int | None, asha: bool, command: list[str]) -> None:
    """Let Tune run the trials that are left. With ASHA all take part again, for their scores are what it goes by."""
    wanted = [i for i in range(len(board.trials)) if asha or not board.over(i, asha)]
    over = {i for i in wanted if board.over(i, asha)}
    configs = [trial.config for trial in board.trials]

    def ended(index: int, error: str | None) -> None:
        if index not in over:
            board.ended(index, error)

    class Watch(tune.Callback):  # type: ignore[misc]
        def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
            ended(trial.config["trial"], (trial.last_result or {}).get("error"))

        def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
            ended(trial.config["trial"], f"Its worker died {DEATHS + 1} times.")

    scheduler = None
    if asha:
        most = max(config.most_examples for config in configs)
        least = max(*(config.run.validation_every for config in configs), most // HALVING**2)
        schedulers = import_module("ray.tune.schedulers")
        scheduler = schedulers.ASHAScheduler(
            time_attr="examples", max_t=most, grace_period=min(least, most), reduction_factor=HALVING
        )
    trainable = partial(_trial, root=board.root, trials=board.trials, asha=asha, command=command, over=over)
    tuner = tune.Tuner(
        tune.with_resources(trainable, _resources(ray, configs, parallel)),
        param_space={"trial": tune.grid_search(wanted)},
        tune_config=tune.TuneConfig(
            metric="accuracy",
            mode="max",
            scheduler=scheduler,
            max_concurrent_trials=parallel,
            trial_dirname_creator=lambda trial: trial.trial_id,
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(board.root / _RAY),
            callbacks=[Watch()],
            failure_config=tune.FailureConfig(max_failures=DEATHS),
            verbose=0,
        ),
    )
    tuner.fit()


def _trial(
    point: dict[str, int], *, root: Path, trials: Sequence[Trial], asha: bool, command: list[str], over: set[int]
) -> None:
    """One trial, in a worker of Ray's; it reports every validation to Tune, including those before its worker died."""
    tune: Any = import_module("ray.tune")
    trial = trials[point["trial"]]
    folder = RunFolder(root / trial.name)
    if asha:
        for line in read_metrics(folder):
            if line["kind"] == "validation":
                tune.report({"accuracy": line["accuracy"], "examples": line["examples"]})
    if point["trial"] in over:
        return
    _wait_for(folder)
    reported = 0

    def report(now: Progress) -> None:
        nonlocal reported
        if now.validation is not None and now.validated > reported:
            reported = now.validated
            tune.report({"accuracy": now.validation, "examples": reported})

    try:
        result = train(trial.config, folder.path, report=report, command=command)
    except ValueError as error:  # a sentence that would be the same another time, not a worker's death
        tune.report({"accuracy": -1.0, "examples": trial.config.most_examples, "error": str(error)})
        return
    tune.report({"accuracy": result.accuracy, "examples": result.examples})


def _wait_for(folder: RunFolder, seconds: int = 60) -> None:
    """Let a process of a sweep that was killed end first: it takes a while to notice."""
    for _ in range(seconds):
        if not (folder.path.is_dir() and is_locked(folder.path)):
            return
        time.sleep(1)


def _resources(ray: Any, configs: Sequence[TrainConfig], parallel: int | None) -> dict[str, float]:
    """What a trial takes of the cluster. Ray lets torch have as many threads as CPUs, where `threads` is 0."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(config.run.device != "cpu" for config in configs) and any(node.get("GPU") for node in nodes):
        return {"cpu": max(config.run.workers for config in configs), "gpu": 1}
    least = int(min(node.get("CPU", 1) for node in nodes))
    threads = [config.run.threads for config in configs]
    free = max(1, least // parallel) if parallel else least
    return {"cpu": min(least, max(threads)) if all(threads) else free}


@contextmanager
def _ray(address: str | None) -> Iterator[tuple[Any, Any]]:
    """Ray and its Tune, connected to a cluster and quiet, for as long as the block runs."""
    before = {name: os.environ.get(name) for name in _QUIET}
    os.environ.update(_QUIET)
    try:
        try:
            ray, tune = import_module("ray"), import_module("ray.tune")
        except ImportError as error:
            raise RunError("A sweep needs Ray; install it with `pip install 'ipagnn[ray]'`.") from error
        where = address or os.environ.get("RAY_ADDRESS") or "local"
        # Nothing of size travels between the trials, so little memory will do.
        own = {"include_dashboard": False, "object_store_memory": 128 * 2**20} if where == "local" else {}
        try:
            ray.init(address=where, log_to_driver=False, logging_level="ERROR", **own)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise RunError(f"There is no Ray cluster at {where}: {error}") from error
        try:
            yield ray, tune
        finally:
            ray.shutdown()
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
