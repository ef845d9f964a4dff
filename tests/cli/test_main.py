"""What holds for the command line as a whole."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ipagnn
from ipagnn.cli.main import app, main
from ipagnn.cli.terminal import progress

COMMAND = [sys.executable, "-m", "ipagnn"]
COMMANDS = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]


def test_version(run: Any) -> None:
    assert run("--version") == (0, f"ipagnn {ipagnn.__version__}\n", "")


def test_help_lists_every_command_and_every_command_has_a_page(run: Any) -> None:
    for arguments in ([], ["--help"]):
        code, out, err = run(*arguments)
        assert (code, err) == (0, "")
        assert all(name in out for name in COMMANDS)
    for name in COMMANDS:
        code, out, err = run(name, "--help")
        assert (code, err) == (0, "")
        assert f"Usage: ipagnn {name}" in out
        assert f"ipagnn {name}" in out.partition("Usage:")[2].partition("\n")[2], "a page ends with an example"


def test_help_does_not_wait_for_heavy_imports() -> None:
    code = "import sys, ipagnn.cli.main; print({'torch', 'numba', 'pyarrow', 'matplotlib', 'numpy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"set()\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "nonsense"),
        (["sample", "--nonsense"], "--nonsense"),
        (["sample", "--length", "x"], "--length"),
        (["sample", "--length", "1"], "from 2 to 1000"),
        (["sample", "--length", "100000"], "from 2 to 1000"),
        (["sample", "--count", "-1"], "--count"),
        (["sample", "--seed", "-1"], "from 0 to 2**64 - 1"),
        (["sample", "--task", "both"], "'full', 'partial'"),
        (["inspect"], "FILE"),
        (["inspect", "/nowhere/at/all.py"], "/nowhere/at/all.py: No such file or directory"),
        (["inspect", "/"], "/: Is a directory"),
        (["inspect", "-"], "standard input"),
        (["inspect", "-", "--json", "--dot"], "choose one"),
    ],
)
def test_bad_input_is_exit_code_2_and_one_sentence(
    refused: Callable[..., str], arguments: list[str], message: str
) -> None:
    assert message in refused(*arguments)


def test_binary_input_is_a_sentence(refused: Callable[..., str]) -> None:
    assert "UTF-8" in refused("inspect", "-", stdin=b"\xff\xfe\x00")


def test_as_a_process(run_process: Any, is_sentence: Callable[[str], bool]) -> None:
    assert run_process("sample", "--length", 2).code == 0
    code, out, err = run_process("sample", "--length", 1)
    assert (code, out) == (2, "")
    assert is_sentence(err)


def test_development_mode_shows_the_traceback() -> None:
    command = [sys.executable, "-X", "dev", "-m", "ipagnn", "sample", "--length", "1"]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 1
    assert b"Traceback" in done.stderr


def test_mistakes_of_ours_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise TypeError("a mistake")

    monkeypatch.setattr("ipagnn.languages.arithmetic.format_program", broken)
    with pytest.raises(TypeError, match="a mistake"):
        main(["sample"])


def test_a_reader_that_goes_away_is_no_error() -> None:
    with subprocess.Popen(
        [*COMMAND, "sample", "--count", "100000", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"source"')
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141


def test_interrupt_is_exit_code_130(tmp_path: Path, is_sentence: Callable[[str], bool]) -> None:
    out = tmp_path / "out"
    with out.open("wb") as file:
        process = subprocess.Popen([*COMMAND, "sample", "--count", "100000000"], stdout=file, stderr=subprocess.PIPE)
        while not out.stat().st_size and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        try:
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert is_sentence(err.decode())


def test_colour_on_a_terminal_only(run_process: Any, run_terminal: Callable[..., str]) -> None:
    assert "\x1b" not in run_process("sample").out
    assert "\x1b[" in run_terminal("sample", "--length", "5")


def test_progress_is_silent_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("Writing", "programs", 10) as advance:
        advance(5)
    assert capsys.readouterr() == ("", "")
