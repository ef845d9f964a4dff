"""The command `demo`: train, evaluate and report."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer
from rich.table import Table

from ipagnn.cli.evaluation import TOLERANCE
from ipagnn.cli.terminal import output, progress

if TYPE_CHECKING:
    from ipagnn.data.splits import Recipe
    from ipagnn.evaluation import Summary
    from ipagnn.languages.arithmetic import Grammar
    from ipagnn.reporting.runs import RunRecord

MODELS: Final = ("ipa-gnn", "line-rnn", "ggnn")
LENGTHS: Final = (10, 15, 20, 30)
"""Of test programs, in lines; those of training have at most 6."""
COUNT: Final = 250
COMPARED: Final = ("ipa-gnn-full", "ggnn-full")
"""Packaged models that the environment IPA-GNN is compared with."""
PAPER_COUNT: Final = 20
"""Programs of the paper's language at each of its test lengths; few, as the packaged models take long on a CPU."""


def demo(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Output directory of runs, figure and report.")
    ] = Path("demo"),
    seeds: Annotated[int, typer.Option(min=1, help="Number of runs per model, with seeds 0, 1, …")] = 1,
    preset: Annotated[
        Literal["environment", "quick", "smoke"],
        typer.Option(
            help="`environment`: the paper's language. `quick`: IPA-GNN, Line-by-Line RNN and GGNN on a smaller one. "
            "`smoke`: seconds; nothing is learned."
        ),
    ] = "environment",
) -> None:
    """Train the environment IPA-GNN on programs of up to 10 lines, and test it on programs of up to 100.

    Prints accuracy by length, that of packaged models on the same programs, and that of the paper on D_test. Writes a
    figure, a report to open in a browser, and run folders that all other commands read. Then the packaged model whose
    values are digits runs a program with numbers of 15 digits. If it is interrupted, the same command resumes it. A
    finished run is not trained again.

    `ipagnn demo demo --seeds 3`
    """
    from ipagnn.languages.arithmetic.card import DIGITS_MODEL
    from ipagnn.reporting.figure_accuracy import accuracy_figure
    from ipagnn.reporting.report import write_report
    from ipagnn.reporting.runs import load_run
    from ipagnn.reporting.style import save

    models = ("env-ipa-gnn",) if preset == "environment" else MODELS
    runs = [_run(directory / f"{model}-{seed}", preset, model, seed) for seed in range(seeds) for model in models]
    figure, page = directory / "accuracy.svg", directory / "report.html"
    others = [_compare(directory, name) for name in COMPARED] if preset == "environment" else []
    summaries = [run.evaluation for run in runs if run.evaluation] + others
    save(accuracy_figure(summaries, [run.config.data.length for run in runs]), figure)
    write_report(runs, page, load_run)
    _print(runs, others)
    output().print(f"{figure} holds the figure, and {page} the report", soft_wrap=True, markup=False)
    _print_numbers(DIGITS_MODEL)


def _test_recipe(preset_name: str, grammar: "Grammar") -> "Recipe":
    """What models are tested on."""
    from ipagnn.data.splits import TEST_LENGTHS
    from ipagnn.evaluation import build_test_recipe

    if preset_name == "environment":
        return build_test_recipe("full", TEST_LENGTHS, PAPER_COUNT, None, grammar)
    return build_test_recipe("full", LENGTHS, COUNT, None, grammar)


def _compare(directory: Path, name: str) -> "Summary":
    """Evaluate a packaged model on the same programs, if that was not done before."""
    from ipagnn._common.files import write_whole
    from ipagnn.evaluation import evaluate_on_test_set
    from ipagnn.evaluation.benchmark import describe
    from ipagnn.models import load_model, model_title

    model = load_model(name)
    wanted = _test_recipe("environment", model.config.grammar)
    path = directory / f"{name}.json"
    if path.is_file():
        kept: Summary = json.loads(path.read_text("utf-8"))
        if kept["set"] == describe(wanted):
            return kept
    with progress(f"Evaluating the packaged {model_title(model.name)}", "programs", wanted.count) as advance:
        summary = evaluate_on_test_set(
            model, wanted, device="cpu", pointer=False, tolerance=TOLERANCE, progress=advance
        )
    write_whole(path, (json.dumps(summary, indent=2) + "\n").encode())
    return summary


