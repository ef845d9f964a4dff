"""The commands that use a model: `predict`, `explain`, `models` and `serve`."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from ipagnn.cli.sources import Source, read_sources
from ipagnn.cli.terminal import DIGITS, EXIT_BAD_INPUT, check_output, output

if TYPE_CHECKING:
    from ipagnn.inference.explain import Explanation
    from ipagnn.inference.predict import Prediction

_FILES = typer.Argument(
    metavar="FILE",
    help="Programs: files, directories of `.py` files, or JSON lines (`.jsonl`: strings, or objects with `source`). "
    "`-` is standard input: a program, several in the format of `ipagnn sample --count 3`, or JSON lines.",
)
_MODEL = typer.Option(
    help="Name of a packaged model, file, or run folder. [default: the packaged model for complete or for masked "
    "programs]",
    show_default=False,
)
_BUDGET = typer.Option(
    help="Number of steps of the model. A number such as `2`: this multiple of T(x), the number of steps in the paper. "
    "`static`: enough for the true trace, from the loop counts in the text. `trace`: the length of the true trace, "
    "plus two. [default: no limit for the environment IPA-GNN, which runs over tables or automata; otherwise that of "
    "the model, which is 3 times T(x) for ipa-gnn-full and ipa-gnn-partial, as T(x) counts two rounds per loop]",
    show_default=False,
)
_TOP = typer.Option(min=1, help="Number of results to show. The table leaves out those below 0.05%.")
_WITH_SIZE = 65  # columns from which sizes are shown
_CHUNK = 256  # programs that are read, run and answered at a time


def predict(
    files: Annotated[list[str], _FILES],
    model: Annotated[str | None, _MODEL] = None,
    top: Annotated[int, _TOP] = 5,
    budget: Annotated[str | None, _BUDGET] = None,
    digits: Annotated[int | None, DIGITS] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Also plot the prediction to a .svg, .pdf or .png file. For one program.", show_default=False
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print one JSON object per program: `value`, the prediction; `confidence`; `exit_mass`, the share of "
            "the pointer at the exit; `warnings`, a list of sentences; `proved`, whether every statement is "
            "proved to be right, null for models that run over no automata; `top`, a list of `value` and "
            "`probability`; `true_value` or null; `exact`, the distribution over all fillings of a masked program; and "
            "`file` if there are several programs.",
        ),
    ] = False,
) -> None:
    """Predict a program's result, and show the true one and how far the prediction can be trusted.

    A line may be masked: `[MASK]` or `_`. The exact distribution over all statements that it may stand for is then
    shown, too. If there are several programs, errors are printed in their place and the exit code is 2.

    `ipagnn sample --length 10 | ipagnn predict -`

    `ipagnn predict mine.py --model runs/a --plot mine.svg`

    `ipagnn predict a.py b.py programs/ --json`
    """
    from ipagnn.cli.explain_text import print_prediction
    from ipagnn.inference.predict import predict as run

    if plot is not None:
        check_output("--plot", plot)

    def show(console: Console, prediction: "Prediction") -> None:
        print_prediction(console, prediction, top)
        if plot is not None:
            console.print(f"{plot} holds the plot", soft_wrap=True, markup=False)

    def answer(texts: Sequence[str]) -> "list[Prediction]":
        answers = run(texts, model, budget=budget, digits=digits)
        if plot is not None:
            _draw(answers, plot)
        return answers

    _answer_all(files, model, as_json, top, answer, show, one_only="--plot" if plot is not None else None)


def explain(
    files: Annotated[list[str], _FILES],
    model: Annotated[str | None, _MODEL] = None,
    top: Annotated[int, _TOP] = 5,
    budget: Annotated[str | None, _BUDGET] = None,
    digits: Annotated[int | None, DIGITS] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print one JSON object per program: that of `predict --json` with graph, pointer, branch decisions "
            "and true trace.",
        ),
    ] = False,
) -> None:
    """Show how a model reached its prediction: its instruction pointer at each step.

    Also shows the most likely path, soft branch decisions, and lines that were visited less often than in the true
    trace. If there are several programs, errors are printed in their place (with `--json`: `error`, `line` and
    `column`), and the exit code is 2.

    `ipagnn sample --length 20 | ipagnn explain -`

    `ipagnn explain programs/ --model runs/a --json > explained.jsonl`
    """
    from ipagnn.cli.explain_text import print_explanation
    from ipagnn.inference.explain import explain as run

    def show(console: Console, explanation: "Explanation") -> None:
        print_explanation(console, explanation, top)

    _answer_all(files, model, as_json, top, lambda texts: run(texts, model, budget=budget, digits=digits), show)


def models(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per model.")] = False,
) -> None:
    """List the packaged models: task, accuracy and size.

    The accuracy is that of the model's card, on the test set. `predict` and `explain` use the models marked as default
    if none is named.

    `ipagnn models`
    """
    from rich.table import Table

    from ipagnn.inference.loaded import DEFAULT_MODELS
    from ipagnn.models import available_models, find_model_file
    from ipagnn.models.files import count_parameters
    from ipagnn.reporting.card import card_accuracy

    rows: list[dict[str, Any]] = []
    for name in available_models():
        found = find_model_file(name)
        card = found.path.with_suffix(".md")
        rows.append(
            {
                "name": name,
                "task": found.task,
                "default": name in DEFAULT_MODELS.values(),
                "accuracy": card_accuracy(card.read_text(encoding="utf-8")) if card.is_file() else None,
                "parameters": count_parameters(found.path),
                "bytes": found.path.stat().st_size,
            }
        )
    if as_json:
        for row in rows:
            typer.echo(json.dumps(row))
        return
    console = output()
    wide = console.width >= _WITH_SIZE
    table = Table(header_style="bold", box=None, padding=(0, 1), pad_edge=wide, collapse_padding=not wide)
    table.add_column("name", no_wrap=True)
    table.add_column("task", no_wrap=True)
    table.add_column("accuracy", justify="right", no_wrap=True)
    if wide:
        table.add_column("parameters", justify="right", no_wrap=True)
        table.add_column("size", justify="right", no_wrap=True)
    for row in rows:
        accuracy = str(row["accuracy"] or "unknown").partition(" of " if wide else " ±")[0]
        size = [f"{row['parameters']:,}", f"{row['bytes'] / 1e6:.1f} MB"] if wide else []
        table.add_row(f"{row['name']}{' *' if row['default'] else ''}", row["task"] or "unknown", accuracy, *size)
    console.print(table)
    console.print("Accuracy on D_test, the paper's test set of 4,500 programs of 20 to 100 lines. * used by default.")


def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of a packaged model, file, or run folder. May be repeated. [default: all packaged models]",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on. The default accepts connections from this machine only.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one.")] = 8000,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Host name under which other machines may reach this server. May be repeated.", show_default=False
        ),
    ] = None,
    max_lines: Annotated[int, typer.Option(min=1, help="Most lines per program.", rich_help_panel="Limits")] = 200,
    max_seconds: Annotated[
        float, typer.Option(min=0.1, help="Most seconds per request.", rich_help_panel="Limits")
    ] = 10.0,
    queue: Annotated[int, typer.Option(min=0, help="Most requests in the queue.", rich_help_panel="Limits")] = 32,
) -> None:
    """Serve a page on which to write programs and watch models run them, and an HTTP API under `/api`.

    Ctrl-C stops it after open requests are answered. Requires `pip install 'ipagnn[page]'`.

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


