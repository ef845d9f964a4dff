"""What all commands share: where output goes, progress bars, and how errors are printed."""

import codecs
import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from ipagnn._common.files import PICTURES

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
"""What shells report for a program that died of writing to a closed pipe."""

TASK = typer.Option(
    help="`full`: complete programs. `partial`: programs with a masked line. Or a task of your own (`--import`)."
)
DIGITS = typer.Option(
    min=1,
    max=18,
    help="Number of digits per variable: results are modulo 10 to this power. For models whose values are digits. "
    "[default: the model's own]",
    show_default=False,
)

_WIDE = 10_000  # columns where output is no terminal: lines are not wrapped


_PLAIN = str.maketrans("▁▂▃▄▅▆▇█▏▎▍▌▋▊▉…–±×✓✗⏎·", ".:-=+*%#   ####~-~x+x;.")
"""Characters of our output in ASCII, for terminals that cannot show them."""


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_PLAIN)
    return "".join(each if each.isascii() else "?" for each in text), error.end


def encodable(*streams: Any) -> None:
    """Let streams write characters outside their encoding, such as blocks in cp1252, as ASCII of the same width."""
    codecs.register_error("ipagnn-plain", _plain)
    for stream in streams:
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="ipagnn-plain")


def output() -> Console:
    """The console for answers: as wide as the terminal, or as `COLUMNS` says; without both, lines are not wrapped."""
    console = Console(highlight=False, emoji=False)
    if console.is_terminal or os.environ.get("COLUMNS", "").isdigit():
        return console
    return Console(highlight=False, emoji=False, width=_WIDE)


def check_output(option: str, path: Path, endings: tuple[str, ...] = PICTURES) -> None:
    """Refuse to write a file of an unknown format or into a missing folder, before anything is computed."""
    if path.suffix.lower() not in endings:
        *others, last = endings
        named = f"{', '.join(others)} or {last}" if others else last
        raise ValueError(f"{option} is {path}; its name must end in {named}.")
    if not path.parent.is_dir():
        raise ValueError(f"{option} is {path}, and there is no folder {path.parent}; make it first.")


class _Rate(ProgressColumn):
    """Items per second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f} {self.unit}/s" if speed else f"– {self.unit}/s")


@contextmanager
def progress(title: str, unit: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar with rate and remaining time while the block runs; nothing if the output is no terminal.

    Args:
        title: Label of the bar.
        unit: What is counted, in the plural.
        total: The number of items.

    Yields:
        The function to call with the number of items done.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(unit), TimeRemainingColumn())
    quiet = not (sys.stdout.isatty() and sys.stderr.isatty())
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.update(task, completed=done)


def guarded(command: Callable[[], object]) -> int:
    """Run `command` and turn what it raises into an exit code and one sentence on standard error.

    Bad input is a `ValueError` whose text is the sentence, a missing extra an `ImportError`, what the system refuses an
    `OSError`. Anything else is a mistake of ours and keeps its traceback, as do all of them under `python -X dev`.

    Returns:
        0; 2 for bad input; 130 after Ctrl-C; 141, silently, when the reader of our output has gone.
    """
    try:
        command()
        sys.stdout.flush()
    except typer.Exit as error:
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return _fail("Interrupted.", EXIT_INTERRUPTED)
    except typer.TyperException as error:
        return _fail(error.format_message())
    except OSError as error:
        if error.errno == errno.EPIPE:
            # The interpreter flushes standard output once more when it ends, which must not fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return EXIT_BROKEN_PIPE
        return _fail(_system_sentence(error), cause=error)
    except (ValueError, ImportError) as error:
        return _fail(str(error), cause=error)
    return 0


def _fail(sentence: str, code: int = EXIT_BAD_INPUT, cause: Exception | None = None) -> int:
    if cause is not None and sys.flags.dev_mode:
        raise cause
    line = " ".join(sentence.split())
    typer.secho(f"Error: {line}{'' if line.endswith(('.', '?', '!')) else '.'}", fg="red", err=True)
    return code


def _system_sentence(error: OSError) -> str:
    if error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
