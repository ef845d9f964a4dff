"""Runs on disk: finding them, saying where they stand, and plotting several."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ipagnn.training.runs.files import RunError, is_locked
from ipagnn.training.runs.folder import CONFIG, RUN, RunFolder, read_metrics


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Where a run stands.

    Attributes:
        run: Its folder, as seen from where the search began.
        model, task: What is trained.
        hidden: H.
        seed: Of weights and programs.
        step, steps: Steps taken, and of the whole run.
        accuracy: Best accuracy on validation so far; None before the first.
        loss: Training loss at the last look; None before the first.
        started: When it was first started, in UTC.
        state: `finished`; `running` in some process now; or `stopped`, to go on with the same command.
    """

    run: str
    model: str
    task: str
    hidden: int
    seed: int
    step: int
    steps: int
    accuracy: float | None
    loss: float | None
    started: str
    state: Literal["finished", "running", "stopped"]

    def to_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""
        return asdict(self)


def find_runs(directory: Path) -> list[RunFolder]:
    """All run folders at or below a directory, by name.

    Raises:
        RunError: There is no such directory, or no run in it.
    """
    if not directory.is_dir():
        raise RunError(f"{directory} is no directory.")
    found = sorted(path.parent for path in directory.rglob(CONFIG) if (path.parent / RUN).is_file())
    if not found:
        raise RunError(f"There is no run in {directory}; begin one with `ipagnn train {directory / 'a-name'}`.")
    return [RunFolder(path) for path in found]


def summarise(folder: RunFolder, root: Path) -> RunSummary:
    """Where a run stands."""
    config, lines = folder.config(), read_metrics(folder)
    trained = [line for line in lines if line["kind"] == "train"]
    scores = [line["accuracy"] for line in lines if line["kind"] == "validation"]
    state: Literal["finished", "running", "stopped"] = "stopped"
    if folder.has_finished:
        state = "finished"
    elif is_locked(folder.path):
        state = "running"
    return RunSummary(
        run=str(folder.path.relative_to(root)) if folder.path != root else folder.path.name,
        model=config.model.name,
        task=config.task,
        hidden=config.model.hidden,
        seed=config.seed,
        step=trained[-1]["step"] if trained else 0,
        steps=config.steps,
        accuracy=max(scores, default=None),
        loss=trained[-1]["loss"] if trained else None,
        started=str(folder.record().starts[0].get("started")),
        state=state,
    )


def list_runs(directory: Path | str) -> list[RunSummary]:
    """Where all runs at or below a directory stand."""
    root = Path(directory)
    return [summarise(folder, root) for folder in find_runs(root)]


def compare_runs(directory: Path | str, target: Path) -> None:
    """Plot training loss and validation accuracy of all runs at or below a directory.

    Args:
        directory: Where the runs are.
        target: The picture; its ending says which kind (png, pdf, svg).

    Raises:
        RunError: The ending is none that can be drawn.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    root = Path(directory)
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    kinds = FigureCanvasAgg(figure).get_supported_filetypes()
    if target.suffix.removeprefix(".") not in kinds:
        raise RunError(f"{target} does not end like a picture; choose one of {', '.join(sorted(kinds))}.")
    left, right = figure.subplots(1, 2)
    for folder in find_runs(root):
        name, lines = summarise(folder, root).run, read_metrics(folder)
        for axes, kind, quantity in ((left, "train", "loss"), (right, "validation", "accuracy")):
            chosen = [line for line in lines if line["kind"] == kind and line[quantity] is not None]
            points = [line["examples"] for line in chosen], [line[quantity] for line in chosen]
            axes.plot(*points, label=name, marker="." if len(chosen) < 20 else None)
    left.set(xlabel="examples", ylabel="training loss (nats)")
    right.set(xlabel="examples", ylabel="validation accuracy", ylim=(0, 1))
    right.legend(fontsize="small")
    figure.savefig(target, dpi=150)
