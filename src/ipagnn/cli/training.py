"""The commands about training: `train` and `runs`."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table

from ipagnn.cli.terminal import TASK, check_output, output

if TYPE_CHECKING:
    from ipagnn.training import Progress

_LINE_SECONDS = 60  # between two lines of progress where there is no terminal


def train(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder. Created if missing; resumed if it exists.")],
    preset: Annotated[
        Literal["paper", "environment", "numbers", "extended", "quick", "smoke"] | None,
        typer.Option(
            help="`paper`: the paper's settings. `environment`: the environment IPA-GNN, minutes on 2 CPU cores. "
            "`numbers`: the same with values as digits, for numbers of any size. "
            "`extended`: the same for a language past the paper's, 15 minutes. "
            "`quick`: a smaller language, minutes on 2 CPU cores. `smoke`: seconds. [default: paper]",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML file of settings that override the preset.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model name, such as `ipa-gnn`, or `FILE.py:Class` for a model of your own.")
    ] = None,
    task: Annotated[str | None, TASK] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Directory of `ipagnn generate`. [default: new programs for every batch]"),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed of weights and programs.")] = None,
    device: Annotated[str | None, typer.Option(help="`auto`, `cpu`, `cuda` or `cuda:N`.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Override a setting of `config.toml`, as in `model.hidden=64`."
        ),
    ] = None,
    time_limit: Annotated[
        str | None, typer.Option(help="Save a checkpoint and stop after `90s`, `10m` or `2h`, with exit code 0.")
    ] = None,
) -> None:
    """Train a model. The run folder keeps settings, code version, hardware, metrics and checkpoints.

    If a run was interrupted (Ctrl-C, a kill, a full disk), the same command resumes it and reaches the same weights.
    `ipagnn train RUN` resumes it, too. Other settings for an existing run are an error. On several GPUs or machines:
    `torchrun --nproc-per-node 8 -m ipagnn train RUN`.

    `ipagnn train runs/a --preset quick --model ipa-gnn`

    `ipagnn train runs/b --task partial --set model.hidden=300 --set optimizer.learning_rate=3e-4 --time-limit 30m`
    """
    from ipagnn._common.options import merge
    from ipagnn._common.toml import parse_settings
    from ipagnn.training import train as run_training
    from ipagnn.training.processes import rank_and_world
    from ipagnn.training.resolve import resolve

    limit = None if time_limit is None else _seconds(time_limit)
    changes: dict[str, Any] = parse_settings(settings or [])
    if model is not None and ".py:" in model:
        from ipagnn.models import register_file

        (model,) = register_file(model)
    given = {
        "task": task,
        "seed": seed,
        "model": {"name": model},
        "data": {"source": data},
        "run": {"device": device},
    }
    changes = merge(changes, _given(given))
    resolved = resolve(run, preset, config, changes)
    writes = rank_and_world()[0] == 0
    with watch(resolved.steps) if writes else _no_report() as report:
        result = run_training(resolved, run, time_limit=limit, report=report, command=["ipagnn", *sys.argv[1:]])
    if not writes:
        return
    if result.state == "finished":
        message = (
            f"{run} has finished after {result.step:,} steps: {result.accuracy:.1%} of the validation programs at step "
            f"{result.best_step:,}, whose weights are in {run / 'model.safetensors'}"
        )
    else:
        message = (
            f"{run} was stopped by the time limit after {result.step:,} of {resolved.steps:,} steps; "
            "the same command resumes it"
        )
    output().print(message, soft_wrap=True, markup=False)


def runs(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Directory to search, with all directories below it.")
    ],
    compare: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also plot loss and accuracy of all runs to a .png, .pdf or .svg file."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per run.")] = False,
) -> None:
    """List runs: model, task, steps, best validation accuracy, start and state.

    `ipagnn runs runs --compare runs.png`
    """
    from ipagnn.training.runs.listing import compare_runs, list_runs

    if compare is not None:
        check_output("--compare", compare)
    found = list_runs(directory)
    if compare is not None:
        compare_runs(directory, compare)
    if as_json:
        for summary in found:
            typer.echo(json.dumps(summary.to_dict()))
        return
    table = Table(header_style="bold")
    for title in ("run", "model", "task", "H", "seed", "steps", "accuracy", "started (UTC)", "state"):
        table.add_column(title, justify="right" if title in ("H", "seed", "steps", "accuracy") else "left")
    for s in found:
        table.add_row(
            *(s.run, s.model, s.task, str(s.hidden), str(s.seed), f"{s.step:,}/{s.steps:,}"),
            "–" if s.accuracy is None else f"{s.accuracy:.1%}",
            s.started.removesuffix("+00:00").replace("T", " "),
            s.state,
        )
    console = output()
    console.print(table)
    if compare is not None:
        console.print(f"{compare} holds the plot", soft_wrap=True, markup=False)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """Nested tables without what is None."""
    found = {key: _given(value) if isinstance(value, dict) else value for key, value in values.items()}
    return {key: value for key, value in found.items() if value is not None and value != {}}


@contextmanager
def _no_report() -> Iterator[None]:
    """Of processes other than the first."""
    yield None


@contextmanager
def watch(total: int) -> Iterator[Callable[["Progress"], None]]:
    """Show progress on standard error: a bar on a terminal, otherwise one line per minute."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[status]}"))
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("Training", total=total, status="")
        yield lambda now: bar.update(
            task, completed=now.step, status=_status(now), description=_stage(now) or "Training"
        )


def _lines() -> Callable[["Progress"], None]:
    last = time.monotonic()

    def report(now: "Progress") -> None:
        nonlocal last
        if time.monotonic() - last >= _LINE_SECONDS:
            last = time.monotonic()
            stage = f"{_stage(now)}  " if _stage(now) else ""
            typer.echo(f"{stage}step {now.step:,}/{now.steps:,}  {_status(now)}", err=True)

    return report


def _stage(now: "Progress") -> str:
    """Which stage of several it is, and its programs."""
    return f"Stage {now.stage} of {now.stages} (up to {now.length} lines)" if now.stages > 1 else ""


def _status(now: "Progress") -> str:
    left = f"{now.seconds_left / 60:,.0f} min" if now.seconds_left > 90 else f"{now.seconds_left:.0f} s"
    validated = "" if now.validation is None else f"  validation {now.validation:.1%}"
    return (
        f"{now.examples_per_second:,.0f} examples/s  loss {now.loss:.3f}  accuracy {now.accuracy:.1%}{validated}  "
        f"{left} left"
    )


def _seconds(text: str) -> float:
    """`90s`, `10m` or `2h` in seconds."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1.0)
    try:
        seconds = float(number) * unit
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError(f"--time-limit is {text!r}; it must be a time above 0, as in 90s, 10m or 2h.")
    return seconds
