"""Running a model over a whole set of programs."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch

from ipagnn.data.tasks import VALUE, find_task
from ipagnn.evaluation.batches import BatchRunner, Progress
from ipagnn.evaluation.results import Evaluation
from ipagnn.evaluation.workers import worker
from ipagnn.languages.arithmetic.program import ProgramKind, ProgramTable
from ipagnn.languages.arithmetic.vocabulary import MASK
from ipagnn.models import ProgramModel

if TYPE_CHECKING:
    from ipagnn.evaluation.tables import UnboundedRunner


def evaluate(
    model: ProgramModel,
    programs: ProgramTable | Iterable[ProgramTable],
    *,
    batch_bytes: int | None = None,
    device: torch.device | str | None = None,
    pointer: bool = False,
    tables: bool | None = None,
    execution: str = "auto",
    prune: float = 0.0,
    tolerance: float = 0.0,
    progress: Progress | None = None,
) -> Evaluation:
    """Let a model predict every program of a set.

    A model that can runs over tables or automata, with a hard pointer and no bound on steps, unless `tables` is False.

    In any other, a model with a pointer skips mass below its `negligible_mass` on the CPU, which keeps memory small; on
    a GPU it skips none. Ask for `execution="reference"` to have every node of every step computed. With a `tolerance`,
    an IPA-GNN on the CPU drops more; `Evaluation.open` says which answers that could change.

    Args:
        model: The model; it is moved to `device` and left there.
        programs: A table, or tables one after the other, of which only one is held at a time. All targets are known.
        batch_bytes: About how much memory a batch may take; by default 256 MB on the CPU, a quarter of what is free on
            a GPU. A program too large for it makes a batch alone.
        device: Where to run; by default where the model is.
        pointer: Also measure what the instruction pointer did, if the model has one and takes steps.
        tables: Whether the model runs over tables or automata; by default it does if it can.
        execution, prune: As in `model(batch, execution=..., prune=...)`.
        tolerance: Share of answers that dropped pointer mass may change, by the estimate of
            `ipagnn.evaluation.refine`. 0 is exact, and takes about seven times as long.
        progress: Called with how far it has come: the number of programs, times the share of the work that is done.

    Raises:
        ValueError: `tolerance` is no share, there are no programs, a target is unknown, or the programs are not of
            one task of the model.
    """
    if not 0 <= tolerance <= 1:
        raise ValueError(f"tolerance is {tolerance}; it is a share of answers, from 0 to 1.")
    if device is not None:
        model = model.to(device)
    runner: BatchRunner | UnboundedRunner
    if model.runs_on is not None if tables is None else tables:
        runner = _unbounded(model)
    else:
        device = next(model.parameters()).device
        runner = BatchRunner(
            model,
            device,
            batch_bytes,
            pointer=pointer,
            execution=execution,
            prune=prune,
            tolerance=tolerance,
        )
    parts: list[Evaluation] = []
    done = 0
    first: ProgramKind | None = None
    with _evaluating(model), worker(next(model.parameters()).device) as runner.call:
        for table in [programs] if isinstance(programs, ProgramTable) else programs:
            if not len(table):
                continue
            table.check(extended=True)
            kind = _kind_of(table, done)
            readable = [first] if first else list(dict.fromkeys(find_task(name).programs for name in model.tasks))
            if kind not in readable:
                why = "as the programs before it are" if parts else f"which is what {model.name} reads"
                raise ValueError(f"Program {done} is {kind}; all must be {' or '.join(readable)}, {why}.")
            first, task = kind, model.task_for(kind)
            if VALUE in task.targets and (table.target < 0).any():
                unknown = done + int((table.target < 0).argmax())
                raise ValueError(f"Program {unknown} has no target, so nothing can be said about the prediction.")
            finished = done
            parts.append(runner.run(table, task, lambda n: progress(finished + n) if progress else None))  # noqa: B023
            done += len(table)
    if not parts:
        raise ValueError("There are no programs to evaluate; give at least one.")
    return Evaluation.concatenate(parts)


def _unbounded(model: ProgramModel) -> "UnboundedRunner":
    """What runs it over tables or automata; models that take steps need not import it."""
    from ipagnn.evaluation.tables import UnboundedRunner

    return UnboundedRunner(model)


@contextmanager
def _evaluating(model: ProgramModel) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _kind_of(table: ProgramTable, first: int) -> ProgramKind:
    masked = np.add.reduceat(table.line_tokens[:, 1] == MASK, table.line_offsets[:-1], dtype=np.int64) > 0
    if masked.all():
        return "partial"
    if masked.any():
        raise ValueError(
            f"Program {first + int((masked != masked[0]).argmax())} is {'full' if masked[0] else 'partial'} and those "
            "before it are not; evaluate full and partial programs apart."
        )
    return "full"