def _run(path: Path, preset_name: Literal["environment", "quick", "smoke"], model: str, seed: int) -> "RunRecord":
    """Train and evaluate one model, as far as that was not done before."""
    from ipagnn.cli.training import watch
    from ipagnn.evaluation import evaluate_on_test_set
    from ipagnn.evaluation.benchmark import describe
    from ipagnn.models import load_model, model_title
    from ipagnn.reporting.runs import read_run, save_evaluation
    from ipagnn.training import RunFolder, preset, train

    config = preset(preset_name, model).replace(seed=seed, device="cpu")
    title = f"{model_title(model)}, seed {seed}"
    folder = RunFolder(path)
    if folder.result() is None:
        typer.echo(
            f"Training {title}: at most {config.most_examples:,} programs of up to {config.data.length} lines", err=True
        )
    with watch(config.steps) as report:
        result = train(config, path, report=report, command=["ipagnn", *sys.argv[1:]])
    wanted = _test_recipe(preset_name, config.model.grammar)
    kept = read_run(path)
    if kept.evaluation is not None and kept.evaluation["set"] == describe(wanted):
        return kept
    typer.echo(
        f"{result.accuracy:.1%} of validation programs after {result.seconds:.0f} s; now longer ones: {wanted.count:,} "
        f"of {wanted.lengths.lengths[0]} to {wanted.lengths.longest} lines",
        err=True,
    )
    with progress(f"Evaluating {title}", "programs", wanted.count) as advance:
        summary = evaluate_on_test_set(load_model(path), wanted, device="cpu", tolerance=TOLERANCE, progress=advance)
    save_evaluation(path, {"weights": str(path)} | summary)
    return read_run(path)


def _print(runs: "Sequence[RunRecord]", others: "Sequence[Summary]") -> None:
    """Accuracy of each model by length, the best first; beside packaged models also the paper's on D_test."""
    from ipagnn.models import model_title
    from ipagnn.reporting.figure_accuracy import curves
    from ipagnn.reporting.paper import ACCURACY

    trained = runs[0].config.data.length
    found = curves([run.evaluation for run in runs if run.evaluation] + list(others), runs[0].config.task)
    table = Table(header_style="bold", title="Accuracy by program length in lines, %")
    table.add_column("model")
    paper = ["in the paper, on D_test"] if others else []
    for length in (f"{trained} (as trained)", *map(str, found[0].lengths), "all longer", *paper):
        table.add_column(length, justify="right")
    several = len(runs) > len({run.model.name for run in runs})
    for curve in found:
        own = [run.result["accuracy"] for run in runs if run.model.name == curve.model]
        by_length = zip(curve.accuracy, curve.stderr, strict=True)
        published = ACCURACY.get((curve.model, runs[0].config.task))
        table.add_row(
            model_title(curve.model) + (f", {curve.runs} runs" if several and own else ""),
            f"{100 * sum(own) / len(own):.1f}" if own else "",
            *(f"{100 * accuracy:.1f}" + ("" if others else f" ± {100 * stderr:.1f}") for accuracy, stderr in by_length),
            f"{100 * curve.overall:.1f}",
            *([f"{100 * published:.1f}" if published else "–"] if paper else []),
        )
    output().print(table)


def _print_numbers(name: str) -> None:
    """A program with large numbers, what a model whose values are digits says, and what is true."""
    from ipagnn.inference.loaded import load_cached
    from ipagnn.inference.predict import predict
    from ipagnn.languages.arithmetic.card import LARGE_NUMBERS

    answer = predict(LARGE_NUMBERS, name)
    console = output()
    console.print(f"\nA program with numbers of {len(str(answer.true_value))} digits:")
    console.print(LARGE_NUMBERS, markup=False, highlight=False)
    right = "right" if answer.value == answer.true_value else "not right"
    model = load_cached(name).model
    console.print(f"{name} says {answer.value}, the true result is {answer.true_value}: {right}", soft_wrap=True)
    console.print(f"It was trained on values of at most {model.trained_digits} digits", soft_wrap=True)
