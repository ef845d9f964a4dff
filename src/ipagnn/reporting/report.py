"""The report: one document with all numbers, which the page, the tables and the JSON file show."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

from ipagnn import __version__
from ipagnn._common.options import variants
from ipagnn.data.tasks import TASKS
from ipagnn.evaluation.benchmark import on_paper_test_set
from ipagnn.evaluation.generalisation import measure_generalisation
from ipagnn.evaluation.metrics import columns
from ipagnn.languages.arithmetic import AUTHORS, PAPER
from ipagnn.models import ProgramModel, model_title
from ipagnn.reporting import paper
from ipagnn.reporting.figure_accuracy import accuracy_figure
from ipagnn.reporting.figure_generalisation import generalisation_figure
from ipagnn.reporting.figures import POINTER_FIGURES, own_language
from ipagnn.reporting.groups import Document, describe_settings, group_key, summarise_group
from ipagnn.reporting.report_html import render
from ipagnn.reporting.report_markdown import markdown
from ipagnn.reporting.runs import RunRecord
from ipagnn.reporting.style import figure_bytes
from ipagnn.training.runs.files import write_whole

CELL: Final = 50
"""Programs of each length and number of digits in the figure of a report."""
_STEPS, _TRACES = "enough steps", "taught by traces"
"""What has rows of its own beside `variants` of models: training with enough steps, which validation cannot judge, and
with traces, which contain more than final values."""


def build_document(runs: Sequence[RunRecord]) -> Document:
    """Everything that the report says.

    Args:
        runs: Evaluated runs.

    Returns:
        `runs`: each with settings, hardware, cost and all that was measured. `groups`: means of the runs that differ in
        their seed alone (see `summarise_group`). `rows`: for every model and variant (see `VARIANTS`) the accuracy of
        its best group on each task, and the paper's. Validation chooses, among groups measured on D_test if there are
        any; of runs trained with enough steps, the last programs of training do (see `RunRecord.selects`). `compared`:
        tasks with a run on D_test, the only ones that the paper's numbers are given for. `metrics`: title, place in a
        run and format of each metric of a target that has more than its accuracy. Shares are fractions.
    """
    described = [_run(run) for run in runs]
    members: dict[str, list[int]] = {}
    for i, run in enumerate(runs):
        assert run.evaluation is not None
        members.setdefault(group_key(run.config, run.evaluation), []).append(i)
    order = list(dict.fromkeys((*paper.ORDER, *sorted(run["model"] for run in described))))
    groups = sorted((summarise_group(indices, described) for indices in members.values()), key=_merit, reverse=True)
    tasks = list(TASKS)
    groups.sort(key=lambda group: (tasks.index(group["task"]), order.index(group["model"])))
    compared = [task for task in TASKS if any(group["comparable"] and group["task"] == task for group in groups)]
    return {
        "title": f"Learning to execute programs: {'paper against these runs' if compared else 'these runs'}",
        "version": __version__,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "tasks": [task for task in TASKS if any(group["task"] == task for group in groups)],
        "compared": compared,
        "lengths": sorted({int(length) for run in described for length in run["evaluation"]["by_length"]}),
        "rows": [
            _row(*kind, groups)
            for kind in sorted({(group["model"], group["variant"]) for group in groups}, key=_place(order))
        ],
        "groups": groups,
        "metrics": [
            (
                f"{name.replace('_', ' ')} of {target}",
                f"evaluation.targets.{target}.{name}",
                "percent" if is_share else "three",
            )
            for target, name, is_share in columns(run["evaluation"] for run in described)
        ],
        "runs": described,
        "notes": _notes(described, compared),
    }


def _variant(run: RunRecord) -> str:
    """What distinguishes the rows of a model."""
    words = variants(run.model)
    words += [_STEPS] if run.config.data.budget != "model" else []
    words += [_TRACES] if "trace_loss" in run.config.retired else []
    return ", ".join(words)


def _place(order: Sequence[str]) -> Callable[[tuple[str, str]], tuple[int, int, bool, str]]:
    """What rows are sorted by: models in their order, few words first, and words of the training last."""
    return lambda kind: (order.index(kind[0]), len(kind[1].split(", ")) if kind[1] else 0, _STEPS in kind[1], kind[1])


def _merit(group: Document) -> tuple[bool, bool, float]:
    """What chooses among groups of a model; other labels are another task, so the true values come first."""
    return group["true_values"], group["comparable"], group["selects"]


def _row(model: str, variant: str, groups: Sequence[Document]) -> Document:
    row: Document = {"model": model, "title": ", ".join(filter(None, (model_title(model), variant)))}
    for task in TASKS:
        kind = (model, variant, task)
        own = [i for i, each in enumerate(groups) if (each["model"], each["variant"], each["task"]) == kind]
        best = max(own, key=lambda i: _merit(groups[i]), default=None)
        chosen: Document = {} if best is None else groups[best]
        test = chosen.get("test", {})
        row[task] = {
            "paper": chosen["paper"] if chosen else paper.ACCURACY.get((model, task)),
            "ours": test.get("mean"),
            "stderr": test.get("stderr"),
            "group": best,
            "runs": chosen.get("seeds", 0),
            "count": chosen.get("count", 0),
            "difference": chosen.get("difference"),
        }
    return row


def _run(run: RunRecord) -> Document:
    if run.evaluation is None:
        raise ValueError(f"The run {run.path} has not been evaluated; run `ipagnn evaluate {run.path} --save` first.")
    config = run.config.to_dict()
    last = run.starts[-1] if run.starts else {}
    hardware = last.get("hardware", {})
    seconds, examples = run.result.get("seconds"), run.result.get("examples")
    return {
        "name": run.path.name,
        "model": run.model.name,
        "title": model_title(run.model.name),
        "task": run.evaluation["task"],
        "description": describe_settings(run.config),
        "variant": _variant(run),
        "seed": run.config.seed,
        "hidden": run.model.hidden,
        "learning_rate": run.config.optimizer.learning_rate,
        "batch_size": max(run.config.batch_sizes),
        "settings": config,
        "cost": {
            "examples": examples,
            "steps": run.result.get("step"),
            "seconds": seconds,
            "examples_per_second": examples / seconds if examples and seconds else None,
        },
        "validation": run.result.get("accuracy"),
        "selects": run.selects,
        "state": run.result.get("state", "unfinished"),
        "hardware": hardware,
        "processor": hardware.get("gpu") or hardware.get("cpu"),
        "versions": last.get("versions", {}),
        "command": last.get("command", []),
        "commit": last.get("commit"),
        "starts": len(run.starts),
        "evaluation": {key: value for key, value in run.evaluation.items() if key not in ("weights", "model", "task")},
    }


def _notes(runs: Sequence[Document], compared: Sequence[str]) -> list[str]:
    """What a reader must know to compare the numbers."""
    notes = []
    other = [run["name"] for run in runs if not on_paper_test_set(run["evaluation"])]
    if not compared:
        notes.append("The test programs are not those of the paper, so its numbers are not given.")
    elif other:
        notes.append(
            f"Not measured on the paper's test set of {paper.TEST_PROGRAMS:,} programs, so not to be compared with it: "
            f"{', '.join(other)}."
        )
    unfinished = [run["name"] for run in runs if run["state"] != "finished"]
    if unfinished:
        notes.append(f"Training had not finished: {', '.join(unfinished)}.")
    return notes


def write_report(
    runs: Sequence[RunRecord], out: Path | str, load: Callable[[RunRecord], ProgramModel | None] | None = None
) -> tuple[Path, Path, Path, Path]:
    """Write the page, and beside it the tables as Markdown, the document as JSON and accuracy by length as SVG.

    Args:
        runs: Evaluated runs.
        out: The page, ending in `.html`.
        load: Loads the model of a run. Then drawn are the pointer of the best IPA-GNN of each task, and accuracy by
            length and number of digits of the best model whose values are digits.

    Returns:
        The four files.
    """
    page = Path(out)
    if page.suffix != ".html":
        raise ValueError(f"The report is to be written to {page}; its name must end in .html.")
    if not runs:
        raise ValueError("There are no runs to report; give at least one run folder.")
    document = build_document(runs)
    chosen = [row[task]["group"] for row in document["rows"] for task in document["tasks"]]
    shown = [document["runs"][i] for k in chosen if k is not None for i in document["groups"][k]["runs"]]
    summaries = [{key: run[key] for key in ("model", "task", "variant")} | run["evaluation"] for run in shown]
    accuracy = figure_bytes(accuracy_figure(summaries, [run.config.data.length for run in runs]))
    pictures = [("Accuracy by program length. Bands show one standard error.", accuracy)]
    pictures += [(caption, figure_bytes(figure)) for caption, figure in _pointers(runs, load)]
    pictures += [(caption, figure_bytes(figure)) for caption, figure in _generalisations(runs, load)]
    page.parent.mkdir(parents=True, exist_ok=True)
    files = (page, page.with_suffix(".md"), page.with_suffix(".json"), page.with_suffix(".svg"))
    text = (render(document, pictures), markdown(document), json.dumps(document, indent=2) + "\n")
    for path, content in zip(files, [*(each.encode() for each in text), accuracy], strict=True):
        write_whole(path, content)
    return files


def _pointers(
    runs: Sequence[RunRecord], load: Callable[[RunRecord], ProgramModel | None] | None
) -> list[tuple[str, Figure]]:
    """What the pointer of the best IPA-GNN of each task does, with captions."""
    figures: list[tuple[str, Figure]] = []
    for task in TASKS:
        pointed = [r for r in runs if r.model.name == "ipa-gnn" and r.evaluation and r.evaluation["task"] == task]
        for run in sorted(pointed, key=lambda r: -r.evaluation["overall"]["accuracy"] if r.evaluation else 0.0):
            model = load(run) if load is not None else None
            if model is None:
                continue
            if model.config.grammar not in (PAPER, AUTHORS):
                caption = f"Instruction pointer of {run.path.name} on programs of its language."
                figures.append((caption, own_language(model, TASKS[task].programs)))
            else:
                figures += [
                    (f"Instruction pointer of {run.path.name} on the paper's programs ({name}).", draw(model))
                    for name, (wanted, draw) in POINTER_FIGURES.items()
                    if wanted == task
                ]
            break
    return figures


def _generalisations(
    runs: Sequence[RunRecord], load: Callable[[RunRecord], ProgramModel | None] | None
) -> list[tuple[str, Figure]]:
    """Accuracy by length and number of digits of the best run whose values are digits, with a caption."""
    full = [run for run in runs if run.evaluation and run.evaluation["task"] == "full"]
    for run in sorted(full, key=lambda run: -run.evaluation["overall"]["accuracy"] if run.evaluation else 0.0):
        model = load(run) if load is not None and run.model.name == "env-ipa-gnn" else None
        if model is not None and model.trained_digits is not None:
            found = measure_generalisation(
                model, f"{model_title(model.name)} ({run.path.name})", count=CELL, trained_lines=run.config.most_lines
            )
            caption = "Accuracy by length of the program and number of digits, on programs that were not trained on."
            return [(caption, generalisation_figure([found]))]
    return []
