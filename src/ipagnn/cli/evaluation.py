"""The command `evaluate`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ipagnn.cli.language import ModelLanguageSettings
from ipagnn.cli.summary_text import print_summary
from ipagnn.cli.terminal import DIGITS, output, progress

if TYPE_CHECKING:
    from ipagnn.evaluation import Summary
    from ipagnn.models import ModelFile, ProgramModel

LENGTHS = "20,30,40,50,60,70,80,90,100"
TOLERANCE = 0.25
"""Share of answers that dropped pointer mass may change, by default."""
DEVICE = typer.Option(help="`auto` (a GPU if there is one), `cpu`, `cuda` or `cuda:N`.")


def evaluate(
    weights: Annotated[
        list[str], typer.Argument(metavar="WEIGHTS…", help="Files, run folders, or names of packaged models.")
    ],
    task: Annotated[
        str | None,
        typer.Option(
            help="`full`: complete programs. `partial`: programs with a masked line. Or a task of your own "
            "(`--import`). [default: the task of training]"
        ),
    ] = None,
    lengths: Annotated[str, typer.Option(help="Lengths of the test programs.")] = LENGTHS,
    count: Annotated[int, typer.Option(min=1, help="Number of test programs per length.")] = 500,
    seed: Annotated[
        int | None, typer.Option(help="Random seed of the test programs. [default: that of the test set]")
    ] = None,
    programs: Annotated[
        Path | None,
        typer.Option(
            help="Evaluate on programs of your own: Parquet, JSON lines (strings, or objects with `source` and "
            "`target`), or a directory of `.py` files."
        ),
    ] = None,
    skip_invalid: Annotated[
        bool,
        typer.Option("--skip-invalid", help="Skip and count invalid programs of `--programs`."),
    ] = False,
    pointer: Annotated[
        bool, typer.Option(help="Also compare the instruction pointer with the true trace. Takes more time.")
    ] = True,
    prune: Annotated[
        float | None,
        typer.Option(help="Drop pointer mass below this threshold. [default: that of the model, usually 0]"),
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="Share of answers that may be changed by pointer mass which is dropped for speed on a CPU; they are "
            "counted. 0 is exact, and takes about seven times as long.",
        ),
    ] = TOLERANCE,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Number of steps of a model. `paper`: T(x). A number such as `2`: this multiple of T(x). `static`: "
            "enough for the true trace, from the loop counts in the text. `trace`: the length of the true trace, plus "
            "two. [default: no limit for models that run over tables or automata; otherwise that of the model, usually "
            "T(x)]"
        ),
    ] = None,
    digits: Annotated[int | None, DIGITS] = None,
    settings: ModelLanguageSettings = None,
    device: Annotated[str, DEVICE] = "auto",
    save: Annotated[
        bool, typer.Option("--save", help="Write the numbers to `evaluation.json` in the run folder, for `report`.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print one JSON object per model, with `overall` and `by_length` (`accuracy`, `stderr`, `count` "
            "each) and all other measurements. Shares are fractions.",
        ),
    ] = False,
) -> None:
    """Measure accuracy, overall and by length, on programs longer than those of training.

    By default the programs are the test set D_test: 500 of each length 20, 30, …, 100, the same on every machine. `±`
    is the standard error of the mean.

    `ipagnn evaluate runs/a runs/b`

    `ipagnn evaluate runs/a --programs my_programs.jsonl --json`

    `ipagnn evaluate env-ipa-gnn-full --set counters=3 --lengths 10,20`
    """
    from ipagnn.models import find_model_file

    changes = _changes(prune, budget, digits, settings)
    if save and changes.keys() & {"budget", "digits", "settings"}:
        raise ValueError(
            "--save keeps what a model does with its own steps, digits and language; with --budget, --digits or --set, "
            "send --json to a file."
        )
    for i, name in enumerate(weights):
        found = find_model_file(name)
        if save and found.run is None:
            raise ValueError(
                f"--save keeps numbers in a run folder, and {name} is none; send --json to a file instead."
            )
        if programs is None:
            summary = on_test_set(found, task, lengths, count, seed, device, changes, tolerance, pointer=pointer)
        else:
            summary = _on_programs(found, task, programs, device, skip_invalid, changes, tolerance, pointer=pointer)
        if save and found.run is not None:
            from ipagnn.reporting.runs import save_evaluation

            save_evaluation(found.run, summary)
        if as_json:
            typer.echo(json.dumps(summary))
        else:
            print_summary(output(), summary, first=not i)


def on_test_set(
    weights: "ModelFile",
    task: str | None,
    lengths: str,
    count: int,
    seed: int | None,
    device: str,
    changes: dict[str, Any],
    tolerance: float,
    *,
    pointer: bool,
) -> "Summary":
    """A model on the test set, or on one like it; see `evaluate`."""
    from ipagnn.evaluation import build_test_recipe, evaluate_on_test_set

    model, options = _load(weights, changes)
    wanted = build_test_recipe(_task_of(weights, task), _lengths(lengths), count, seed, model.config.grammar)
    with progress(f"Evaluating {weights.name}", "programs", wanted.count) as advance:
        summary = evaluate_on_test_set(
            model, wanted, device=_device(device), pointer=pointer, tolerance=tolerance, progress=advance, **options
        )
    return {"weights": weights.name} | summary


def _task_of(weights: "ModelFile", task: str | None) -> str:
    """The task that was asked for, or else the one that the weights were trained for."""
    found = task or weights.task
    if found is None:
        raise ValueError(
            f"{weights.name} does not say which task it was trained for; name it: --task full or --task partial."
        )
    return found


def _on_programs(
    weights: "ModelFile",
    task: str | None,
    path: Path,
    device: str,
    skip_invalid: bool,
    changes: dict[str, Any],
    tolerance: float,
    *,
    pointer: bool,
) -> "Summary":
    from ipagnn.data.program_files import ProgramFile
    from ipagnn.data.tasks import find_task
    from ipagnn.evaluation import evaluate as run
    from ipagnn.evaluation import summarise

    model, options = _load(weights, changes)
    kind = None if task is None else find_task(task).programs
    file = ProgramFile(path, kind, model.config.grammar, model.config.budget, skip_invalid=skip_invalid)
    with progress(f"Evaluating {weights.name}", "programs", len(file)) as advance:
        evaluation = run(
            model, file, device=_device(device), pointer=pointer, tolerance=tolerance, progress=advance, **options
        )
    used = {"name": str(path), "task": file.task, "count": file.count, "skipped": file.skipped}
    return {"weights": weights.name} | summarise(evaluation) | {"set": used | {"first_skipped": file.first_skipped}}


def _changes(prune: float | None, budget: str | None, digits: int | None, settings: list[str] | None) -> dict[str, Any]:
    """Options that override those of the models."""
    from ipagnn.data import StepBudget

    changes: dict[str, Any] = {} if prune is None else {"prune": prune}
    if budget is not None:
        changes["budget"] = StepBudget.of(budget)
    if digits is not None:
        changes["digits"] = digits
    if settings:
        changes["settings"] = settings
    return changes


def _load(weights: "ModelFile", changes: dict[str, Any]) -> "tuple[ProgramModel, dict[str, Any]]":
    """A model with its step budget, digits or language changed, and what to evaluate it with."""
    from ipagnn.cli.language import chosen_grammar

    asked = dict(changes)
    prune, digits, settings = asked.pop("prune", 0.0), asked.pop("digits", None), asked.pop("settings", None)
    takes_steps = bool(changes.keys() - {"digits", "settings"})  # how it takes them was asked for, so that it does
    model = weights.load(**asked)
    if settings:
        model = weights.load(**asked, grammar=chosen_grammar(settings, model.config.grammar))
    return (
        model if digits is None else model.with_digits(digits),
        {"prune": prune, "tables": False if takes_steps else None},
    )


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
