"""Public names of a package that are imported when first asked for.

`import ipagnn` and `ipagnn --help` must not wait for torch, and a command should import only what it uses.
"""

import ast
import inspect
import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


def import_lazily(package: str) -> None:
    """Import the names that a package imports under `if TYPE_CHECKING:` when they are first asked for.

    They are written there once, where type checkers and readers look for them; this function reads them from the
    source of the package. Call it at the end of an `__init__.py`, with `__name__`.
    """
    module = sys.modules[package]
    homes: dict[str, str] = {}
    for statement in ast.parse(inspect.getsource(module)).body:
        if isinstance(statement, ast.If) and isinstance(statement.test, ast.Name):
            assert statement.test.id == "TYPE_CHECKING"
            for line in statement.body:
                assert isinstance(line, ast.ImportFrom)
                homes |= {name.name: str(line.module) for name in line.names}
    module.__class__ = _LazyPackage
    module.__dict__["_homes"] = homes


class _LazyPackage(ModuleType):
    """A package with lazy names.

    A name may be that of the submodule which defines it, such as `ipagnn.data.collate`. Importing that submodule sets
    it as an attribute of the package, where it must not take the place of the public name.
    """

    _homes: Mapping[str, str]

    def __getattr__(self, name: str) -> Any:
        if name not in self._homes:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        home = self._homes[name]
        if home == self.__name__:  # `from ipagnn import nn`
            return import_module(f"{home}.{name}")
        found = getattr(import_module(home), name)
        self.__dict__[name] = found
        return found

    def __setattr__(self, name: str, value: object) -> None:
        if not isinstance(value, ModuleType) or self._homes.get(name) in (None, self.__name__):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *self._homes} - {"_homes"})
