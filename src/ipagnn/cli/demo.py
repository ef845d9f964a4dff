"""The command that shows what the project is about: `demo`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer
from rich.table import Table

from ipagnn.cli.terminal import output, progress

if TYPE_CHECKING:
    from ipagnn.reporting.runs import RunRecord

MODELS: Final = ("ipa-gnn", "line-rnn", "ggnn")
LENGTHS: Final = (10, 15, 20, 30)
"""Of test programs, in lines; those of training have at most 6."""
COUNT: Final = 250


def demo(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where runs, figure and report go.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each model, with seeds 0, 1, and so on.")] = 1,
    preset: Annotated[
        Literal["quick", "smoke"],
        typer.Option(help="`quick`: minutes on 2 CPU cores. `smoke`: seconds, and nothing is learnt."),
    ] = "quick",
) -> None:
    """Train IPA-GNN, Line-by-Line RNN and GGNN on short programs, and test them on longer ones.

    The language is a small one (`ipagnn train --preset quick`). Prints accuracy by length, and writes a figure, a
    report to open in a browser, and the run folders, which all other commands read. Called again, it goes on where it
    was, and does not train twice.

    `ipagnn demo demo --seeds 3`
    """
    from ipagnn.reporting.figure_accuracy import accuracy_figure
    from ipagnn.reporting.report import write_report
    from ipagnn.reporting.runs import load_run
    from ipagnn.reporting.style import save

    runs = [_run(directory / f"{model}-{seed}", preset, model, seed) for seed in range(seeds) for model in MODELS]
    figure, page = directory / "accuracy.svg", directory / "report.html"
    summaries = [run.evaluation for run in runs if run.evaluation]
    save(accuracy_figure(summaries, [run.config.data.length for run in runs]), figure)
    write_report(runs, page, load_run)
    _print(runs)
    output().print(f"{figure} shows it, and {page} tells all about it", soft_wrap=True, markup=False)


def _run(path: Path, preset_name: Literal["quick", "smoke"], model: str, seed: int) -> "RunRecord":
    """Train and evaluate one model, as far as that was not done before."""
    from ipagnn.cli.training import watch
    from ipagnn.evaluation import build_test_recipe, evaluate_on_test_set
    from ipagnn.evaluation.benchmark import describe
    from ipagnn.models import load_model, model_title
    from ipagnn.reporting.runs import read_run, save_evaluation
    from ipagnn.training import RunFolder, preset, train

    config = preset(preset_name, model).replace(seed=seed, device="cpu")
    title = f"{model_title(model)}, seed {seed}"
    folder = RunFolder(path)
    if folder.result() is None:
        typer.echo(
            f"Training {title}: {config.data.examples:,} programs of at most {config.data.length} lines", err=True
        )
    with watch(config.steps) as report:
        result = train(config, path, report=report, command=["ipagnn", *sys.argv[1:]])
    wanted = build_test_recipe(config.task, LENGTHS, COUNT, None, config.model.grammar)
    kept = read_run(path)
    if kept.evaluation is not None and kept.evaluation["set"] == describe(wanted):
        return kept
    typer.echo(
        f"{result.accuracy:.1%} of validation programs after {result.seconds:.0f} s; now longer ones: {wanted.count:,} "
        f"of {LENGTHS[0]} to {LENGTHS[-1]} lines",
        err=True,
    )
    with progress(f"Evaluating {title}", "programs", wanted.count) as advance:
        summary = evaluate_on_test_set(load_model(path), wanted, device="cpu", progress=advance)
    save_evaluation(path, {"weights": str(path)} | summary)
    return read_run(path)


def _print(runs: "Sequence[RunRecord]") -> None:
    """Accuracy of each model by length, the best first."""
    from ipagnn.models import model_title
    from ipagnn.reporting.figure_accuracy import curves

    trained = runs[0].config.data.length
    table = Table(header_style="bold", title="Accuracy by program length in lines, %")
    table.add_column("model")
    for length in (f"{trained} (as trained)", *map(str, LENGTHS), "all longer"):
        table.add_column(length, justify="right")
    several = len(runs) > len(MODELS)
    for curve in curves([run.evaluation for run in runs if run.evaluation], runs[0].config.task):
        own = [run.result["accuracy"] for run in runs if run.model.name == curve.model]
        by_length = zip(curve.accuracy, curve.stderr, strict=True)
        table.add_row(
            model_title(curve.model) + (f", {curve.runs} runs" if several else ""),
            f"{100 * sum(own) / len(own):.1f}",
            *(f"{100 * accuracy:.1f} ± {100 * stderr:.1f}" for accuracy, stderr in by_length),
            f"{100 * curve.overall:.1f}",
        )
    output().print(table)
