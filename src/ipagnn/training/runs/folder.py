"""The folder of a run: what is written where, and how a run that was stopped is found again. Nothing is overwritten.

- `config.toml`: the resolved settings;
- `run.json`: every start, with command, commit, versions and hardware; what the data is; the weights it started from;
- `metrics.jsonl`: a line for every `log_every` steps and every validation; `events.*`: the same for TensorBoard;
- `checkpoints/`: `last.safetensors` to go on from, `best.safetensors` as selected by validation;
- `model.safetensors` (`MODEL_FILE`), at the end: the selected weights, for `load_model`;
- `result.json`, at the end: what came out.
"""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from ipagnn._common.options import flatten
from ipagnn._common.toml import to_toml
from ipagnn._common.typed import parse_json, parse_toml, typed, typed_fields
from ipagnn.models import build_model, save_model
from ipagnn.models.files import MODEL_FILE
from ipagnn.training.config import RESUMABLE_FIELDS, TrainConfig, differing
from ipagnn.training.legacy import upgrade_settings
from ipagnn.training.runs.checkpoint import Checkpoint, Position
from ipagnn.training.runs.files import RunError, unwritable, write_whole
from ipagnn.training.runs.origin import Origin, find_origin

CONFIG: Final = "config.toml"
RUN: Final = "run.json"
METRICS: Final = "metrics.jsonl"
CHECKPOINTS: Final = "checkpoints"
RESULT: Final = "result.json"


@dataclass(frozen=True, slots=True)
class Result:
    """What came out of a run.

    Attributes:
        state: `finished`, or `stopped` by the time limit.
        step: Steps taken.
        examples: Programs seen.
        accuracy: Best accuracy on validation, which selected the weights; -1 if there was none yet.
        best_step: After how many steps.
        skipped: Steps whose gradient was not applied.
        seconds: Time spent in training, over all starts.
        ended: When, in UTC.
    """

    state: Literal["finished", "stopped"]
    step: int
    examples: int
    accuracy: float
    best_step: int
    skipped: int
    seconds: float
    ended: str


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The content of `run.json`.

    Attributes:
        data: Fingerprint of the data.
        starts: About every start: command, commit, versions, hardware.
        init_from: The weights that the run started from; None if it drew new ones.
    """

    data: str
    starts: list[dict[str, Any]]
    init_from: Origin | None = None


class RunFolder:
    """A run folder.

    Args:
        path: Where it is, or will be.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.last = self.path / CHECKPOINTS / "last.safetensors"
        self.best = self.path / CHECKPOINTS / "best.safetensors"

    @property
    def exists(self) -> bool:
        """Whether a run was begun here."""
        return (self.path / CONFIG).is_file()

    def config(self) -> TrainConfig:
        """The settings of the run.

        Raises:
            RunError: There is no run, or its settings cannot be read.
        """
        path = self.path / CONFIG
        try:
            return read_config(path)
        except FileNotFoundError as error:
            raise RunError(f"{self.path} is no run folder: it has no {CONFIG}.") from error

    def result(self) -> Result | None:
        """The result, if the run has ended.

        Raises:
            RunError: The file is damaged.
        """
        path = self.path / RESULT
        return read_file(path, _read_result) if path.is_file() else None

    @property
    def has_finished(self) -> bool:
        """Whether the run has ended and its model is there."""
        return (self.path / RESULT).is_file() and (self.path / MODEL_FILE).is_file()

    def write_model(self) -> None:
        """Write the selected weights, as `load_model` reads them.

        Raises:
            RunError: They are not there any more, or cannot be written.
        """
        if not self.best.is_file():
            raise RunError(
                f"{self.path} has neither {MODEL_FILE} nor {self.best.relative_to(self.path)} to make it from. Put one "
                f"of them back, or delete {RESULT} and train on."
            )
        checkpoint = Checkpoint.read(self.best)
        model = build_model(checkpoint.config.model)
        path = self.path / MODEL_FILE
        try:
            model.load_state_dict(checkpoint.weights)
            save_model(model, path, task=checkpoint.config.task)
        except RuntimeError as error:
            raise RunError(f"{self.best} does not hold the weights that its settings name: {error}") from error
        except OSError as error:
            raise unwritable(path, error) from error

    def repair(self) -> None:
        """Write the model of a run that has finished, if it is missing; the same run always gives the same bytes."""
        if (self.path / RESULT).is_file() and not (self.path / MODEL_FILE).is_file():
            self.write_model()

    def check(self, config: TrainConfig) -> None:
        """Refuse a folder that holds something else than a run of this config.

        Raises:
            RunError: The sentence names what differs.
        """
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path} is a file; a run needs a folder of its own.")
        if not self.exists:
            foreign = [x.name for x in self.path.iterdir() if not x.name.startswith(".")] if self.path.exists() else []
            if foreign:
                raise RunError(
                    f"{self.path} holds {foreign[0]!r} and is no run folder; choose a new or empty folder for the run."
                )
            return
        there = [self.config()]
        if self.last.is_file():
            there.append(Checkpoint.read(self.last).config)
        for recorded in there:
            if differences := differing(recorded, config):
                raise RunError(
                    f"{self.path} holds a run with other settings: its {', its '.join(differences)}. Choose another "
                    "folder, or the settings of that run; without any settings it goes on as it is."
                )
        self._check_origin(config)

    def _check_origin(self, config: TrainConfig) -> None:
        """Refuse weights to start from that are not those of the first start."""
        recorded = self.record().init_from if (self.path / RUN).is_file() else None
        if recorded is None:
            return
        try:
            found = find_origin(config)
        except FileNotFoundError:  # a checkpoint needs them no more
            return
        if found is None or found.weights != recorded.weights:
            of = f" (record {recorded.record})" if recorded.record else ""
            raise RunError(
                f"The run {self.path} started from other weights than init_from, {config.init_from!r}, names now: those"
                f" with the hash {recorded.weights[:12]}…{of}. Put these weights back, or begin a new run."
            )

    def begin(self, config: TrainConfig, start: dict[str, Any], data: str) -> None:
        """Fill the new folder, or note that its run goes on.

        Args:
            config: The settings.
            start: About this start: command, commit, versions, hardware.
            data: Fingerprint of the data.

        Raises:
            RunError: The data is not what it was.
        """
        if not self.exists:
            write_whole(self.path / CONFIG, to_toml(config.to_dict()).encode())
        (self.path / CHECKPOINTS).mkdir(exist_ok=True)
        path = self.path / RUN
        origin = None if path.is_file() else find_origin(config)
        record: dict[str, Any] = {"data": data, "starts": [], "init_from": origin and asdict(origin)}
        if path.is_file():
            record = asdict(self.record())
        if record["data"] != data:
            raise RunError(
                f"The data of the run {self.path} has changed since it began: it was {record['data']}, and is {data}. "
                "Put the old data back, or begin a new run."
            )
        settings = flatten(config.to_dict())
        record["starts"].append(start | {"settings": {key: settings[key] for key in sorted(RESUMABLE_FIELDS)}})
        write_whole(path, _json(record))

    def record(self) -> RunRecord:
        """The content of `run.json`.

        Raises:
            RunError: It is missing or damaged.
        """
        return read_file(self.path / RUN, lambda text: typed_fields(RunRecord, parse_json(text), "it"))

    def read_last(self) -> Checkpoint | None:
        """What the run goes on from, if it has come so far."""
        return Checkpoint.read(self.last) if self.last.is_file() else None

    def read_best(self) -> Position:
        """Where the best weights stand. They may be of a later step than `last`, if the run was killed in between."""
        return Checkpoint.read(self.best).position if self.best.is_file() else Position()

    def finish(self, result: Result) -> None:
        """Write the result; the run has ended."""
        write_whole(self.path / RESULT, _json(asdict(result)))


