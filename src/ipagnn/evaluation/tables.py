"""Evaluating a model that runs over tables or automata, without a bound on steps."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ipagnn.data.collate import graphs_of
from ipagnn.data.tasks import Task
from ipagnn.evaluation.answers import Answers
from ipagnn.evaluation.results import Evaluation
from ipagnn.languages.arithmetic._compiled.trace import loop_depths, trace_nodes
from ipagnn.languages.arithmetic.grammar import Grammar
from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.languages.arithmetic.table_run import ENDS, run_tables
from ipagnn.languages.arithmetic.tables import ValueTables, program_statements, refusal
from ipagnn.models import ProgramModel
from ipagnn.models.automata import AutomataModel
from ipagnn.models.tabulated import TabulatedModel

_CHUNK: Final = 2_000
_TRACED: Final = 1_000  # modulus of tables for traces of larger numbers: counters hold less, conditions look at less
_WALKED: Final = 1_000_000
_LEAST: Final = 1e-30  # probabilities below this count as this where their logarithm is taken

Array = npt.NDArray[np.generic]


class UnboundedRunner:
    """A model that runs over tables or automata.

    Args:
        model: Such a model.
        max_steps: Statements after which a program is given up; by default as many as tables or automata allow.

    Attributes:
        call: How the model is run: all that computes is called by it.
    """

    def __init__(self, model: ProgramModel, max_steps: int | None = None) -> None:
        self.model = model
        self.limits = {"threads": os.cpu_count() or 1} | ({} if max_steps is None else {"max_steps": max_steps})
        self.unbounded: TabulatedModel | AutomataModel | None = None
        self.call: Callable[..., Any] = lambda function, *arguments: function(*arguments)

    def run(self, table: ProgramTable, task: Task, progress: Callable[[int], None]) -> Evaluation:
        """Evaluate all programs of a table."""
        self.unbounded = self.unbounded or self.call(self.model.unbounded)
        parts: list[dict[str, Array]] = []
        for first in range(0, len(table), _CHUNK):
            part = table.slice(first, min(first + _CHUNK, len(table)))
            measure = _measure_automata if isinstance(self.unbounded, AutomataModel) else _measure_tables
            measured = self.call(measure, self.unbounded, part, self.limits)
            lengths, depths = self.call(_true_traces, self.model.config.grammar, part, task)
            parts.append(measured | {"trace_length": lengths, "loop_depth": depths})
            progress(first + len(part))
        results: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        said = {name: results.pop(name) for name in ("prediction", "rank", "confidence", "margin")}
        answers = {"value": Answers(kind="class", target=table.target.copy(), **said)}
        lengths = table.lengths.astype(np.int32)
        return Evaluation(self.model.name, task.name, lengths, answers=answers, bounded=False, **results)


def _measure_tables(model: TabulatedModel, table: ProgramTable, limits: dict[str, int]) -> dict[str, Array]:
    run = model.run(table, **limits)
    target, classes = table.target, run.results.shape[1]
    of_target = np.where(target < classes, run.results[np.arange(len(table)), np.minimum(target, classes - 1)], 0.0)
    ahead = (run.results > of_target[:, None]) | (
        (run.results == of_target[:, None]) & (np.arange(classes) < target[:, None])
    )
    two = -np.partition(-run.probabilities, min(1, classes - 1), axis=1)[:, :2]
    margin = np.log(np.maximum(two, _LEAST))
    return {
        "steps": np.minimum(run.trace_length, np.iinfo(np.int32).max).astype(np.int32),
        "prediction": run.value.astype(np.int64),
        "correct": run.value == target,
        "rank": np.where(of_target > 0, ahead.sum(axis=1), classes).astype(np.int32),
        "confidence": (run.confidence * run.probability).astype(np.float32),
        "margin": (margin[:, 0] - margin[:, -1]).astype(np.float32),
    }


def _measure_automata(model: AutomataModel, table: ProgramTable, limits: dict[str, int]) -> dict[str, Array]:
    run = model.run(table, **limits)
    value, two = run.results[:, 0], np.pad(run.weights, ((0, 0), (0, 1)))[:, :2]
    margin = np.log(np.maximum(two, _LEAST))
    found = run.results == table.target[:, None]
    place = np.where(found.any(axis=1), found.argmax(axis=1), (run.weights > 0).sum(axis=1))
    return {
        "steps": np.minimum(run.steps, np.iinfo(np.int32).max).astype(np.int32),
        "prediction": value,
        "correct": value == table.target,
        "rank": place.astype(np.int32),
        "confidence": two[:, 0].astype(np.float32),
        "margin": (margin[:, 0] - margin[:, 1]).astype(np.float32),
    }


def _true_traces(
    grammar: Grammar, table: ProgramTable, task: Task
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Statements of the true traces, and loops within loops on them; -1 where that is not known. [program] each"""
    if task.masked:
        unknown = np.full((2, len(table)), -1, np.int64)
        return unknown[0], unknown[1]
    if grammar.is_extended:
        return _walked(grammar, table)
    modulus = grammar.modulus if refusal(grammar) is None else max(grammar.condition_modulus, _TRACED)
    exact = run_tables(ValueTables.exact(replace(grammar, modulus=modulus), program_statements(table)), table)
    # Tables hold values modulo the modulus, and a program outside the grammar may look at more of them.
    known = (exact.status == ENDS) & ((exact.value == table.target % modulus) | (grammar.block_limit > 0))
    return np.where(known, exact.trace_length, -1), np.where(known, exact.loop_depth.astype(np.int64), -1)


def _walked(grammar: Grammar, table: ProgramTable) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The same for languages that have no tables: traces are walked, at most `_WALKED` statements of each."""
    offsets, tokens, _, _, true, false, _ = graphs_of(table, extended=True)
    lengths, depths = np.full((2, len(table)), -1, np.int64)
    for i, (first, end) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        graph = tokens[first:end], true[first:end], false[first:end], first
        nodes, problem = trace_nodes(*graph, grammar.modulus, grammar.condition_modulus, _WALKED, grammar.wrap)
        if not problem and len(nodes) < _WALKED:
            lengths[i] = len(nodes)
            depths[i] = loop_depths(tokens[first:end])[nodes - first].max(initial=0)
    return lengths, depths
