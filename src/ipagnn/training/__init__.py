"""Training: `train(preset("quick"), "runs/a")` starts or resumes a run; `list_runs` lists runs."""

from typing import TYPE_CHECKING

from ipagnn._common.lazy import import_lazily

if TYPE_CHECKING:
    from ipagnn.training.config import TrainConfig
    from ipagnn.training.loop import Progress
    from ipagnn.training.presets import preset
    from ipagnn.training.resolve import resolve
    from ipagnn.training.runs.files import RunError
    from ipagnn.training.runs.folder import Result, RunFolder, read_config, read_metrics
    from ipagnn.training.runs.listing import RunSummary, list_runs
    from ipagnn.training.stages import Stage
    from ipagnn.training.step import StepMetrics, TrainingStep, make_step
    from ipagnn.training.trainer import train

__all__ = [
    "Progress",
    "Result",
    "RunError",
    "RunFolder",
    "RunSummary",
    "Stage",
    "StepMetrics",
    "TrainConfig",
    "TrainingStep",
    "list_runs",
    "make_step",
    "preset",
    "read_config",
    "read_metrics",
    "resolve",
    "train",
]

import_lazily(__name__)
