"""Python files that belong to no installed package: experiments, tools of the documentation, what tests write."""

import importlib.util
from pathlib import Path
from types import ModuleType

EXPERIMENTS = Path(__file__).parents[1] / "experiments"


def load(path: Path, name: str | None = None) -> ModuleType:
    """The file as a module, by default of its own name; a new one each time, which no import finds."""
    spec = importlib.util.spec_from_file_location(name or path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
