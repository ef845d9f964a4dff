"""The commands that draw and report results: `figure` and `report`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ipagnn.cli.evaluation import DEVICE, LENGTHS, TOLERANCE, on_test_set
from ipagnn.cli.terminal import check_output, output, progress

if TYPE_CHECKING:
    from ipagnn.evaluation import Summary
    from ipagnn.evaluation.generalisation import Generalisation
    from ipagnn.languages.arithmetic import Grammar, Program
    from ipagnn.models import ProgramModel

REPORT = Path("report.html")


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
    device: Annotated[str, DEVICE] = "auto",
) -> None:
    """Draw a figure of the paper, with its models and programs or with your own.

    `generalisation` runs models whose values are digits on programs of 10 to 1,000 lines with 3 to 18 digits. A model
    with one number of digits has the one row that it was evaluated on, as in `accuracy`.

    `ipagnn figure accuracy --model runs/a --model runs/b --out accuracy.svg`

    `ipagnn figure generalisation --model env-ipa-gnn-any --model runs/a --count 200 --out generalisation.svg`

    `ipagnn figure pointer --model runs/a --program mine.py --out pointer.png`
    """
    from ipagnn.reporting import figures
    from ipagnn.reporting.style import save

    target = out or Path(f"{name}.pdf")
    check_output("--out", target)
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
    device: Annotated[str, DEVICE] = "auto",
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

    check_output("--out", out, (".html",))
    runs = []
    for folder in (folder for directory in directories for folder in find_runs(directory)):
        run = read_run(folder.path)
        if run.evaluation is None:
            weights = find_model_file(folder.path)
            save_evaluation(
                folder.path, on_test_set(weights, None, lengths, count, None, device, {}, TOLERANCE, pointer=True)
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
    return on_test_set(weights, None, lengths, count, None, device, {}, TOLERANCE, pointer=False)


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
