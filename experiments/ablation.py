"""Tables with one training run per row, each with one change: what `environment.py` and `digits.py` share."""

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ipagnn.models import ProgramModel, load_model
from ipagnn.training import TrainConfig, train

Change = Callable[[TrainConfig], TrainConfig]
Cells = dict[str, int | float | str]
"""What a table says about a model, by the title of the column."""


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        title: What is different.
        change: Makes its settings from those of the full model.
    """

    title: str
    change: Change


def run_row(
    row: Row, config: TrainConfig, folder: Path, measure: Callable[[ProgramModel], Cells], seconds: float | None
) -> None:
    """Train a row, and write `row.json` beside its result."""
    result = train(row.change(config), folder, time_limit=seconds)
    if result.state != "finished":
        print(f"{folder.name}: stopped after {result.step} steps", flush=True)
        return
    found = {"programs": result.examples, "seconds": round(result.seconds), "withheld": result.accuracy}
    cells = measure(load_model(folder).eval())
    (folder / "row.json").write_text(json.dumps(found | {"cells": cells}, indent=2), "utf-8")
    print(f"{folder.name}: {json.dumps(cells)}", flush=True)


def table(rows: Mapping[str, Row], folder: Path) -> str:
    """The rows that have been run, as Markdown."""
    found = {
        name: json.loads((folder / name / "row.json").read_text("utf-8"))
        for name in rows
        if (folder / name / "row.json").is_file()
    }
    columns = list(dict.fromkeys(title for row in found.values() for title in row["cells"]))
    titles = ("row", *columns, "withheld programs right", "training programs, million", "seconds")
    lines = [f"| {' | '.join(titles)} |", "|---|" + "---:|" * (len(titles) - 1)]
    for name, row in found.items():
        last = (f"{row['withheld']:.1%}", f"{row['programs'] / 1e6:.1f}", f"{row['seconds']}")
        cells = (rows[name].title, *(str(row["cells"].get(title, "–")) for title in columns), *last)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(
    about: str | None, rows: Mapping[str, Row], config: TrainConfig, measure: Callable[[ProgramModel], Cells]
) -> None:
    """The command line of a table: train the rows that are asked for, and print what has been run.

    Args:
        about: What the script says about itself.
        rows: The rows, by name.
        config: The settings of the full model.
        measure: What a trained model shows.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default=",".join(rows), help=f"Rows: {', '.join(rows)}.")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=None, help="Most seconds for training a row.")
    parser.add_argument("--table", action="store_true", help="Print the table of what has been run, and stop.")
    given = parser.parse_args()
    if not given.table:
        for name in given.only.split(","):
            run_row(rows[name], config.replace(threads=given.threads), given.folder / name, measure, given.seconds)
    print(table(rows, given.folder))
