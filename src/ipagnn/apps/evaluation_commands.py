"""The commands about results: `evaluate`, `figure` and `report`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from ipagnn.apps.terminal import output, progress

if TYPE_CHECKING:
    from ipagnn.evaluation import Summary, Weights

_DEVICE = typer.Option(help="`auto` (a GPU if there is one), `cpu`, `cuda` or `cuda:N`.")


def evaluate(
    weights: Annotated[
        list[str], typer.Argument(metavar="WEIGHTS…", help="Files, run folders, or names of models in the package.")
    ],
    task: Annotated[
        Literal["full", "partial"] | None,
        typer.Option(help="Complete programs, or programs with one masked line. [default: as in training]"),
    ] = None,
    lengths: Annotated[str, typer.Option(help="Lengths of the test programs.")] = "20,30,40,50,60,70,80,90,100",
    count: Annotated[int, typer.Option(min=1, help="Test programs at each length.")] = 500,
    seed: Annotated[
        int | None, typer.Option(help="Which test programs. [default: those of the test set, for which it is named]")
    ] = None,
    programs: Annotated[
        Path | None,
        typer.Option(
            help="Programs of your own in place of test programs: Parquet, JSON lines (a string, or an object with "
            "`source` and `target`), or a folder of `.py` files."
        ),
    ] = None,
    skip_invalid: Annotated[
        bool,
        typer.Option("--skip-invalid", help="Leave out invalid programs of `--programs`, and count them."),
    ] = False,
    pointer: Annotated[
        bool, typer.Option(help="Measure what the instruction pointer does as well; takes some more time.")
    ] = True,
    prune: Annotated[
        float | None,
        typer.Option(help="Do not follow pointer mass below this. [default: as the model is configured, usually none]"),
    ] = None,
    device: Annotated[str, _DEVICE] = "auto",
    save: Annotated[
        bool, typer.Option("--save", help="Keep the numbers as `evaluation.json` in the run folder, for `report`.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="One object a line for each of WEIGHTS, with `overall` and `by_length` (`accuracy`, `stderr`, `count` "
            "each) and everything else that was measured. Shares are fractions.",
        ),
    ] = False,
) -> None:
    """Measure accuracy, overall and by length, on programs longer than those of training.

    Every program counts, in a fixed order; the standard error is that of the mean. By default the programs are D_test:
    500 of each length 20, 30, …, 100, the same on every machine.

    `ipagnn evaluate runs/a runs/b`

    `ipagnn evaluate runs/a --programs my_programs.jsonl --json`
    """
    from ipagnn.evaluation import Weights

    for i, name in enumerate(weights):
        found = Weights.find(name)
        if save and found.folder is None:
            raise ValueError(
                f"--save keeps numbers in a run folder, and {name} is none; send --json to a file instead."
            )
        if programs is None:
            summary = _on_test_set(found, task, lengths, count, seed, device, pointer=pointer, prune=prune)
        else:
            summary = _on_programs(found, task, programs, device, skip_invalid, pointer=pointer, prune=prune)
        if save and found.folder is not None:
            from ipagnn.evaluation.runs import save_evaluation

            save_evaluation(found.folder, summary)
        if as_json:
            typer.echo(json.dumps(summary))
        else:
            _print_summary(summary, first=not i)


def _on_test_set(
    weights: "Weights",
    task: Literal["full", "partial"] | None,
    lengths: str,
    count: int,
    seed: int | None,
    device: str,
    *,
    pointer: bool,
    prune: float | None,
) -> "Summary":
    from ipagnn.evaluation import evaluate_on_test_set, test_recipe

    model = weights.load(**({} if prune is None else {"prune": prune}))
    wanted = test_recipe(task or weights.task, _lengths(lengths), count, seed, model.config.grammar)
    with progress(f"Evaluating {weights.name}", "programs", wanted.count) as advance:
        summary = evaluate_on_test_set(model, wanted, device=_device(device), pointer=pointer, progress=advance)
    return {"weights": weights.name} | summary


def _on_programs(
    weights: "Weights",
    task: Literal["full", "partial"] | None,
    path: Path,
    device: str,
    skip_invalid: bool,
    *,
    pointer: bool,
    prune: float | None,
) -> "Summary":
    from ipagnn.evaluation import ProgramFile, summarise
    from ipagnn.evaluation import evaluate as run

    model = weights.load(**({} if prune is None else {"prune": prune}))
    file = ProgramFile(path, task, model.config.grammar, model.config.budget, skip_invalid=skip_invalid)
    with progress(f"Evaluating {weights.name}", "programs", len(file)) as advance:
        evaluation = run(model, file, device=_device(device), pointer=pointer, progress=advance)
    used = {"name": str(path), "task": file.task, "count": file.count, "skipped": file.skipped}
    return {"weights": weights.name} | summarise(evaluation) | {"set": used | {"first_skipped": file.first_skipped}}


def _device(name: str) -> str:
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(name).type
    except RuntimeError:
        raise ValueError(f"--device is {name!r}; it must be auto, cpu, cuda or cuda:N.") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"--device is {name}, but torch finds no GPU here; choose cpu.")
    return name


def _lengths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(
            f"--lengths is {text!r}; it must be whole numbers with commas between, as in 20,30,40."
        ) from None


def _print_summary(summary: "Summary", *, first: bool) -> None:
    console = output()
    if not first:
        console.print()
    used = summary["set"]
    console.print(
        f"{summary['weights']}: {summary['model']} on {used['count']:,} {summary['task']} programs of {used['name']}",
        soft_wrap=True,
        markup=False,
    )
    if used.get("skipped"):
        console.print(
            f"{used['skipped']:,} invalid programs were left out; the first: {used['first_skipped']}",
            soft_wrap=True,
            markup=False,
        )
    best = summary.get("ceiling")
    table = Table(header_style="bold")
    for title in ("length", "programs", "accuracy", *(("best possible",) if best else ())):
        table.add_column(title, justify="right")
    rows = [*summary["by_length"].items(), ("all", summary["overall"])]
    for n, (length, row) in enumerate(rows):
        cells = [length, f"{row['count']:,}", f"{row['accuracy']:.1%} ± {row['stderr']:.1%}"]
        if best:
            cells.append(f"{(best['overall'] if length == 'all' else best['by_length'][length])['best']:.1%}")
        table.add_row(*cells, end_section=n == len(rows) - 2)
    console.print(table)
    _print_details(console, summary)


def _print_details(console: Console, summary: "Summary") -> None:
    """What else was measured, a line each."""
    top = ", ".join(f"{k} {value:.1%}" for k, value in summary["top"].items())
    console.print(f"target among the k likeliest: {top}")
    console.print(f"calibration error {summary['calibration']['ece']:.3f}")
    if "trace" in summary:
        fits, exceeds = summary["trace"]["fits"], summary["trace"]["exceeds"]
        console.print(f"true trace fits the steps given: {_share(fits)}; does not: {_share(exceeds)}")
    if "pointer" in summary:
        told = summary["pointer"]
        parts = [
            f"discrete branch decisions {_percent(told['discrete'])}",
            f"exit reached {_percent(told['reached'])}",
            f"after {_number(told['exit_step'])} steps",
        ]
        if "trace_length" in told:
            parts[-1] += f" where the true trace has {_number(told['trace_length'])} (medians)"
            parts.append(f"path equals trace {_percent(told['path_exact'])}")
        console.print(f"pointer: {', '.join(parts)}")


def _share(row: dict[str, Any]) -> str:
    return f"{row['accuracy']:.1%} of {row['count']:,}" if row["count"] else "no programs"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"
