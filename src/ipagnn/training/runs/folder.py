"""The folder of a run: what is written where, and how a run that was stopped is found again. Nothing is overwritten.

- `config.toml`: the resolved settings;
- `run.json`: every start, with command, commit, versions and hardware; what the data is;
- `metrics.jsonl`: a line for every look at the metrics and every validation; `events.*`: the same for TensorBoard;
- `checkpoints/`: `last.safetensors` to go on from, `best.safetensors` as selected by validation;
- `model.safetensors` (`MODEL_FILE`), at the end: the selected weights, for `load_model`;
- `result.json`, at the end: what came out.
"""

import json
import os
import tomllib
from pathlib import Path
from typing import Any, Final

from ipagnn._common.toml import to_toml
from ipagnn.training.config import FREE, TrainConfig, differing
from ipagnn.training.runs.checkpoint import Checkpoint, Position
from ipagnn.training.runs.files import RunError, unwritable, write_whole

CONFIG: Final = "config.toml"
RUN: Final = "run.json"
METRICS: Final = "metrics.jsonl"
CHECKPOINTS: Final = "checkpoints"
RESULT: Final = "result.json"


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

    def result(self) -> dict[str, Any] | None:
        """The result, if the run has ended."""
        path = self.path / RESULT
        return json.loads(path.read_text()) if path.is_file() else None

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
        record: dict[str, Any] = {"data": data, "starts": []}
        if path.is_file():
            record = json.loads(path.read_text())
        if record["data"] != data:
            raise RunError(
                f"The data of the run {self.path} has changed since it began: it was {record['data']}, and is {data}. "
                "Put the old data back, or begin a new run."
            )
        record["starts"].append(start | {"settings": {key: getattr(config, key) for key in sorted(FREE)}})
        write_whole(path, _json(record))

    def read_last(self) -> Checkpoint | None:
        """What the run goes on from, if it has come so far."""
        return Checkpoint.read(self.last) if self.last.is_file() else None

    def read_best(self) -> Position:
        """Where the best weights stand. They may be of a later step than `last`, if the run was killed in between."""
        return Checkpoint.read(self.best).position if self.best.is_file() else Position()

    def finish(self, result: dict[str, Any]) -> None:
        """Write the result; the run has ended."""
        write_whole(self.path / RESULT, _json(result))


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


def read_metrics(folder: RunFolder) -> list[dict[str, Any]]:
    """The lines of `metrics.jsonl`; a last one that was not written to its end is left out."""
    path = folder.path / METRICS
    whole = path.read_bytes().rpartition(b"\n")[0] if path.is_file() else b""
    return [json.loads(line) for line in whole.splitlines()]


def read_config(path: Path) -> TrainConfig:
    """Settings from a TOML file.

    Raises:
        RunError: It is not TOML, or has settings that are unknown or contradict each other.
    """
    try:
        return TrainConfig.from_dict(tomllib.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        raise
    except ValueError as error:
        raise RunError(f"{path}: {error}") from error


def _json(values: dict[str, Any]) -> bytes:
    return (json.dumps(values, indent=2) + "\n").encode()