class MetricsFile:
    """`metrics.jsonl`: lines are appended, and cut off where the checkpoint stood when a run goes on.

    Args:
        folder: The run's.
        length: Bytes to keep.
    """

    def __init__(self, folder: RunFolder, length: int) -> None:
        self._path = folder.path / METRICS
        try:
            self._file = self._path.open("ab")
            if self._file.tell() < length:
                raise RunError(f"{self._path} is shorter than when the checkpoint was written; put it back as it was.")
            self._file.truncate(length)
            self._length = length
        except OSError as error:
            raise unwritable(self._path, error) from error

    def write(self, line: dict[str, Any]) -> None:
        """Append a line."""
        data = json.dumps(line).encode() + b"\n"
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise unwritable(self._path, error) from error
        self._length += len(data)

    def flush(self) -> int:
        """Wait until all lines are on the disk; returns how many bytes they are."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise unwritable(self._path, error) from error
        return self._length

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@dataclass(frozen=True, slots=True)
class MetricsLine:
    """What every line of `metrics.jsonl` has; lines of one kind have more."""

    kind: Literal["train", "validation", "stage"]
    step: int
    examples: int


def read_metrics(folder: RunFolder) -> list[dict[str, Any]]:
    """The lines of `metrics.jsonl`; a last one that was not written to its end is left out.

    Raises:
        RunError: A line is damaged.
    """
    path = folder.path / METRICS
    whole = path.read_bytes().rpartition(b"\n")[0] if path.is_file() else b""
    lines: list[dict[str, Any]] = []
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            read = typed(dict[str, bool | int | float | str | None], parse_json(line), f"line {number}")
            typed(MetricsLine, {key: read.get(key) for key in ("kind", "step", "examples")}, f"line {number}")
        except ValueError as error:
            raise RunError(f"{path} is damaged: {error}.") from error
        lines.append(read)
    return lines


def read_config(path: Path) -> TrainConfig:
    """Settings from a TOML file.

    Raises:
        FileNotFoundError: There is none.
        RunError: It is not TOML, or has settings that are unknown or contradict each other.
    """
    return read_file(path, lambda text: TrainConfig.from_dict(upgrade_settings(parse_toml(text))))


T = TypeVar("T")


def read_file(path: Path, read: Callable[[str], T]) -> T:
    """What a small file of a run says.

    Raises:
        FileNotFoundError: There is none.
        RunError: It says something else.
    """
    try:
        return read(path.read_text("utf-8"))
    except FileNotFoundError:
        raise
    except (ValueError, OSError) as error:
        raise RunError(f"{path} cannot be read: {str(error).rstrip('.')}.") from error


def _read_result(text: str) -> Result:
    values: dict[str, Any] = typed(dict, parse_json(text), "it")
    values.pop("joules", None)  # of version 0.2.0, which measured energy
    return typed_fields(Result, values, "it")


def _json(values: dict[str, Any]) -> bytes:
    return (json.dumps(values, indent=2) + "\n").encode()
