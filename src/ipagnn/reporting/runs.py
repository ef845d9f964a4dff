"""What can be evaluated and reported: weights in a file, in a run folder, or in the package."""

import json
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from ipagnn.languages.arithmetic import Task
from ipagnn.models import ModelConfig, ProgramModel, available_models, load_model
from ipagnn.models.files import model_record
from ipagnn.training.config import STREAM, TrainConfig
from ipagnn.training.runs.files import write_whole
from ipagnn.training.runs.folder import MODEL, RunFolder, read_metrics

EVALUATION: Final = "evaluation.json"
"""The file in a run folder that holds the summary of its evaluation on the test set."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights that somebody named.

    Attributes:
        name: What was given: a file, a run folder, or a name in the package.
        folder: The run folder, if it is one.
        task: The task they were trained for, as far as folder or name tell; full programs otherwise.
    """

    name: str
    folder: RunFolder | None
    task: Task

    @staticmethod
    def find(name: str | Path) -> "Weights":
        """The weights of this name.

        Raises:
            ValueError: The folder holds no weights, or its settings cannot be read.
        """
        path = Path(name)
        if path.is_dir():
            folder = RunFolder(path)
            if not (path / MODEL).is_file():
                raise ValueError(
                    f"The folder {path} holds no {MODEL}; give a run that has ended, or let it go on to its end with "
                    f"`ipagnn train {path}`."
                )
            return Weights(str(name), folder, folder.config().task if folder.exists else _task_of(path.name))
        return Weights(str(name), None, _task_of(path.stem))

    def load(self, **options: Any) -> ProgramModel:
        """The model, with options of its configuration changed."""
        return load_model(self.folder.path / MODEL if self.folder else self.name, **options)


def _task_of(name: str) -> Task:
    return "partial" if name.endswith("-partial") else "full"


@dataclass(frozen=True, slots=True)
class RunRecord:
    """All that a run folder tells.

    Attributes:
        path: The folder.
        config: The settings.
        result: `result.json`; empty if there is none.
        starts: Every start of the run: command, commit, versions, hardware.
        evaluation: Summary of the evaluation; None if there is none yet.
        trained: Accuracy on the last programs of training, a hundredth of all; None if none was told.
    """

    path: Path
    config: TrainConfig
    result: dict[str, Any] = field(default_factory=dict)
    starts: list[dict[str, Any]] = field(default_factory=list)
    evaluation: dict[str, Any] | None = None
    trained: float | None = None

    @property
    def model(self) -> ModelConfig:
        """Configuration of the model."""
        return self.config.model

    @property
    def selects(self) -> float | None:
        """What to choose among runs by, the larger the better: accuracy on validation.

        Validation is with the model's own steps. Where training was with others, and programs were drawn as it went,
        the last ones speak instead: none had been seen before.
        """
        fresh = self.config.budget != "model" and self.config.data == STREAM
        return self.trained if fresh else self.result.get("accuracy")


def read_run(path: Path | str) -> RunRecord:
    """Read a run folder.

    Raises:
        ValueError: It is none, or one of its files cannot be read.
    """
    folder = RunFolder(path)
    config = folder.config()
    return RunRecord(
        folder.path,
        config,
        _read_json(folder.path / "result.json") or {},
        (_read_json(folder.path / "run.json") or {}).get("starts", []),
        _read_json(folder.path / EVALUATION),
        _last_accuracy([line for line in read_metrics(folder) if line["kind"] == "train"]),
    )


def _last_accuracy(lines: list[dict[str, Any]]) -> float | None:
    """Accuracy on the last hundredth of the programs of training, or more, as the lines of metrics part them."""
    right = seen = 0.0
    for before, line in reversed(list(pairwise([{"examples": 0}, *lines]))):
        count = line["examples"] - before["examples"]
        right, seen = right + count * line["accuracy"], seen + count
        if 100 * seen >= lines[-1]["examples"]:
            break
    return right / seen if seen else None


def load_run(run: RunRecord) -> ProgramModel | None:
    """The model of a run: from its folder, or from the package if it came from this record; None if in neither."""
    if (run.path / MODEL).is_file():
        return load_model(run.path / MODEL)
    packaged = (name for name in available_models() if model_record(name) == run.path.name)
    return next((load_model(name) for name in packaged), None)


def save_evaluation(folder: RunFolder, summary: dict[str, Any]) -> Path:
    """Keep a summary in its run folder, in place of an older one; the file appears complete or not at all."""
    path = folder.path / EVALUATION
    write_whole(path, (json.dumps(summary, indent=2) + "\n").encode())
    return path


def _read_json(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(
            f"{path} is not JSON: {error}. Restore it, or delete it and evaluate the run again."
        ) from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no JSON object. Restore it, or delete it and evaluate the run again.")
    return content