def _answer_all(
    files: Sequence[str],
    model: str | None,
    as_json: bool,
    top: int,
    answer: Callable[[Sequence[str]], Sequence[Any]],
    show: Callable[[Console, Any], None],
    one_only: str | None = None,
) -> None:
    """Read, answer and show all programs. If there are several, errors are printed in their place."""
    from ipagnn.inference.loaded import load_cached

    if model is not None:
        load_cached(model)  # so that an error is printed once and not for every program
    sources = read_sources(files)
    first = list(islice(sources, 2))
    several = len(first) > 1
    if several and one_only:
        raise ValueError(f"{one_only} is for one program, and there are several.")
    console = output()
    count = failed = 0
    chunk = first
    while chunk:
        for source, result in _answers(chunk, answer):
            count += 1
            if isinstance(result, ValueError):
                if not several:
                    raise _placed(source.name, result)
                failed += 1
                _print_error(source, result, as_json)
            elif as_json:
                typer.echo(json.dumps(({"file": source.name} if several else {}) | result.to_dict(top)))
            else:
                if several:
                    console.print(f"{'' if count == 1 else chr(10)}{source.name}", style="bold", markup=False)
                show(console, result)
        chunk = list(islice(sources, _CHUNK))
    if failed:
        sys.stdout.flush()
        typer.secho(f"Error: {failed:,} of {count:,} programs could not be answered.", fg="red", err=True)
        raise typer.Exit(EXIT_BAD_INPUT)


def _answers(
    sources: Sequence[Source], answer: Callable[[Sequence[str]], Sequence[Any]]
) -> Iterator[tuple[Source, Any]]:
    """What each program is answered with, or the error. All run together, unless one of them fails."""
    good = [source for source in sources if source.text is not None]
    try:
        found = dict(zip(map(id, good), answer([source.text or "" for source in good]), strict=True))
    except ValueError:
        found = {}
    for source in sources:
        if source.text is None:
            yield source, ValueError(source.error)
        elif id(source) in found:
            yield source, found[id(source)]
        else:
            try:
                yield source, answer([source.text])[0]
            except ValueError as error:
                yield source, error


def _print_error(source: Source, error: ValueError, as_json: bool) -> None:
    from ipagnn.languages.arithmetic import ProgramError

    if not as_json:
        sys.stdout.flush()
        typer.secho(f"Error: {_placed(source.name, error, always=True)}", fg="red", err=True)
        return
    line, column = (error.line, error.column) if isinstance(error, ProgramError) else (None, None)
    typer.echo(json.dumps({"file": source.name, "error": str(error), "line": line, "column": column}))


def _placed(name: str, error: ValueError, *, always: bool = False) -> ValueError:
    """The error, with the file if it is about a place in it."""
    from ipagnn.languages.arithmetic import ProgramError

    if isinstance(error, ProgramError) or (always and name not in str(error)):
        return ValueError(f"{name}, {error}")
    return error


def _draw(predictions: "Sequence[Prediction]", plot: Path) -> None:
    from ipagnn.reporting.figure_prediction import prediction_figure
    from ipagnn.reporting.style import save

    save(prediction_figure(predictions[0]), plot)
