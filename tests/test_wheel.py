"""The package as people install it: a wheel, built from this tree, in an environment of its own."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "ipagnn"
CODE = {".py", ".cu", ".cuh", ".html", ".css", ".js", ".safetensors", ".md", ".typed"}


def call(*command: object, stdin: str = "") -> str:
    """What a command prints, run without what leads to this tree, and without compiling, which takes the longest."""
    plain = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    plain["NUMBA_DISABLE_JIT"] = "1"
    done = subprocess.run(
        [*map(str, command)], input=stdin, capture_output=True, text=True, check=False, cwd=ROOT.anchor, env=plain
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="hatchling is not installed; `make` brings it")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [built] = folder.glob("ipagnn-*.whl")
    return built


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    ours = {path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert {path.relative_to(SOURCE.parent).as_posix() for path in ours if path.suffix in CODE} <= names
    assert {name.partition("/")[0] for name in names} == {"ipagnn"}


def test_the_installed_wheel_predicts(wheel: Path, tmp_path: Path) -> None:
    """In an environment that has the dependencies of this one, so that nothing is downloaded, and not this tree."""
    venv.create(tmp_path, symlinks=True)
    python = tmp_path / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--quiet", "--disable-pip-version-check", "install"]
    call(*pip, "--no-deps", "--no-index", "--no-compile", wheel)
    packages = Path(call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))  # its own .pth files are not read
    assert Path(call(python, "-c", "import ipagnn; print(ipagnn.__file__)").strip()).is_relative_to(tmp_path)
    assert "says 23" in call(tmp_path / "bin" / "ipagnn", "predict", "-", stdin="v0 = 7\nv0 += 2\nv0 *= 3\nv0 -= 4\n")
