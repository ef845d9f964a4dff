"""What `import ipagnn` offers. After a change that is meant: `python tests/test_public_api.py`."""

import inspect
import subprocess
import sys
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

import ipagnn

SNAPSHOT = Path(__file__).with_name("public_api.txt")


def signature(function: Any) -> str:
    """Arguments with their defaults, without types, which Python versions print differently."""

    def plain(parameter: inspect.Parameter) -> inspect.Parameter:
        default = parameter.default
        short = default is parameter.empty or isinstance(default, None | bool | int | float | str)
        return parameter.replace(annotation=parameter.empty, default=default if short else ...)

    found = inspect.signature(function)
    return str(found.replace(parameters=[*map(plain, found.parameters.values())], return_annotation=found.empty))


def described() -> str:
    """A line for each public name, and below a class that is not a model one for each of its public attributes."""
    lines = []
    for name in sorted(ipagnn.__all__):
        found = getattr(ipagnn, name)
        if inspect.isclass(found):
            lines.append(f"class {name}{signature(found)}")
            public = () if issubclass(found, torch.nn.Module) else sorted(vars(found))
            attributes = ((key, inspect.getattr_static(found, key)) for key in public if not key.startswith("_"))
            for key, attribute in attributes:
                if isinstance(attribute, property | cached_property):
                    lines.append(f"    {key}")
                elif callable(getattr(found, key)):
                    lines.append(f"    {key}{signature(getattr(found, key))}")
        else:
            lines.append(f"{name}{signature(found)}" if inspect.isfunction(found) else name)
    return "\n".join(lines) + "\n"


def test_names_and_arguments_are_those_of_the_snapshot() -> None:
    assert described() == SNAPSHOT.read_text(), "run `python tests/test_public_api.py` if this change is meant"


def test_every_name_is_listed_and_found() -> None:
    assert set(ipagnn.__all__) <= set(dir(ipagnn))
    assert 15 <= len(ipagnn.__all__) <= 24
    assert not hasattr(ipagnn, "no_such_name")


def test_the_package_alone_imports_neither_torch_nor_its_rooms() -> None:
    code = "import ipagnn, sys; print(*(m for m in sys.modules if m.startswith(('torch', 'numpy', 'ipagnn'))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {"ipagnn", "ipagnn._common", "ipagnn._common.lazy"}


if __name__ == "__main__":
    SNAPSHOT.write_text(described())
