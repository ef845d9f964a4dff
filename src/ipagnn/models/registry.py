"""Models by name, and how they are built."""

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeVar

from ipagnn._common.hints import near_miss
from ipagnn._common.options import options_from_dict
from ipagnn.models.base import ProgramModel
from ipagnn.models.config import ModelConfig
from ipagnn.models.extensions import import_entry_point, import_models

PACKAGED: Final[Mapping[str, str]] = {
    name: f"ipagnn.models.{name.replace('-', '_')}"
    for name in (
        *("env-ipa-gnn", "ggnn", "hard-ip-rnn", "ipa-gnn", "line-rnn", "no-control", "no-execute", "r-gat"),
        "trace-rnn",
    )
}
"""The models of this package, and the modules that register them."""


class Models(MutableMapping[str, type[ProgramModel]]):
    """Model classes by name. Those of this package are imported when they are first asked for.

    Attributes:
        imported: Those that are imported.
    """

    def __init__(self) -> None:
        self.imported: dict[str, type[ProgramModel]] = {}

    def __getitem__(self, name: str) -> type[ProgramModel]:
        if name not in self.imported and name in PACKAGED:
            import_module(PACKAGED[name])
        return self.imported[name]

    def __setitem__(self, name: str, model: type[ProgramModel]) -> None:
        self.imported[name] = model

    def __delitem__(self, name: str) -> None:
        del self.imported[name]

    def __contains__(self, name: object) -> bool:
        return name in self.imported or name in PACKAGED

    def __iter__(self) -> Iterator[str]:
        return iter([*PACKAGED, *(name for name in self.imported if name not in PACKAGED)])

    def __len__(self) -> int:
        return len({*PACKAGED, *self.imported})


MODELS: Final = Models()
"""Every model by name."""

_Model = TypeVar("_Model", bound=type[ProgramModel])


def register(model: _Model) -> _Model:
    """Make a model class known by its `name`."""
    known = MODELS.imported.get(model.name, model)
    if known.__qualname__ != model.__qualname__ or PACKAGED.get(model.name, model.__module__) != model.__module__:
        raise ValueError(f"The name {model.name!r} is taken by {MODELS[model.name].__name__}; choose another.")
    MODELS[model.name] = model
    return model


def model_class(name: str) -> type[ProgramModel]:
    """The model of that name.

    Raises:
        ValueError: There is none; the sentence gives the near miss.
    """
    if name not in MODELS:
        import_entry_point(name)
    if name not in MODELS:
        raise ValueError(
            f"There is no model {name!r}. {near_miss(name, MODELS, 'Choose one of')} A model of your own is known "
            "after `ipagnn --import FILE.py …`."
        )
    return MODELS[name]


def register_file(place: str | Path) -> list[str]:
    """Make the models and tasks of a Python file known, which is imported.

    Args:
        place: `FILE.py`, or `FILE.py:Class` for one of its classes.

    Returns:
        Their names.

    Raises:
        ValueError: There is no such file or class, or no model and no task in it is registered.
    """
    return import_models(place, MODELS.imported)


def model_title(name: str) -> str:
    """How tables, figures and model cards name a model, known or not."""
    return (name in MODELS and MODELS[name].title) or name


def model_config(name: str, like: ModelConfig | None = None, **options: Any) -> ModelConfig:
    """The configuration of a model.

    Args:
        name: Name of the model.
        like: A configuration of any model; options that both models have are taken from it.
        options: Options by name; the others keep their defaults.
    """
    config = model_class(name).Config
    shared = {} if like is None else {f.name: getattr(like, f.name) for f in fields(config) if hasattr(like, f.name)}
    return options_from_dict(config, shared | options)


def config_from_dict(values: Mapping[str, Any], where: str = "") -> ModelConfig:
    """A configuration from the name of a model (`ipa-gnn` if there is none) and some or all of its options.

    Args:
        values: As `ModelConfig.to_dict` gives them.
        where: Dotted names of the tables around it, for error messages.

    Raises:
        ValueError: The model or an option is unknown, or a value is not what its option holds.
    """
    given = dict(values)
    return options_from_dict(model_class(given.pop("name", "ipa-gnn")).Config, given, where)


def build_model(model: str | ModelConfig, seed: int = 0, **options: Any) -> ProgramModel:
    """A new model with weights drawn from `seed`, the same on every machine.

    Args:
        model: Name of a model, or its configuration.
        seed: Decides the weights.
        options: Options of the model, where its name is given: `build_model("ipa-gnn", hidden=64)`.
    """
    name = model if isinstance(model, str) else model.name
    return model_class(name)(None if isinstance(model, str) else model, seed=seed, **options)
