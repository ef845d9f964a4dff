"""Runs that differ in their seed alone: their settings in a few words, and their mean."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from ipagnn._common.options import flatten, phrases
from ipagnn.evaluation.benchmark import D_TEST, on_paper_test_set
from ipagnn.languages.arithmetic import AUTHORS, PAPER
from ipagnn.reporting import paper
from ipagnn.training.config import RESUMABLE_FIELDS, STREAM, TrainConfig
from ipagnn.training.optim.algorithms import ALGORITHMS

Document = dict[str, Any]

_NOT_PART: Final = RESUMABLE_FIELDS | {
    "seed",
    "run.log_every",
    "run.validation_every",
    "run.validation_count",
    "optimizer.norm_limit",
}
"""Settings that runs of one group may differ in."""


def describe_settings(config: TrainConfig) -> str:
    """The settings of a run in a few words, without its model, task, batch size and number of programs."""
    default = TrainConfig()
    rate = max((stage.learning_rate for stage in config.stages), default=config.optimizer.learning_rate)
    words = [f"H {config.model.hidden}", f"{ALGORITHMS[config.optimizer.algorithm].title} at {rate:g}"]
    if config.stages:
        words.append(f"in {len(config.stages)} stages, up to {max(stage.length for stage in config.stages)} lines")
    if config.data.trace_limit:
        words.append(f"programs that execute at most {config.data.trace_limit} statements")
    if config.optimizer.schedule != default.optimizer.schedule:
        words.append(f"{config.optimizer.schedule} decay")
    if config.optimizer.max_grad_norm != default.optimizer.max_grad_norm:
        words.append(
            f"clipping at {config.optimizer.max_grad_norm:g}" if config.optimizer.max_grad_norm else "no clipping"
        )
    if config.init_from:
        words.append(f"begun with the weights {Path(config.init_from).stem}")
    if config.optimizer.averaging:
        words.append(f"weights averaged ({config.optimizer.averaging:g})")
    if config.data.curriculum:
        words.append(f"even lengths for {config.data.curriculum:.0%}")
    words += phrases(config.model)
    if config.data.budget != "model":
        counted = "by loop counts" if config.data.budget == "static" else "by traces"
        words.append(f"trained with enough steps ({counted}, at most {config.data.budget_cap})")
    if config.retired:
        words.append(f"with version 0.2.0: {config.retired}")
    if config.data.bucket_batches > 1:
        words.append(f"windows of {config.data.bucket_batches}")
    if config.run.precision != default.run.precision:
        words.append(config.run.precision)
    if config.model.budget != default.model.budget:
        words.append(f"budget {config.model.budget.kind} × {config.model.budget.factor:g}")
    if config.data.source != STREAM:
        words.append("fixed data set")
    if config.data.length != default.data.length:
        words.append(f"up to {config.data.length} lines")
    if config.model.grammar == AUTHORS:
        words.append("authors' labels")
    elif config.model.grammar != PAPER:
        words.append("another language")
    return ", ".join(words)


def group_key(config: TrainConfig, evaluation: Mapping[str, Any]) -> str:
    """The same for runs that differ in the seed alone and were evaluated on the same programs."""
    settings = {key: value for key, value in flatten(config.to_dict()).items() if key not in _NOT_PART}
    return json.dumps([settings, evaluation["task"], evaluation.get("set")], sort_keys=True)


def spread(values: Sequence[float], stderr: float | None = None) -> Document:
    """Mean of some runs, its standard error (over runs; that of one run is `stderr`), the least and the largest."""
    numbers = np.array(values)
    error = float(numbers.std(ddof=1)) / len(values) ** 0.5 if len(values) > 1 else stderr
    return {"mean": float(numbers.mean()), "stderr": error, "least": min(values), "largest": max(values)}


def summarise_group(indices: Sequence[int], runs: Sequence[Document]) -> Document:
    """The mean of the runs of one group.

    Args:
        indices: Which of `runs` they are.
        runs: All runs, as `build_document` describes them.

    Returns:
        Model, task, settings in words and cost of the first; means over all; `runs`: their indices.
    """
    own = [runs[i] for i in indices]
    first, evaluations = own[0], [run["evaluation"] for run in own]
    lengths = [n for n in evaluations[0]["by_length"] if all(n in each["by_length"] for each in evaluations)]
    validations = [run["validation"] for run in own if run["validation"] is not None]
    selects = [run["selects"] for run in own if run["selects"] is not None]
    seconds = [run["cost"]["seconds"] for run in own if run["cost"]["seconds"]]
    test = spread([e["overall"]["accuracy"] for e in evaluations], evaluations[0]["overall"]["stderr"])
    of_paper = any(task == first["task"] for _, task in paper.ACCURACY)
    comparable = of_paper and all(on_paper_test_set(evaluation) for evaluation in evaluations)
    theirs = paper.ACCURACY.get((first["model"], first["task"])) if comparable else None
    return {
        "model": first["model"],
        "title": first["title"],
        "task": first["task"],
        "description": first["description"],
        "variant": first["variant"],
        "runs": list(indices),
        "seeds": len(own),
        "examples": first["cost"]["examples"],
        "steps": first["cost"]["steps"],
        "batch": first["batch_size"],
        "seconds": sum(seconds) / len(seconds) if seconds else None,
        "hardware": first["processor"],
        "validation": spread(validations) if validations else None,
        "selects": float(np.mean(selects)) if selects else -1.0,
        "test": test,
        "count": evaluations[0]["overall"]["count"],
        "by_length": {n: float(np.mean([e["by_length"][n]["accuracy"] for e in evaluations])) for n in lengths},
        "comparable": comparable,
        "true_values": all(evaluation.get("set", {}).get("name") == D_TEST for evaluation in evaluations),
        "paper": theirs,
        "difference": None if theirs is None else test["mean"] - theirs,
    }
