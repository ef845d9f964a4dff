"""Every command of README, docs and help pages: its words are right, and what takes seconds runs as it stands there."""

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from ipagnn.cli.main import app
from ipagnn.models import available_models

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "records/README.md", "benchmarks/README.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
]
BLOCK = re.compile(r"^```(?:bash|sh)\n(.*?)^```", re.DOTALL | re.MULTILINE)
MENTION = re.compile(r"`+((?:ipagnn|(?:PYTHONPATH=src )?\S*python \S+\.py)(?: [^`\n]*(?:\n[^`\n]+)?)?)`+")
EXAMPLE = re.compile(r"^    `(ipagnn [^`]*)`$", re.MULTILINE)
GROUP = typer.main.get_command(app)
ELSEWHERE = re.compile(
    r"^(pip|torchrun|ray|RAY_ADDRESS|python)\b"  # another program, whose arguments are its own
    r"|--address|ipagnn (serve|demo|sweep)\b|\| dot "  # a cluster, for ever, minutes, graphviz: other tests run these
)


def blocks(document: Path) -> list[str]:
    """Commands of the blocks of a document, without the comments behind them."""
    lines = "".join(BLOCK.findall(document.read_text())).splitlines()
    return [command for line in lines if (command := re.sub(r"(^|\s+)# .*", "", line).strip())]


def help_examples() -> list[str]:
    """The examples of help pages: lines of a docstring that hold nothing but a command."""
    return [
        each for path in sorted((ROOT / "src/ipagnn/cli").glob("*.py")) for each in EXAMPLE.findall(path.read_text())
    ]


def mentions() -> Iterator[tuple[str, str]]:
    """Commands within sentences of documents and of strings of the package, and where they stand."""
    for path in [*DOCUMENTS, *sorted((ROOT / "src").rglob("*.py"))]:
        text = path.read_text()
        if path.suffix == ".py":
            text = "\n\n".join(
                "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "X"
                    for part in getattr(node, "values", [node])
                )
                for node in ast.walk(ast.parse(text))
                if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
            )
        for found in MENTION.findall(BLOCK.sub("", text)):
            yield path.relative_to(ROOT).as_posix(), " ".join(found.split())


def calls(command: str) -> Iterator[list[str]]:
    """What a line of a shell gives to `ipagnn`."""
    words = shlex.shlex(command, posix=True, punctuation_chars="|>&;")
    words.whitespace_split = True
    call: list[str] = []
    for word in [*words, "|"]:
        if set(word) <= set("|>&;"):
            if call[:1] == ["ipagnn"]:
                yield call[1:]
            call = []
        else:
            call.append(word)


def parse(arguments: list[str]) -> None:
    """Let the command line read arguments, without running anything."""
    with GROUP.make_context("ipagnn", list(arguments)) as context:
        name, command, rest = GROUP.resolve_command(context, [*context._protected_args, *context.args])
        assert command is not None
        command.make_context(name, list(rest), parent=context)


@pytest.mark.parametrize("command", sorted({*help_examples(), *(each for path in DOCUMENTS for each in blocks(path))}))
def test_commands_are_read(command: str) -> None:
    for arguments in calls(command):
        parse(arguments)


def test_commands_within_sentences_name_what_there_is() -> None:
    names = {each.name or each.callback.__name__: each for each in app.registered_commands if each.callback}
    checked = 0
    for place, command in mentions():
        words = command.removeprefix("PYTHONPATH=src ").split()
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        if words[0] == "ipagnn":
            found = [word for word in words[1:] if word in names]
            accepted = {"--import", "--version", "--help", *options_of(found[0] if found else None)}
            assert found or len(words) == 1 or words[1].startswith("-"), (place, command)
        else:
            script = ROOT / next(word for word in words if word.endswith(".py"))
            assert script.is_file(), (place, command)
            scripts = "".join(path.read_text() for path in script.parent.glob("*.py"))  # they share their options
            accepted = set(re.findall(r'"(--[a-z-]+)"', scripts))
        assert options <= accepted, (place, command)
        checked += 1
    assert checked > 50


def options_of(name: str | None) -> set[str]:
    """The options of a command; of all commands if none is named."""
    with GROUP.make_context("ipagnn", [], resilient_parsing=True) as context:
        commands = [GROUP.get_command(context, each) for each in ([name] if name else GROUP.list_commands(context))]
    return {option for command in commands if command for each in command.params for option in each.opts}


def quick(command: str) -> str:
    """The same command with less to do."""
    command = re.sub(r"--preset (quick|paper)", "--preset smoke", command)
    command = re.sub(r"--count \d{3,}", "--count 20", command)
    command = re.sub(r"--time-limit \S+", "--time-limit 2s", command).replace("model.hidden=300", "model.hidden=8")
    if re.search(r"ipagnn (evaluate|figure accuracy)", command) and "--count" not in command:
        command += " --count 2"
    return f"{command} --time-limit 2s" if "--config" in command else command


IN_TEST_ALL = ("docs/page.md", "docs/training.md", "docs/evaluation.md", "docs/language.md", "help")


@pytest.mark.parametrize(
    "document", ["README.md", *(pytest.param(each, marks=pytest.mark.slow) for each in IN_TEST_ALL)]
)
def test_commands_run_in_order(document: str, tmp_path: Path) -> None:
    """All but those that need another machine or last for ever; README's are not changed at all."""
    there = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    unchanged = document == "README.md"

    def run(command: str) -> bytes:
        done = subprocess.run(command, shell=True, cwd=tmp_path, env=there, capture_output=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr.decode()}"
        return done.stdout

    commands = help_examples() if document == "help" else blocks(ROOT / document)
    if not unchanged:
        prepare(tmp_path)
        for name in ("a", "b") if document != "docs/training.md" else ():
            run(f"ipagnn train runs/{name} --preset smoke --seed {ord(name)}")
            run(f"ipagnn evaluate runs/{name} --lengths 5 --count 5 --save")
    ran = 0
    for command in commands:
        named = set(re.findall(r"[a-z-]+-(?:full|partial|any)\b", command))
        if ELSEWHERE.search(command) or not named <= set(available_models()):
            continue
        if document == "help":  # other examples have used these folders
            command = command.replace("train runs/", "train runs/new/")
        shown = run(command if unchanged else quick(command))
        assert shown or ">" in command or "--out" in command, command
        ran += 1
    assert ran >= 3


def prepare(folder: Path) -> None:
    """The programs, records and settings that commands name."""
    shutil.copytree(ROOT / "records", folder / "records")
    (folder / "src/ipagnn/weights").mkdir(parents=True)
    (folder / "programs").mkdir()
    source = "v0 = 7\nv1 = 3\nwhile v1 > 0:\n  v1 -= 1\n  v0 *= 2\n"
    for name in ("a.py", "b.py", "mine.py", "program.py", "programs/c.py"):
        (folder / name).write_text(source)
    for name in ("mine.jsonl", "my_programs.jsonl"):
        (folder / name).write_text('"v0 = 7\\nv0 += 2"\n"v0 = 3\\nv0 *= 3"\n')
