"""The report: paper against ours, as one document that the page, the table and the JSON all show."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from ipagnn import __version__
from ipagnn.evaluation import paper
from ipagnn.evaluation.figure_accuracy import accuracy_figure
from ipagnn.evaluation.figures import POINTER_FIGURES, own_language
from ipagnn.evaluation.report_html import render
from ipagnn.evaluation.runs import RunRecord
from ipagnn.evaluation.style import figure_bytes
from ipagnn.models import MODELS, ProgramModel
from ipagnn.programs import PAPER, Task
from ipagnn.training.files import write_whole

TASKS: Final[tuple[Task, ...]] = ("full", "partial")

Document = dict[str, Any]


def build_document(runs: Sequence[RunRecord]) -> Document:
    """Everything that the report says.

    Args:
        runs: Evaluated runs.

    Returns:
        `rows`: for every row of the paper's table, and models beyond it, the accuracy there and here on each task;
        several runs of a model are averaged, with the standard error over runs. `runs`: each with settings, hardware,
        cost and all that was measured. Shares are fractions.
    """
    told = [_run(run) for run in runs]
    return {
        "title": "Learning to execute programs: paper against these runs",
        "version": __version__,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "rows": [_row(model, told) for model in paper.TITLES if _wanted(model, told)],
        "runs": told,
        "notes": _notes(told),
    }


def _wanted(model: str, runs: Sequence[Document]) -> bool:
    return any((model, task) in paper.ACCURACY for task in TASKS) or any(run["model"] == model for run in runs)


def _row(model: str, runs: Sequence[Document]) -> Document:
    row: Document = {"model": model, "title": paper.TITLES[model]}
    for task in TASKS:
        own = [r["evaluation"] for r in runs if r["model"] == model and r["task"] == task]
        found = [evaluation["overall"] for evaluation in own]
        same_test = all(_on_paper_test_set(evaluation) for evaluation in own)
        theirs = paper.ACCURACY.get((model, task))
        ours = error = None
        if found:
            values = np.array([overall["accuracy"] for overall in found])
            ours = float(values.mean())
            error = float(values.std(ddof=1)) / len(values) ** 0.5 if len(values) > 1 else found[0]["stderr"]
        row[task] = {
            "possible": task in MODELS[model].tasks,
            "paper": theirs,
            "ours": ours,
            "stderr": error,
            "runs": len(found),
            "count": sum(overall["count"] for overall in found),
            "difference": ours - theirs if ours is not None and theirs is not None and same_test else None,
        }
    return row


def _run(run: RunRecord) -> Document:
    if run.evaluation is None:
        raise ValueError(f"The run {run.path} has not been evaluated; run `ipagnn evaluate {run.path} --save` first.")
    config = run.config.to_dict()
    last = run.starts[-1] if run.starts else {}
    seconds, examples = run.result.get("seconds"), run.result.get("examples")
    return {
        "name": run.path.name,
        "model": run.model.name,
        "title": paper.TITLES[run.model.name],
        "task": run.evaluation["task"],
        "seed": run.config.seed,
        "hidden": run.model.hidden,
        "settings": config,
        "cost": {
            "examples": examples,
            "seconds": seconds,
            "examples_per_second": examples / seconds if examples and seconds else None,
            "joules": run.result.get("joules"),
        },
        "validation": run.result.get("accuracy"),
        "state": run.result.get("state", "unfinished"),
        "hardware": last.get("hardware", {}),
        "versions": last.get("versions", {}),
        "command": last.get("command", []),
        "commit": last.get("commit"),
        "starts": len(run.starts),
        "evaluation": {key: value for key, value in run.evaluation.items() if key not in ("weights", "model", "task")},
    }


def _on_paper_test_set(evaluation: Document) -> bool:
    return bool(evaluation.get("set", {}).get("name") == "D_test")


def _notes(runs: Sequence[Document]) -> list[str]:
    """What a reader must know to compare the numbers."""
    notes = []
    other = [run["name"] for run in runs if not _on_paper_test_set(run["evaluation"])]
    if other:
        notes.append(
            f"Not measured on the paper's test set of {paper.TEST_PROGRAMS:,} programs, so not to be compared with it: "
            f"{', '.join(other)}."
        )
    unfinished = [run["name"] for run in runs if run["state"] != "finished"]
    if unfinished:
        notes.append(f"Training had not finished: {', '.join(unfinished)}.")
    return notes


def markdown(document: Document) -> str:
    """The table of paper against ours, in per cent."""
    lines = [
        "| model | full: paper | full: ours | partial: paper | partial: ours |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in document["rows"]:
        cells = [row["title"]]
        for task in TASKS:
            told = row[task]
            ours = "—" if told["ours"] is None else f"{100 * told['ours']:.1f} ± {100 * told['stderr']:.1f}"
            cells += ["—" if told["paper"] is None else f"{100 * told['paper']:.1f}", ours]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [""] + [f"{note}" for note in document["notes"]]
    return "\n".join(lines).rstrip() + "\n"


def write_report(
    runs: Sequence[RunRecord], out: Path | str, load: Callable[[RunRecord], ProgramModel] | None = None
) -> tuple[Path, Path, Path]:
    """Write the page, and beside it the table as Markdown and the document as JSON.

    Args:
        runs: Evaluated runs.
        out: The page, ending in `.html`.
        load: Loads the model of a run, whose pointer is then drawn: the best IPA-GNN of each task.

    Returns:
        The three files.
    """
    page = Path(out)
    if page.suffix != ".html":
        raise ValueError(f"The report is to be written to {page}; its name must end in .html.")
    if not runs:
        raise ValueError("There are no runs to report; give at least one run folder.")
    document = build_document(runs)
    summaries = [{"model": r["model"], "task": r["task"], **r["evaluation"]} for r in document["runs"]]
    figures = [("Accuracy by program length; bands show one standard error.", accuracy_figure(summaries))]
    for task in TASKS if load is not None else ():
        pointed = [
            run for run in runs if run.model.name == "ipa-gnn" and run.evaluation and run.evaluation["task"] == task
        ]
        if pointed and load is not None:
            best = max(pointed, key=lambda run: run.evaluation["overall"]["accuracy"] if run.evaluation else 0.0)
            model = load(best)
            if model.config.grammar != PAPER:
                figures.append(
                    (f"Instruction pointer of {best.path.name} on programs of its language.", own_language(model, task))
                )
                continue
            for name, (wanted, draw) in POINTER_FIGURES.items():
                if wanted == task:
                    figures.append(
                        (f"Instruction pointer of {best.path.name} on the paper's programs ({name}).", draw(model))
                    )
    pictures = [(caption, figure_bytes(figure)) for caption, figure in figures]
    page.parent.mkdir(parents=True, exist_ok=True)
    files = (page, page.with_suffix(".md"), page.with_suffix(".json"))
    contents = (render(document, pictures), markdown(document), json.dumps(document, indent=2) + "\n")
    for path, content in zip(files, contents, strict=True):
        write_whole(path, content.encode())
    return files
