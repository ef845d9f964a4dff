import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import ipagnn

PACKAGES = [
    ".".join(path.parent.relative_to(Path(ipagnn.__file__).parents[1]).parts)
    for path in sorted(Path(ipagnn.__file__).parent.rglob("__init__.py"))
    if "import_lazily(__name__)" in path.read_text()
]
ROOM = """
from typing import TYPE_CHECKING
from ipagnn._common.lazy import import_lazily
if TYPE_CHECKING:
    from attic import chest
    from attic.lamp import lamp
    from attic.table import table, leg
__all__ = ["chest", "lamp", "leg", "table"]
import_lazily(__name__)
"""


@pytest.fixture
def attic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A package of three modules, two of which define a name that is also theirs."""
    (tmp_path / "attic").mkdir()
    (tmp_path / "attic" / "__init__.py").write_text(ROOM)
    (tmp_path / "attic" / "lamp.py").write_text("def lamp(): return 'light'")
    (tmp_path / "attic" / "table.py").write_text("leg = 4\ndef table(): return leg")
    (tmp_path / "attic" / "chest.py").write_text("content = 'gold'")
    monkeypatch.syspath_prepend(tmp_path)
    yield import_module("attic")
    for name in [name for name in sys.modules if name.partition(".")[0] == "attic"]:
        del sys.modules[name]


def test_a_name_is_imported_when_first_asked_for(attic: ModuleType) -> None:
    assert set(dir(attic)) >= {"chest", "lamp", "leg", "table"}
    assert "_homes" not in dir(attic)
    assert "attic.table" not in sys.modules
    assert attic.leg == 4
    assert "attic.table" in sys.modules
    assert "attic.lamp" not in sys.modules
    assert attic.chest.content == "gold"
    with pytest.raises(AttributeError, match="module 'attic' has no attribute 'door'"):
        _ = attic.door


def test_a_submodule_does_not_hide_the_name_that_it_defines(attic: ModuleType) -> None:
    import_module("attic.table")
    assert attic.table() == 4
    import_module("attic.lamp")
    assert attic.lamp() == "light"
    assert sys.modules["attic.lamp"].lamp is attic.lamp


@pytest.mark.parametrize("name", PACKAGES)
def test_packages_list_the_names_that_they_import(name: str) -> None:
    package = import_module(name)
    assert set(package.__all__) - {"__version__"} == set(package._homes)
    for public in package.__all__:
        assert getattr(package, public) is not None


def test_the_rooms_are_lazy() -> None:
    assert {"ipagnn", "ipagnn.evaluation", "ipagnn.languages.arithmetic", "ipagnn.training"} <= set(PACKAGES)
