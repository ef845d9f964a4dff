"""The commands that use a model: `predict`, `explain` and `serve`."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from ipagnn.cli.terminal import EXIT_BAD_INPUT, output

_MODEL = typer.Option(
    help="Name of a model in the package, file, or run folder. [default: the one in the package for complete or for "
    "masked programs]",
    show_default=False,
)
_FORMATS = (".svg", ".pdf", ".png")
_TOP = typer.Option(min=1, help="How many results.")


def predict(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A program; `-` is standard input.")],
    model: Annotated[str | None, _MODEL] = None,
    top: Annotated[int, _TOP] = 5,
    plot: Annotated[Path | None, typer.Option(help="Also draw it: .svg, .pdf or .png.", show_default=False)] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="One object: `top`, a list of `value` and `probability`; `value`, the true one or null; `exact`, for "
            "a masked program the distribution over all fillings.",
        ),
    ] = False,
) -> None:
    """Predict what a program comes to, and tell what it does come to.

    One line may be masked: `[MASK]` or `_`. Beside the model then stands the exact distribution over all statements
    that the line may have been.

    `ipagnn sample --length 10 | ipagnn predict -`

    `ipagnn predict mine.py --model runs/a --plot mine.svg`
    """
    from ipagnn.cli.explain_text import print_prediction
    from ipagnn.inference.predict import predict as run

    if plot is not None and plot.suffix.lower() not in _FORMATS:
        raise ValueError(f"--plot is {plot}; its name must end in .svg, .pdf or .png.")
    try:
        prediction = run(_read(file), model)
    except ValueError as error:
        raise _placed(file, error) from error
    if plot is not None:
        from ipagnn.reporting.figure_prediction import prediction_figure
        from ipagnn.reporting.style import save

        save(prediction_figure(prediction), plot)
    if as_json:
        typer.echo(json.dumps(prediction.to_dict(top)))
    else:
        print_prediction(output(), prediction, top)


def explain(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A program, or a folder of `.py` files; `-` is standard input.")
    ],
    model: Annotated[str | None, _MODEL] = None,
    top: Annotated[int, _TOP] = 5,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="What `predict --json` tells, with graph, pointer, branch decisions and true trace."
        ),
    ] = False,
) -> None:
    """Show how a model came to what it predicts: where its instruction pointer was at each step.

    Then the most likely path, branch decisions that were soft, and lines visited less often than the true trace does.
    A folder gives one JSON object a line with the key `file`; what is not a program has `error`, `line` and `column`
    instead, and the exit code is then 2 in the end.

    `ipagnn sample --length 20 | ipagnn explain -`

    `ipagnn explain programs/ --model runs/a > explained.jsonl`
    """
    from ipagnn.cli.explain_text import print_explanation
    from ipagnn.inference.explain import explain as run

    if file != "-" and Path(file).is_dir():
        _explain_folder(Path(file), model, top)
        return
    try:
        explanation = run(_read(file), model)
    except ValueError as error:
        raise _placed(file, error) from error
    if as_json:
        typer.echo(json.dumps(explanation.to_dict(top)))
    else:
        print_explanation(output(), explanation, top)


def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of a model in the package, file, or run folder; several times for several. [default: all that "
            "come with the package]",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; the usual one is reached from here only.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Name by which others call this server, if they may; several times for several.", show_default=False
        ),
    ] = None,
    max_lines: Annotated[int, typer.Option(min=1, help="Lines of a program.", rich_help_panel="Limits")] = 200,
    max_seconds: Annotated[float, typer.Option(min=0.1, help="Time a request.", rich_help_panel="Limits")] = 10.0,
    queue: Annotated[int, typer.Option(min=0, help="Requests that may wait.", rich_help_panel="Limits")] = 32,
) -> None:
    """Open a page on which to write programs and watch models run them, and an HTTP API under `/api`.

    Ctrl-C ends it, after what has begun is finished. Needs the extra `page`: `pip install 'ipagnn[page]'`.

    `ipagnn serve --model runs/a --model runs/b`
    """
    try:
        from ipagnn.server.limits import Limits
        from ipagnn.server.models import Offer
        from ipagnn.server.run import serve as run
    except ModuleNotFoundError as error:
        raise ImportError(
            f"The page needs {error.name}, which is not installed; install it with `pip install 'ipagnn[page]'`."
        ) from error
    offer = Offer(model) if model else Offer.packaged()
    limits = Limits(lines=max_lines, seconds=max_seconds, queue=queue)

    def ready(url: str) -> None:
        typer.echo(f"The page is at {url} (Ctrl-C ends it)")
        sys.stdout.flush()

    run(offer, host, port, allow_host or (), limits, ready)


def _explain_folder(folder: Path, model: str | None, top: int) -> None:
    from ipagnn.inference.explain import explain as run
    from ipagnn.inference.loaded import load_cached
    from ipagnn.languages.arithmetic import ProgramError

    if model is not None:
        load_cached(model)  # if there is none, that is to be told once and not for every file
    failed = count = 0
    for path in _programs(folder):
        count += 1
        try:
            told = run(_read(str(path)), model).to_dict(top)
        except ValueError as error:
            failed += 1
            place = (error.line, error.column) if isinstance(error, ProgramError) else (None, None)
            told = {"error": str(error), "line": place[0], "column": place[1]}
        typer.echo(json.dumps({"file": str(path.relative_to(folder))} | told))
    if failed:
        sys.stdout.flush()
        typer.secho(f"Error: {failed:,} of {count:,} files in {folder} could not be explained.", fg="red", err=True)
        raise typer.Exit(EXIT_BAD_INPUT)


def _programs(folder: Path) -> Iterator[Path]:
    found = sorted(path for path in folder.rglob("*.py") if path.is_file())
    if not found:
        raise ValueError(f"The folder {folder} holds no .py files; a program is a text file of that name.")
    yield from found


def _read(name: str) -> str:
    """The text of a program, cut off where the parser refuses it anyway."""
    from ipagnn.languages.arithmetic.text import MAX_CHARACTERS

    try:
        if name == "-":
            return sys.stdin.buffer.read(4 * MAX_CHARACTERS + 4).decode()
        with Path(name).open(encoding="utf-8") as file:
            return file.read(MAX_CHARACTERS + 1)
    except UnicodeDecodeError as error:
        shown = "standard input" if name == "-" else name
        raise ValueError(f"{shown} is not UTF-8 text; a program is a plain text file.") from error


def _placed(name: str, error: ValueError) -> ValueError:
    """The error, with the file if it is about a place in it."""
    from ipagnn.languages.arithmetic import ProgramError

    if not isinstance(error, ProgramError):
        return error
    return ValueError(f"{'standard input' if name == '-' else name}, {error}")
