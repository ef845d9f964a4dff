"""Checkpoints: one safetensors file each, with what is no tensor as JSON in its header; nothing is ever unpickled."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ipagnn._common.typed import parse_json, typed, typed_fields
from ipagnn.training.config import TrainConfig
from ipagnn.training.legacy import upgrade_settings
from ipagnn.training.runs.files import RunError, write_whole

FORMAT_VERSION: Final = 1
_KEY: Final = "ipagnn.checkpoint"
_WEIGHTS: Final = "weights."
_STATE: Final = "state."


@dataclass(frozen=True, slots=True)
class Position:
    """How far a run has come.

    The schedule, the stream and the order of programs are functions of the config and the numbers here, so this is all
    of their state; training draws no other random numbers.

    Attributes:
        step: Steps taken.
        examples: Programs seen.
        stage: Stages that have ended; of a run without stages 1 at its end.
        stage_step, stage_examples: Steps taken and programs seen before the stage began.
        looked_examples: Programs seen at the last multiple of `log_every` steps, or when the stage began if that is
            later.
        counted, correct: Programs learnt from since then, and how many of them were right.
        metrics_bytes: Length of `metrics.jsonl`, which is cut off here when the run goes on.
        seconds: Time spent in training, over all starts.
        best_step: Step of the best validation; -1 before the first.
        best_accuracy: Its accuracy.
        best_loss: Its loss, which decides between equal accuracies; None where it was not kept.
        skipped: Steps whose gradient was not applied.
    """

    step: int = 0
    examples: int = 0
    stage: int = 0
    stage_step: int = 0
    stage_examples: int = 0
    looked_examples: int = 0
    counted: int = 0
    correct: int = 0
    metrics_bytes: int = 0
    seconds: float = 0.0
    best_step: int = -1
    best_accuracy: float = -1.0
    best_loss: float | None = None
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All that a run goes on from.

    Attributes:
        config: What it is a checkpoint of.
        position: How far it has come.
        weights: By parameter name.
        state: What else the step keeps: moments, counts, the average. Empty where only weights were kept.
    """

    config: TrainConfig
    position: Position
    weights: Mapping[str, Tensor]
    state: Mapping[str, Tensor]

    def write(self, path: Path) -> None:
        """Write it, completely or not at all."""
        tensors = {_WEIGHTS + name: x.cpu().contiguous() for name, x in self.weights.items()}
        tensors |= {_STATE + name: x.cpu().contiguous() for name, x in self.state.items()}
        about = {
            "format_version": FORMAT_VERSION,
            "config": self.config.to_dict(),
            "position": asdict(self.position),
        }
        write_whole(path, save(tensors, {_KEY: json.dumps(about)}))

    @staticmethod
    def read(path: Path) -> "Checkpoint":
        """Read what `write` wrote.

        Raises:
            RunError: It is not a checkpoint, or of a version that this one does not know.
        """
        try:
            with safe_open(path, "pt") as file:
                about = typed(dict, parse_json((file.metadata() or {}).get(_KEY, "")), "it")
                if about.get("format_version") != FORMAT_VERSION:
                    raise RunError(
                        f"The checkpoint {path} has format {about.get('format_version')}, and this version of ipagnn "
                        f"reads {FORMAT_VERSION}; go on with the version that wrote it."
                    )
                config = TrainConfig.from_dict(upgrade_settings(typed(dict, about.get("config"), "config")))
                position = _position(typed(dict, about.get("position"), "position"), config)
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, as it is no dict
        except RunError:
            raise
        except (SafetensorError, TypeError, ValueError, OSError) as error:
            raise RunError(
                f"{path} is not a checkpoint of ipagnn, or it is damaged ({error}). Delete it to train from the "
                "beginning in this folder."
            ) from error
        return Checkpoint(config, position, _below(tensors, _WEIGHTS), _below(tensors, _STATE))


def _position(values: Mapping[str, Any], config: TrainConfig) -> Position:
    """A position as it was written; one of version 0.1.0 has steps alone, and no stages, one of 0.2.0 energy."""
    values = {name: value for name, value in values.items() if name != "joules"}
    if "examples" not in values:
        step = typed(int, values.get("step"), "position.step")
        looked = step - step % config.run.log_every
        place = {"examples": step, "looked_examples": looked}
        values = {
            **{name: steps * config.data.batch_size for name, steps in place.items()},
            "stage": int(step >= config.steps),
            **values,
        }
    position: Position = typed_fields(Position, values, "position")
    for name, value in asdict(position).items():
        if value is not None and value < (-1 if name.startswith("best_") else 0):
            raise ValueError(f"position.{name} is {value}; it must not be negative")
    if position.stage > max(1, len(config.stages)):
        raise ValueError(f"position.stage is {position.stage}, and there are {max(1, len(config.stages))} stages")
    return position


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): x for name, x in tensors.items() if name.startswith(prefix)}
