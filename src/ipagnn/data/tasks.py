"""Tasks: what is predicted, and of which programs. `full` and `partial` are the paper's.

A task declares its targets. The kind of a target decides its loss and what counts as right (`ipagnn.nn.targets`), and
its metrics (`ipagnn.evaluation.metrics`). `register_task` adds a task from anywhere, as a file outside the package:

    VISITED = Target("visited", "mask", "node", read=which_lines_run, meaning="Whether a line runs.")
    VISITS = register_task(Task("visits", (VISITED,), trace=True))
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import torch
from torch import Tensor

from ipagnn._common.hints import near_miss
from ipagnn.languages.arithmetic.program import ProgramKind, ProgramTable

if TYPE_CHECKING:
    from ipagnn.data.contract import Batch

TargetKind = Literal["class", "mask", "count"]
Axis = Literal["program", "node"]

DTYPES: Final[dict[TargetKind, torch.dtype]] = {"class": torch.int64, "mask": torch.bool, "count": torch.int64}
"""Element types of targets, by their kind."""


@dataclass(frozen=True, slots=True)
class Target:
    """Something to predict.

    Attributes:
        name: Its name in `Batch.targets` and in `Output.predictions`.
        kind: `class`, one of several values, predicted by logits [entry, class]; `mask`, true or false, predicted by a
            logit [entry]; `count`, a whole number from 0 on, predicted by the logarithm of its mean [entry].
        axis: What has an entry: every program, or every node.
        read: The target of all entries, from the programs and their batch. [program] or [node]
        meaning: One sentence.
    """

    name: str
    kind: TargetKind
    axis: Axis
    read: "Callable[[ProgramTable, Batch], Tensor]"
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """What is predicted, and of which programs.

    Attributes:
        name: Its name in settings, in files and on the command line.
        targets: What is predicted.
        programs: `full` for complete programs, `partial` for programs with masked lines.
        trace: Whether the targets are read from the true trace, which batches then hold; complete programs only.
        subject: Its programs in words, in the plural.
        title: The heading of its results; its name if there is none.

    Raises:
        ValueError: There are no targets, two have one name, or masked programs are to have a trace.
    """

    name: str
    targets: tuple[Target, ...]
    programs: ProgramKind = "full"
    trace: bool = False
    subject: str = "complete programs"
    title: str = ""

    def __post_init__(self) -> None:
        names = [target.name for target in self.targets]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"The task {self.name!r} has the targets {names}; give one or more, with different names.")
        if self.trace and self.masked:
            raise ValueError(f"The task {self.name!r} reads traces, and masked programs have none; use full programs.")

    @property
    def masked(self) -> bool:
        """Whether its programs have masked lines, and so no true trace."""
        return self.programs == "partial"


def _value(table: ProgramTable, batch: "Batch") -> Tensor:
    return torch.from_numpy(table.target.astype(np.int64))


VALUE: Final = Target(
    "value",
    "class",
    "program",
    _value,
    "v0 modulo the grammar's modulus at the end of the complete program; -1 if unknown.",
)
FULL: Final = Task("full", (VALUE,), title="Execution of full programs")
PARTIAL: Final = Task(
    "partial", (VALUE,), "partial", subject="programs with one masked line", title="Execution of partial programs"
)

TASKS: Final[dict[str, Task]] = {task.name: task for task in (FULL, PARTIAL)}
"""Every task by name."""


def register_task(task: Task) -> Task:
    """Make a task known by its name.

    Raises:
        ValueError: Another task has the name.
    """
    if task.name in (FULL.name, PARTIAL.name):
        raise ValueError(f"The name {task.name!r} is taken by a task of the paper; choose another.")
    TASKS[task.name] = task
    return task


def find_task(task: Task | str) -> Task:
    """The task of that name, or the task itself.

    Raises:
        ValueError: There is none; the sentence gives the near miss.
    """
    if isinstance(task, Task):
        return task
    if task not in TASKS:
        raise ValueError(
            f"There is no task {task!r}. {near_miss(task, TASKS, 'Choose one of')} A task of your own is known after "
            "`ipagnn --import FILE.py …`."
        )
    return TASKS[task]
