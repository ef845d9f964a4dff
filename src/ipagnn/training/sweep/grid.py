"""What a sweep tries: every combination of some values of some settings."""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

from ipagnn._common.hints import near_miss
from ipagnn._common.options import flatten, merge
from ipagnn._common.typed import parse_toml
from ipagnn.training.config import TrainConfig
from ipagnn.training.legacy import upgrade_settings
from ipagnn.training.presets import PresetName
from ipagnn.training.resolve import resolve

Grid = dict[str, list[Any]]
"""Values to try, by dotted setting."""

PAPER_GRID: Final[Grid] = {"model.hidden": [200, 300], "optimizer.learning_rate": [3e-3, 1e-3, 3e-4, 1e-4]}
"""What the paper chose from, for each of its models."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One point of a grid.

    Attributes:
        name: Of its run folder, as in `hidden=200,learning_rate=0.001`.
        values: Its values, by dotted setting.
        config: All its settings.
    """

    name: str
    values: dict[str, Any]
    config: TrainConfig


def read_grid(path: Path) -> Grid:
    """A grid from a TOML file: settings as in `config.toml`, each with the list of its values.

    Raises:
        ValueError: It is not TOML, a setting is unknown, or a value is no list.
    """
    try:
        grid: Grid = flatten(upgrade_settings(parse_toml(path.read_text("utf-8"))))
        known = list(flatten(TrainConfig().to_dict()))
        for key, values in grid.items():
            if key not in known and not key.startswith("stages."):
                raise ValueError(f"{key!r} is not a setting. {near_miss(key, known, 'The settings are')}")
            if not isinstance(values, list) or not values:
                raise ValueError(f"{key} is {values!r}; it must be a list of one or more values to try.")
        if not grid:
            raise ValueError("it names no setting; give at least one with a list of values, as in seed = [0, 1].")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return grid


def expand(
    grid: Grid, preset_name: PresetName = "paper", changes: Mapping[str, Any] | None = None, samples: int | None = None
) -> list[Trial]:
    """All points of a grid.

    Args:
        grid: Values to try.
        preset_name: What the other settings are.
        changes: Settings of all trials over those of the preset, as nested tables.
        samples: Take so many points only, chosen at random but always the same.

    Returns:
        The trials; the last setting of the grid changes fastest.

    Raises:
        ValueError: A setting is unknown, settings contradict each other, or two trials would be the same.
    """
    changes = changes or {}
    if both := sorted(flatten(changes).keys() & grid.keys()):
        raise ValueError(f"{both[0]} is set to one value and is also in the grid; leave it out of one of them.")
    trials: dict[str, Trial] = {}
    for point in product(*grid.values()):
        values = dict(zip(grid, point, strict=True))
        name = _name(values)
        if name in trials:
            raise ValueError(f"The grid has two trials {name}; list each value once, and values that differ by name.")
        config = resolve("", preset_name, None, merge(changes, _nest(values)))
        trials[name] = Trial(name, values, config)
    found = list(trials.values())
    if samples is None or samples >= len(found):
        return found
    chosen = random.Random(0).sample(range(len(found)), samples)
    return [found[i] for i in sorted(chosen)]


def _nest(values: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as nested tables."""
    tables: dict[str, Any] = {}
    for key, value in values.items():
        *path, leaf = key.split(".")
        table = tables
        for part in path:
            table = table.setdefault(part, {})
        table[leaf] = value
    return tables


def _name(values: Mapping[str, Any]) -> str:
    """A folder's name: the last word of each setting, and its value."""
    return ",".join(f"{key.rpartition('.')[2]}={_text(value)}" for key, value in values.items())


def _text(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "-".join(map(_text, value))
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return re.sub(r"[^A-Za-z0-9.+-]+", "_", text)
