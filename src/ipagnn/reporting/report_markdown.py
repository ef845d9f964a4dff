"""The tables of the report as Markdown, alone or inside a file that people write around them."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

from ipagnn.reporting.formats import FORMATS, Format, duration, percent, programs, whole
from ipagnn.reporting.groups import Document
from ipagnn.reporting.report_html import look_up
from ipagnn.training.runs.files import write_whole

BEGIN: Final = "<!-- tables of `ipagnn report`: begin -->"
END: Final = "<!-- tables of `ipagnn report`: end -->"


def markdown(document: Document, beside: Path | None = None) -> str:
    """Paper against ours, every group of runs with its cost, and accuracy by length; shares in per cent.

    Args:
        document: From `build_document`.
        beside: Names of runs become links where their folders lie in this one.
    """
    tables = [_paper_and_ours(document), _groups(document, beside), _by_length(document)]
    tables += [_metrics(document)] if document["metrics"] else []
    return "\n\n".join(["\n".join(table) for table in tables] + document["notes"]) + "\n"


def write_into(path: Path, document: Document) -> None:
    """Put the tables into a Markdown file, between the lines `BEGIN` and `END`, in place of what stands there.

    Raises:
        ValueError: The file does not have both lines.
    """
    text = path.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} has no place for the tables; write the lines {BEGIN} and {END} where they are to go.")
    tables = markdown(document, path.parent)
    write_whole(path, f"{before}{begin}\n\n{tables}\n{end}{after}".encode())


def _paper_and_ours(document: Document) -> list[str]:
    compared = document["compared"]
    titles = [[f"{task}: paper", f"{task}: ours"] if task in compared else [task] for task in document["tasks"]]
    lines = _head(["model", *chain(*titles)], text=1)
    for row in document["rows"]:
        cells = [row["title"]]
        for task in document["tasks"]:
            if task in compared:
                cells.append(_shown(row[task]["paper"], percent))
            cells.append(_plus_minus(row[task]["ours"], row[task]["stderr"]))
        lines.append(_line(cells))
    return lines


def _groups(document: Document, beside: Path | None) -> list[str]:
    titles = ("model", "task", "settings", "runs", "hardware", "batch", "steps", "programs", "time", "validation")
    compared = bool(document["compared"])
    lines = _head(["", *titles, "test", *["paper"] * compared], text=6)
    for i, group in enumerate(document["groups"]):
        runs = [document["runs"][k] for k in group["runs"]]
        found = [beside is not None and (beside / run["name"]).is_dir() for run in runs]
        names = [
            f"[seed {run['seed']}]({run['name']})" if there else run["name"]
            for run, there in zip(runs, found, strict=True)
        ]
        validation, test = group["validation"] or {}, group["test"]
        shown = _plus_minus(test["mean"], test["stderr"])
        if group["seeds"] > 1:
            shown += f" ({percent(test['least'])} to {percent(test['largest'])})"
        if not group["comparable"]:
            shown += f" of {group['count']:,}"
        lines.append(
            _line(
                [
                    *(str(i + 1), group["title"], group["task"], group["description"]),
                    *(", ".join(names), group["hardware"] or "—"),
                    *(f"{group['batch']:,}", _shown(group["steps"], whole), _shown(group["examples"], programs)),
                    *(
                        _shown(group["seconds"], duration),
                        _plus_minus(validation.get("mean"), validation.get("stderr")),
                    ),
                    *(shown, *[_shown(group["paper"], percent)] * compared),
                ]
            )
        )
    return lines


def _by_length(document: Document) -> list[str]:
    lengths = sorted({int(n) for group in document["groups"] for n in group["by_length"]})
    lines = _head(["", "by length", "task", *map(str, lengths)], text=3)
    for i, group in enumerate(document["groups"]):
        found = [_shown(group["by_length"].get(str(n)), percent) for n in lengths]
        lines.append(_line([str(i + 1), group["title"], group["task"], *found]))
    return lines


def _metrics(document: Document) -> list[str]:
    lines = _head(["run", *(title for title, _, _ in document["metrics"])], text=1)
    for run in document["runs"]:
        found = [_shown(look_up(run, key), FORMATS[form]) for _, key, form in document["metrics"]]
        lines.append(_line([run["name"], *found]))
    return lines


def _head(titles: Sequence[str], text: int) -> list[str]:
    return [_line(titles), "|" + "---|" * text + "---:|" * (len(titles) - text)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _shown(value: Any, form: Format) -> str:
    return "—" if value is None else form(value)


def _plus_minus(mean: float | None, stderr: float | None) -> str:
    """A share and its standard error in per cent."""
    return _shown(mean, percent) if stderr is None else f"{_shown(mean, percent)} ± {percent(stderr)}"
