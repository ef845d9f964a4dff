"""What a run folder holds, read for tables and reports."""

import json
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from ipagnn._common.typed import parse_json
from ipagnn.models import ModelConfig, ProgramModel, available_models, find_model_file, load_model
from ipagnn.models.files import MODEL_FILE
from ipagnn.training.config import STREAM, TrainConfig
from ipagnn.training.runs.files import write_whole
from ipagnn.training.runs.folder import RunFolder, read_metrics

EVALUATION: Final = "evaluation.json"
"""The file in a run folder that holds the summary of its evaluation on the test set."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The contents of a run folder.

    Attributes:
        path: The folder.
        config: The settings.
        result: `result.json`; empty if there is none.
        starts: Every start of the run: command, commit, versions, hardware.
        evaluation: Summary of the evaluation; None if there is none yet.
        trained: Accuracy on the last programs of training, a hundredth of all; None if it was not recorded.
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
        fresh = self.config.data.budget != "model" and self.config.data.source == STREAM
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
    if (run.path / MODEL_FILE).is_file():
        return load_model(run.path)
    packaged = (name for name in available_models() if find_model_file(name).record == run.path.name)
    return next((load_model(name) for name in packaged), None)


def save_evaluation(run: Path, summary: dict[str, Any]) -> Path:
    """Keep a summary in its run folder, in place of an older one; the file appears complete or not at all."""
    path = run / EVALUATION
    write_whole(path, (json.dumps(summary, indent=2) + "\n").encode())
    return path


def _read_json(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        content = parse_json(path.read_text())
    except ValueError as error:
        raise ValueError(
            f"{path} is not JSON: {error}. Restore it, or delete it and evaluate the run again."
        ) from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no JSON object. Restore it, or delete it and evaluate the run again.")
    return content
