"""Records: what is kept of a finished run for good, and its weights for the package, with a model card."""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ipagnn.data.splits import recipe
from ipagnn.evaluation import build_test_recipe, evaluate, evaluate_on_test_set
from ipagnn.evaluation.semantics import read_automata
from ipagnn.languages.arithmetic import Lengths, ProgramTable
from ipagnn.languages.arithmetic.automata import claim
from ipagnn.languages.arithmetic.grammar import PAPER
from ipagnn.models import ProgramModel, load_model, save_model
from ipagnn.reporting.card import model_card
from ipagnn.reporting.runs import EVALUATION, RunRecord, read_run
from ipagnn.training.runs.files import write_whole
from ipagnn.training.runs.folder import CONFIG, METRICS, RESULT, RUN

FILES: Final = (CONFIG, RUN, METRICS, RESULT, EVALUATION)
CHECKED: Final = 1_000
"""Withheld programs whose prediction is compared before and after rounding."""
DIGITS: Final = (3, 6, 12, 18)
"""Numbers of digits that a model with values as digits is tested with on the paper's programs."""


def make_record(run: Path | str, records: Path | str, name: str | None = None) -> Path:
    """Copy all but the weights of a finished and evaluated run into a folder of its own.

    Args:
        run: The run folder.
        records: Directory of records. Created if missing.
        name: Of the record; by default the date and the name of the run folder.

    Returns:
        The folder, which appears complete or not at all.

    Raises:
        ValueError: The run has not finished or was not evaluated, or there is such a record.
    """
    finished = _complete(run)
    target = Path(records) / (name or f"{finished.result['ended'][:10]}-{finished.path.resolve().name}")
    if target.exists():
        raise ValueError(f"{target} is there already, and records are never overwritten; choose another name.")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".record-") as aside:
        copy = Path(aside) / target.name
        copy.mkdir()
        for file in FILES:
            shutil.copyfile(finished.path / file, copy / file)
        copy.rename(target)
    return target


def package_weights(run: Path | str, weights: Path | str, record: str, factor: float = 1.0) -> Path:
    """Write the weights of a run as float16, with a model card beside them, in place of older ones.

    Args:
        run: The run folder.
        weights: The folder for both: `src/ipagnn/weights`, from where `load_model` finds them by name.
        record: Name of the run's record, which the card refers to.
        factor: Times the steps of the run's own budget that the weights are to take.

    Returns:
        The file with the weights, named after model and task: `ipa-gnn-full.safetensors`. Where values are digits,
        `any` stands for the task: `env-ipa-gnn-any.safetensors`, for numbers of any size; or `extended` if the language
        goes past the paper's.
    """
    finished = _complete(run)
    model = load_model(run)
    assert finished.evaluation is not None
    variant = finished.evaluation["task"]
    if model.runs_on == "automata":
        variant = "extended" if model.config.grammar.is_extended else "any"
    path = Path(weights) / f"{model.name}-{variant}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    table = recipe(
        "validation",
        finished.config.task,
        CHECKED,
        None,
        Lengths.exact(finished.config.data.length),
        model.config.grammar,
    ).table(0, CHECKED)
    before = _predict(model, table)
    own = model.config.budget
    packaged = load_model(run, budget=replace(own, factor=factor * own.factor))
    save_model(packaged, path, task=finished.config.task, half=True, record=record)
    changed = int((before != _predict(load_model(path, budget=own), table)).sum())
    longer = None
    if factor != 1:
        longer = factor, float((_predict(packaged, table) == table.target).mean())
    on_digits = _test_digits(path) if model.runs_on == "automata" else None
    card = model_card(finished, path.stem, record, changed, CHECKED, longer, on_digits)
    write_whole(path.with_suffix(".md"), card.encode())
    return path


def _test_digits(path: Path) -> tuple[dict[int, dict[str, Any]], str]:
    """Accuracy on the paper's test programs by number of digits, and what can be claimed of the automata."""
    overall = {}
    for digits in DIGITS:
        model = load_model(path, grammar=replace(PAPER, modulus=10**digits), values="digits")
        summary = evaluate_on_test_set(model, build_test_recipe(grammar=model.config.grammar), pointer=False)
        overall[digits] = summary["overall"]
    return overall, claim(read_automata(load_model(path)))


def _predict(model: ProgramModel, table: ProgramTable) -> npt.NDArray[np.int64]:
    return evaluate(model, table).prediction.astype(np.int64)


def _complete(run: Path | str) -> RunRecord:
    finished = read_run(run)
    if not finished.result:
        raise ValueError(f"The run {run} has not finished; let it go on with `ipagnn train {run}`.")
    if finished.evaluation is None:
        raise ValueError(f"The run {run} has not been evaluated; run `ipagnn evaluate {run} --save` first.")
    return finished
