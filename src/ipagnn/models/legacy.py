"""Configurations that version 0.1.0 wrote, as this version reads them.

Version 0.1.0 had one configuration for all models, with every option of any of them.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from ipagnn._common.typed import typed
from ipagnn.models.registry import model_class

RENAMED: Final = {"both_ways": "bidirectional", "absorb": "absorbing_exit"}
"""New names of options by their old ones."""

OPTIONS: Final[dict[str, Any]] = {
    "normalise": True,
    "heads": 1,
    "bidirectional": True,
    "edge_types": False,
    "absorbing_exit": False,
    "decoder": False,
}
"""Options of single models that every configuration had, with their defaults."""


def upgrade_model(values: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a model without what is gone, and with the names that options have now.

    Options of other models are left out where they have their defaults. A number of classes is left out where it is the
    modulus, which it had to be. What is unknown stays as it is, for the reader to refuse.

    Args:
        values: A configuration of this or of an earlier version.
    """
    upgraded = {RENAMED.get(name, name): value for name, value in values.items()}
    grammar = upgraded.get("grammar")
    modulus = grammar.get("modulus", 1000) if isinstance(grammar, Mapping) else 1000
    if "classes" in upgraded and upgraded["classes"] == modulus:
        del upgraded["classes"]
    if prune := upgraded.pop("prune", 0):
        raise ValueError(
            f"prune is {prune}; version 0.1.0 was the last in which a model's configuration had it. Leave it out, and "
            "give it with each call: model(batch, prune=...), or `ipagnn evaluate --prune`."
        )
    upgraded.pop("execution", None)  # the same results, whatever it was
    model = typed(str, upgraded.get("name", "ipa-gnn"), "model.name")
    known = {each.name for each in fields(model_class(model).Config)}
    return {
        name: value
        for name, value in upgraded.items()
        if name in known or name not in OPTIONS or value != OPTIONS[name]
    }
