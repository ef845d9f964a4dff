"""Models and tasks from outside the package: files that a user names, and entry points of installed packages.

A file is imported only when a person names it (`--import FILE`, `--model FILE:Class`, `import_models`). Settings and
weight files name a model by its `name` alone, so no file that is merely read can cause code to run.
"""

import sys
from collections.abc import Mapping
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ipagnn.data.tasks import TASKS

if TYPE_CHECKING:
    from ipagnn.models.base import ProgramModel

ENTRY_POINTS: Final = "ipagnn.models"
"""Group of entry points: the name of a model, and where its class is."""


def import_models(place: str | Path, known: Mapping[str, type["ProgramModel"]]) -> list[str]:
    """Import a Python file, whose `@register` makes its models known, and whose `register_task` its tasks.

    Args:
        place: The file; `FILE.py:Class` wants one class of it.
        known: The registry that the file adds to.

    Returns:
        Names of the models that are in the file; of the one model if a class is named.

    Raises:
        ValueError: There is no such file or class, or no model and no task in it is registered.
    """
    path, _, wanted = str(place).partition(".py:")
    file = Path(path if path.endswith(".py") else f"{path}.py").resolve()
    if not file.is_file():
        raise ValueError(f"There is no file {file}; name a Python file with a registered model, as in FILE.py:Class.")
    name = f"ipagnn_models_{file.stem}"
    module = sys.modules.get(name)
    if module is None or getattr(module, "__file__", None) != str(file):
        spec = spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    found = {model.__name__: each for each, model in known.items() if model.__module__ == name}
    tasks = [task for task in TASKS.values() if any(target.read.__module__ == name for target in task.targets)]
    if not found and (wanted or not tasks):
        raise ValueError(f"{file} registers no model; put @register above its class.")
    if not wanted:
        return list(found.values())
    if wanted not in found:
        raise ValueError(f"{file} registers no model class {wanted!r}; it has {', '.join(found)}.")
    return [found[wanted]]


def import_entry_point(name: str) -> None:
    """Import the model that an installed package offers under this name, if one does."""
    for point in entry_points(group=ENTRY_POINTS, name=name):
        point.load()
