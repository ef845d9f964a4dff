"""The command about several runs at once: `sweep`."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table

from ipagnn.cli.terminal import TASK, output

if TYPE_CHECKING:
    from ipagnn.training.sweep.run import TrialResult


def sweep(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Directory of all run folders. Created if missing; resumed if it exists."),
    ],
    preset: Annotated[
        Literal["paper", "environment", "quick", "smoke"],
        typer.Option(help="Settings that are not in the grid. `paper` also has the paper's grid."),
    ] = "paper",
    grid: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="TOML file with a list of values per setting: `optimizer.learning_rate = [1e-3, 3e-4]`.",
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model name, such as `ipa-gnn`, `line-rnn` or `ggnn`.")] = None,
    task: Annotated[str | None, TASK] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Override a setting of all trials, as in `data.examples=1000000`."
        ),
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Number of grid points to try, chosen at random. [default: all]")
    ] = None,
    parallel: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of concurrent trials. [default: one per GPU, or as many as have enough threads]"
        ),
    ] = None,
    asha: Annotated[
        bool, typer.Option("--asha", help="Stop trials early that are worse than others at the same step (ASHA).")
    ] = False,
    address: Annotated[
        str | None,
        typer.Option(help="Address of a Ray cluster whose machines share DIR. [default: RAY_ADDRESS, or this machine]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per trial.")] = False,
) -> None:
    """Train every point of a grid of settings, and select the run with the best validation accuracy.

    `ipagnn sweep sweeps/a --preset paper` tries the paper's grid: H ∈ {200, 300} and the learning rates 3e-3, 1e-3,
    3e-4, 1e-4. Each trial is a run folder in DIR, as of `ipagnn train`. Trials whose worker died are resumed. The same
    command resumes a sweep that was interrupted. Requires `pip install 'ipagnn[ray]'`.

    `ipagnn sweep sweeps/b --preset quick --grid grid.toml --set data.examples=50000 --asha`
    """
    from ipagnn._common.toml import parse_settings
    from ipagnn.training.sweep.grid import PAPER_GRID, expand, read_grid
    from ipagnn.training.sweep.run import sweep as run_sweep

    if grid is None and preset != "paper":
        raise ValueError(f"The preset {preset} has no grid of its own; name a file with --grid.")
    changes: dict[str, Any] = parse_settings(settings or [])
    if task is not None:
        changes["task"] = task
    if model is not None:
        changes["model"] = {**changes.get("model", {}), "name": model}
    trials = expand(PAPER_GRID if grid is None else read_grid(grid), preset, changes, samples)
    command = ["ipagnn", *sys.argv[1:]]
    results = run_sweep(
        directory, trials, address=address, parallel=parallel, asha=asha, report=_print_state, command=command
    )
    if as_json:
        for result in results:
            typer.echo(json.dumps(result.to_dict()))
    else:
        _print(directory, results)
    failed = [result for result in results if result.state not in ("finished", "ended early")]
    if failed:
        why = f": {failed[0].error}" if failed[0].error else "."
        typer.secho(
            f"Error: {len(failed)} of {len(results)} trials have not ended, the first {failed[0].run}{why} The same "
            "command resumes them.",
            fg="red",
            err=True,
        )
        raise typer.Exit(1)


def _print_state(result: "TrialResult") -> None:
    accuracy = "" if result.accuracy is None else f", {result.accuracy:.1%}"
    typer.echo(f"{result.run}: {result.state} after {result.step:,} steps{accuracy}", err=True)


def _print(directory: Path, results: "list[TrialResult]") -> None:
    table = Table(header_style="bold")
    settings = list(results[0].values)
    for title in (*settings, "steps", "accuracy", "state"):
        table.add_column(title, justify="right" if title in ("steps", "accuracy") else "left")
    for result in sorted(
        results, key=lambda result: -1.0 if result.accuracy is None else result.accuracy, reverse=True
    ):
        table.add_row(
            *(f"{value:g}" if isinstance(value, float) else str(value) for value in result.values.values()),
            f"{result.step:,}/{result.steps:,}",
            "–" if result.accuracy is None else f"{result.accuracy:.1%}",
            result.state,
            style="bold" if result.selected else None,
        )
    output().print(table)
    for result in results:
        if result.selected:
            output().print(
                f"{directory / result.run} is selected: {result.accuracy:.1%} of the validation programs",
                soft_wrap=True,
                markup=False,
            )
