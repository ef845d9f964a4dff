"""What holds for the repository as a whole: its documents tell the truth, and it carries nothing of one machine."""

import itertools
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ipagnn.models import available_models

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))


def project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


def tracked() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [ROOT / name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()]


def test_readme_python_runs() -> None:
    example = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[-1]
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.startswith(b"digraph")


def test_python_of_the_page_about_using_a_model_runs() -> None:
    if "env-ipa-gnn-full" not in available_models():
        pytest.skip("this installation comes without weights")
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "page.md").read_text(), re.DOTALL)
    found: dict[str, Any] = {}
    exec(example, found)
    assert (found["prediction"].value, found["prediction"].warnings) == (14, [])
    assert [each.value for each in found["many"]] == [14, 2]
    assert found["explanation"].pointer.shape == (3, 3)


@pytest.mark.parametrize(
    "document", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md", ".ci/run"]
)
def test_documents_name_targets_that_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    named = set(re.findall(r"(?:`|^|&& )make (?:--no-print-directory )?([a-z-]+)", text, re.MULTILINE))
    assert named <= TARGETS


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "benchmarks/README.md"])
def test_links_lead_somewhere(document: str) -> None:
    path = ROOT / document
    for link in re.findall(r"\]\(([^)#]+)", path.read_text()):
        assert link.startswith("https://") or (path.parent / link).exists(), link


def test_nothing_of_one_machine_is_committed() -> None:
    places = {Path.home(), ROOT.parent} - {Path("/"), Path("/tmp")}
    homes = [*(f"{place}/" for place in places), "/home/", "file:///"]
    for path in tracked():
        if path == Path(__file__) or path.suffix in {".parquet", ".safetensors", ".png", ".pdf", ".zip"}:
            continue
        text = path.read_text(encoding="utf-8")
        assert not [home for home in homes if home in text], path


def test_installation_names_no_index() -> None:
    for name in ("Makefile", "constraints.txt", "pyproject.toml", ".ci/run"):
        assert not re.search(r"https?://|--index|--find-links|--extra", (ROOT / name).read_text()), name


def test_every_dependency_is_pinned() -> None:
    pinned = re.findall(r"^([A-Za-z0-9_.-]+)==\S+$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    names = {re.sub(r"[-_.]+", "-", name).lower() for name in pinned}
    wanted = [*project()["dependencies"], *itertools.chain(*project()["optional-dependencies"].values())]
    for requirement in wanted:
        name = re.sub(r"[-_.]+", "-", re.split(r"[\[<>=]", requirement)[0]).lower()
        assert name == "ipagnn" or name in names, requirement


def test_only_the_makefile_checks() -> None:
    script = (ROOT / ".ci/run").read_text()
    assert os.access(ROOT / ".ci/run", os.X_OK)
    assert re.findall(r"^make .* (\S+)$", script, re.MULTILINE) == ["lint", "test"]


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_help_lists_every_target() -> None:
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, check=True
    ).stdout.decode()
    assert {line.split()[1] for line in shown.splitlines()} == TARGETS
    assert {"demo", "test", "test-all", "lint", "bench", "clean", "help"} <= TARGETS
