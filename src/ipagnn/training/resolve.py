"""The settings of a run from what was given: a preset, a TOML file, single settings, or the run itself."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ipagnn._common.options import flatten, merge
from ipagnn._common.typed import parse_toml
from ipagnn.training.config import TrainConfig
from ipagnn.training.legacy import upgrade_settings
from ipagnn.training.presets import PresetName, preset
from ipagnn.training.runs.folder import RunFolder


def resolve(
    run: Path | str,
    preset_name: PresetName | None = None,
    file: Path | None = None,
    changes: Mapping[str, Any] | None = None,
) -> TrainConfig:
    """The settings of a run; of what is given, the later wins: preset, file, changes.

    Args:
        run: Its folder. Where it holds a run and neither preset nor file is given, the settings of that are the start.
        preset_name: Where to start from; `paper` if nothing else is given.
        file: A TOML file of settings.
        changes: Settings as nested tables.

    Raises:
        ValueError: A setting is unknown, or they contradict each other.
    """
    changes = changes or {}
    folder = RunFolder(run)
    if preset_name is None and file is None and folder.exists:
        return TrainConfig.from_dict(merge(folder.config().to_dict(), changes))
    given: Mapping[str, Any] = {}
    if file is not None:
        try:
            given = upgrade_settings(parse_toml(file.read_text("utf-8")))
            TrainConfig.from_dict(given)  # so that the error names the file
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
    given = merge(given, changes)
    named = flatten(given)
    base = preset(preset_name or "paper", named.get("model.name", ""), named.get("task", "full"))
    return TrainConfig.from_dict(merge(base.to_dict(), given))
