"""The commands about results: `evaluate`, `figure` and `report`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ipagnn.cli.language import ModelLanguageSettings
from ipagnn.cli.summary_text import print_summary
from ipagnn.cli.terminal import DIGITS, output, progress

if TYPE_CHECKING:
    from ipagnn.evaluation import Summary
    from ipagnn.evaluation.generalisation import Generalisation
    from ipagnn.languages.arithmetic import Grammar, Program
    from ipagnn.models import ModelFile, ProgramModel

LENGTHS = "20,30,40,50,60,70,80,90,100"
REPORT = Path("report.html")
TOLERANCE = 0.25
"""Share of answers that dropped pointer mass may change, by default."""
_DEVICE = typer.Option(help="`auto` (a GPU if there is one), `cpu`, `cuda` or `cuda:N`.")


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
    device: Annotated[str, _DEVICE] = "auto",
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
            summary = _on_test_set(found, task, lengths, count, seed, device, changes, tolerance, pointer=pointer)
        else:
            summary = _on_programs(found, task, programs, device, skip_invalid, changes, tolerance, pointer=pointer)
        if save and found.run is not None:
            from ipagnn.reporting.runs import save_evaluation

            save_evaluation(found.run, summary)
        if as_json:
            typer.echo(json.dumps(summary))
        else:
            print_summary(output(), summary, first=not i)


def figure(
    name: Annotated[
        Literal["accuracy", "generalisation", "pointer", "supplement", "supplement-masked", "representation", "paths"],
        typer.Argument(
            metavar="NAME",
            help="`accuracy` by program length (figure 3); `generalisation`, accuracy by program length and number of "
            "digits; the `pointer` on the paper's programs (figure 4), on those of its `supplement` and "
            "`supplement-masked`; the program `representation` (figure 1); the models' `paths` (figure 2).",
        ),
    ],
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="File, run folder or name of a packaged model. May be repeated for `accuracy` and `generalisation`.",
            show_default=False,
        ),
    ] = None,
    program: Annotated[
        list[Path] | None,
        typer.Option(
            help="File of a program to draw instead of the paper's. May be repeated for `pointer`.", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Output file: .pdf, .svg or .png. [default: NAME.pdf]", show_default=False)
    ] = None,
    lengths: Annotated[
        str, typer.Option(help="Lengths of the test programs, for models without an evaluation.")
    ] = LENGTHS,
    count: Annotated[
        int, typer.Option(min=1, help="Number of test programs per length, for the same; in `generalisation` per cell.")
    ] = 500,
    device: Annotated[str, _DEVICE] = "auto",
) -> None:
    """Draw a figure of the paper, with its models and programs or with your own.

    `generalisation` runs models whose values are digits on programs of 10 to 1,000 lines with 3 to 18 digits. A model
    with one number of digits has the one row that it was evaluated on, as in `accuracy`.

    `ipagnn figure accuracy --model runs/a --model runs/b --out accuracy.svg`

    `ipagnn figure generalisation --model env-ipa-gnn-any --model runs/a --count 200 --out generalisation.svg`

    `ipagnn figure pointer --model runs/a --program mine.py --out pointer.png`
    """
    from ipagnn.reporting import figures
    from ipagnn.reporting.style import FORMATS, save

    target = out or Path(f"{name}.pdf")
    if target.suffix.removeprefix(".").lower() not in FORMATS:
        raise ValueError(f"--out is {target}; its name must end in .pdf, .svg or .png.")
    if name == "accuracy":
        from ipagnn.reporting.figure_accuracy import accuracy_figure

        if not model:
            raise ValueError("The figure accuracy compares models; name them with --model, once for each.")
        drawn = accuracy_figure([_evaluated(each, lengths, count, device) for each in model])
    elif name == "generalisation":
        from ipagnn.reporting.figure_generalisation import generalisation_figure

        if not model:
            raise ValueError("The figure generalisation shows models; name them with --model, once for each.")
        drawn = generalisation_figure([_generalisation(each, lengths, count, device) for each in model])
    elif name in figures.POINTER_FIGURES:
        task, draw = figures.POINTER_FIGURES[name]
        loaded = _one_model(model, task, name)
        grammar = loaded.config.grammar
        drawn = figures.given(loaded, [_read_program(file, grammar) for file in program]) if program else draw(loaded)
    else:
        if program and len(program) > 1:
            raise ValueError(f"The figure {name} shows one program, but --program was given {len(program)} times.")
        chosen = _read_program(program[0]) if program else None
        if name == "representation":
            drawn = figures.representation(chosen)
        else:
            drawn = figures.paths(chosen, _one_model(model, "full", name) if model else None)
    save(drawn, target)
    output().print(f"{target} holds the figure {name}", soft_wrap=True, markup=False)


def report(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR…", help="Run folders or records, or directories of them.")
    ],
    out: Annotated[
        Path, typer.Option(help="Output page. A `.md`, a `.json` and a `.svg` are written next to it.")
    ] = REPORT,
    into: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write the tables into this Markdown file, between its two marker comments.",
            show_default=False,
        ),
    ] = None,
    lengths: Annotated[
        str, typer.Option(help="Lengths of the test programs, for runs without an evaluation.")
    ] = LENGTHS,
    count: Annotated[int, typer.Option(min=1, help="Number of test programs per length, for the same.")] = 500,
    device: Annotated[str, _DEVICE] = "auto",
) -> None:
    """Compare runs with the paper: a page, tables in Markdown, all numbers as JSON, and a figure.

    Runs without an `evaluation.json` are evaluated first. The page needs no network.

    `ipagnn report runs --out report.html`

    `ipagnn report records --out records/report.html --into records/README.md`
    """
    from ipagnn.models import find_model_file
    from ipagnn.reporting.report import build_document, write_report
    from ipagnn.reporting.report_markdown import write_into
    from ipagnn.reporting.runs import load_run, read_run, save_evaluation
    from ipagnn.training.runs.listing import find_runs

    if out.suffix != ".html":
        raise ValueError(f"--out is {out}; its name must end in .html.")
    runs = []
    for folder in (folder for directory in directories for folder in find_runs(directory)):
        run = read_run(folder.path)
        if run.evaluation is None:
            weights = find_model_file(folder.path)
            save_evaluation(
                folder.path, _on_test_set(weights, None, lengths, count, None, device, {}, TOLERANCE, pointer=True)
            )
            run = read_run(folder.path)
        runs.append(run)
    page, table, numbers, picture = write_report(runs, out, load_run)
    if into is not None:
        write_into(into, build_document(runs))
    beside = f"{table.name}, {numbers.name} and {picture.name} are next to it"
    output().print(f"{page} is the report; {beside}", soft_wrap=True, markup=False)


def _evaluated(name: str, lengths: str, count: int, device: str) -> "Summary":
    """The summary that a run folder keeps, or a new one."""
    from ipagnn.models import find_model_file
    from ipagnn.reporting.runs import read_run
    from ipagnn.training import RunFolder

    if Path(name).is_dir() and RunFolder(Path(name)).exists:
        kept = read_run(Path(name)).evaluation
        if kept is not None:
            return kept
    weights = find_model_file(name)
    return _on_test_set(weights, None, lengths, count, None, device, {}, TOLERANCE, pointer=False)


def _generalisation(name: str, lengths: str, count: int, device: str) -> "Generalisation":
    """A heat map of a model whose values are digits, one row of another."""
    from ipagnn.evaluation.generalisation import DIGITS, LENGTHS, generalisation_of, measure_generalisation
    from ipagnn.models import load_model, model_title
    from ipagnn.models.files import MODEL_FILE
    from ipagnn.reporting.runs import read_run
    from ipagnn.training import RunFolder

    run = Path(name) if Path(name).is_dir() and RunFolder(Path(name)).exists else None
    is_record = run is not None and not (run / MODEL_FILE).is_file()  # which keeps no weights
    model = None if is_record else load_model(name).eval()
    config = read_run(Path(name)).model if model is None else model.config
    title = f"{model_title(config.name)} ({name if run is None else run.resolve().name})"
    if model is None or model.trained_digits is None:
        return generalisation_of(_evaluated(name, lengths, count, device), title, config.grammar.modulus)
    most = None if run is None else read_run(run).config.most_lines
    cells = len({*LENGTHS} if most is None else {*LENGTHS, most}) * len(DIGITS)
    with progress(f"Running {title}", "programs", count * cells) as advance:
        return measure_generalisation(model, title, LENGTHS, DIGITS, count, trained_lines=most, progress=advance)


def _one_model(names: list[str] | None, task: str, figure: str) -> "ProgramModel":
    from ipagnn.models import available_models, load_model

    if names and len(names) > 1:
        raise ValueError(f"The figure {figure} shows one model, but --model was given {len(names)} times.")
    usual = f"ipa-gnn-{task}"
    if not names and usual not in available_models():
        raise ValueError(f"The figure {figure} shows what a model does; name one with --model, a file or a run folder.")
    return load_model(names[0] if names else usual)


def _read_program(path: Path, grammar: "Grammar | None" = None) -> "Program":
    from ipagnn.languages.arithmetic import PAPER, ProgramError, parse
    from ipagnn.languages.arithmetic.text import MAX_CHARACTERS

    try:
        with path.open(encoding="utf-8") as file:
            return parse(file.read(MAX_CHARACTERS + 1), grammar=grammar or PAPER)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text; a program is a plain text file.") from error
    except ProgramError as error:
        raise ValueError(f"{path}, {error}") from error


def _on_test_set(
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
