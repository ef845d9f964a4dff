"""Training a model: what is checked and claimed before the loop begins."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from ipagnn.training.config import TrainConfig
from ipagnn.training.loop import Loop, Progress
from ipagnn.training.memory import bounded_memory
from ipagnn.training.processes import arithmetic, join_processes
from ipagnn.training.runs.files import RunError, claimed
from ipagnn.training.runs.folder import Result, RunFolder
from ipagnn.training.runs.provenance import provenance
from ipagnn.training.sources import data_fingerprint, open_data


def train(
    config: TrainConfig,
    run: Path | str,
    *,
    time_limit: float | None = None,
    report: Callable[[Progress], None] | None = None,
    command: list[str] | None = None,
) -> Result:
    """Train a model, or resume an interrupted run with the same configuration.

    Args:
        config: What to do.
        run: The run folder. Created if missing; resumed if it exists.
        time_limit: Seconds after which to stop in good order, after a checkpoint.
        report: Called every `log_every` steps.
        command: What was typed, for the record.

    Returns:
        What came out; that of the first time if the run had already finished.

    Raises:
        RunError: The folder holds something else, the gradient failed (see `TrainConfig.on_nan`), or settings of an
            earlier version have no effect in this one.
        KeyboardInterrupt: On SIGINT or SIGTERM, after a checkpoint; the second signal does not wait for it.
    """
    if config.retired:
        raise RunError(
            f"The settings have {config.retired}. Version 0.2.0 of ipagnn was the last that had this; train with that "
            "version, or leave it out."
        )
    started = time.monotonic()
    folder = RunFolder(run)
    with ExitStack() as stack:
        processes = stack.enter_context(join_processes(config))
        if processes.writes:
            folder.check(config)
            stack.enter_context(claimed(folder.path))
            folder.check(config)  # again, for until now another process may have begun a run here
            folder.repair()
        processes.wait()
        if (result := folder.result()) is not None:
            return result
        data = open_data(config)
        stack.enter_context(arithmetic(config))
        with bounded_memory(config, processes.device):
            loop = stack.enter_context(Loop(config, folder, data, processes, report))
        if processes.writes:  # nothing before this wrote anything
            start = provenance(command or [], processes.device, processes.world)
            folder.begin(config, start, data_fingerprint(config, data))
            loop.open_files()
        processes.wait()
        return loop.run(None if time_limit is None else started + time_limit)
