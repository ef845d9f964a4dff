"""Settings as version 0.1.0 wrote them, as this version reads them.

They were one flat table, some under other names.
"""

from collections.abc import Mapping
from typing import Any, Final

RENAMED: Final = {
    "start": "init_from",
    "data": "data.source",
    "length": "data.length",
    "examples": "data.examples",
    "batch_size": "data.batch_size",
    "window": "data.bucket_batches",
    "curriculum": "data.curriculum",
    "loops": "data.loops",
    "budget": "data.budget",
    "budget_cap": "data.budget_cap",
    "optimizer": "optimizer.algorithm",
    "rate": "optimizer.learning_rate",
    "schedule": "optimizer.schedule",
    "warmup": "optimizer.warmup",
    "clip": "optimizer.max_grad_norm",
    "norm_limit": "optimizer.norm_limit",
    "on_nan": "optimizer.on_nan",
    "averaging": "optimizer.averaging",
    "trace_loss": "optimizer.trace_loss",
    "precision": "run.precision",
    "device": "run.device",
    "threads": "run.threads",
    "workers": "run.workers",
    "validation_count": "run.validation_count",
    "validation_every": "run.validation_every",
    "log_every": "run.log_every",
    "checkpoint_every": "run.checkpoint_every",
    "checkpoint_steps": "run.checkpoint_steps",
}
"""New names of settings by their old ones."""

RETIRED: Final = {"data.loops": 0, "optimizer.trace_loss": 0.0}
"""Settings of earlier versions that this one does not have, with the values that had no effect."""


def upgrade_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a file under the names that they have now; those that are gone and had an effect, as `retired`.

    Args:
        values: Settings of this or of an earlier version, as nested tables.
    """
    upgraded: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            upgraded[key] = {**upgraded.get(key, {}), **value}
            continue
        group, dot, name = RENAMED.get(key, key).partition(".")
        upgraded[group] = {**upgraded.get(group, {}), name: value} if dot else value
    retired = []
    for key, without in RETIRED.items():
        group, _, name = key.partition(".")
        if name in upgraded.get(group, {}):
            value = upgraded[group].pop(name)
            retired += [f"{key} = {value}"] if value != without else []
    return upgraded | ({"retired": ", ".join(retired)} if retired else {})
