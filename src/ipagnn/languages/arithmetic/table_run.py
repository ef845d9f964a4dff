"""Running programs over tables of what their statements do: any length, and traces of any number of steps.

Control takes one path, as in an interpreter, and every step is looked up. Over `ValueTables.exact` this is exact
execution for values modulo the modulus; over the tables of a model it is what the model has learned, run without a
bound. A masked line is a choice among statements: the program runs once for each of them.

A run is right if all facts are that it rests on: what each of its statements makes of each value that it meets. The
tables say how sure each fact is, and `TableRun.confidence` says how sure the run is:

- A fact that is looked up a thousand times is right or wrong once. It counts once.
- Facts of one statement come from the same weights of a model and are right or wrong together. A statement counts with
  the least sure of the facts that the run uses.
- Different statements count as independent: their probabilities are multiplied.

The product over all statements that are executed would go to 0 as traces get longer, even if no fact is wrong.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from itertools import product
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ipagnn.languages.arithmetic._compiled import tables as compiled
from ipagnn.languages.arithmetic.cfg import control_flow_graph
from ipagnn.languages.arithmetic.interpreter import MAX_STEPS
from ipagnn.languages.arithmetic.program import Program, ProgramTable
from ipagnn.languages.arithmetic.statements import COMPARISON
from ipagnn.languages.arithmetic.tables import ValueTables, program_statements, statement_text
from ipagnn.languages.arithmetic.vocabulary import (
    ASSIGN,
    MASK,
    MAX_NUMBER,
    NUMBER,
    OPERATION,
    OPERATIONS,
    VARIABLE,
    VARIABLES,
)

ENDS: Final = compiled.ENDS
ENDLESS: Final = compiled.ENDLESS
GAVE_UP: Final = compiled.GAVE_UP
EXACT_MASKS: Final = 2
"""Programs with up to this many masked lines are run under every filling; those with more under a sample."""
SAMPLES: Final = 1_000
"""Fillings that are drawn where not all are run."""
_CHUNK: Final = 64
_LEAST_CONFIDENCE: Final = 1e-3


@dataclass(frozen=True, eq=False, slots=True)
class TableRun:
    """What running programs over tables gave.

    A complete program has one run; one with masked lines has a run for each filling, weighted by its probability.

    Attributes:
        value: The likeliest result, the smallest of several; -1 if no run ended. int32 [program]
        probability: Weight of the runs that gave it. float64 [program]
        confidence: Probability that the runs which gave it are right, the mean over these runs by their weights. For
            a run it is the product, over its distinct statements, of the least probability among the facts that it
            uses of each. float64 [program]
        error: Standard error of `probability`; 0 where all fillings were run. float64 [program]
        status: `ENDS`, or why the first run that did not end did not: `ENDLESS` or `GAVE_UP`. int8 [program]
        stopped: The line where that run was, counted from 0; -1 if all ended. int32 [program]
        trace_length: Statements executed; -1 for a program with masked lines or whose run did not end. int64 [program]
        loop_depth: Loops within loops that were entered or come to; 0 without one. int32 [program]
        results: The distribution over results. Runs that did not end are missing from it. float64 [program, value]
    """

    value: npt.NDArray[np.int32]
    probability: npt.NDArray[np.float64]
    confidence: npt.NDArray[np.float64]
    error: npt.NDArray[np.float64]
    status: npt.NDArray[np.int8]
    stopped: npt.NDArray[np.int32]
    trace_length: npt.NDArray[np.int64]
    loop_depth: npt.NDArray[np.int32]
    results: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.value)

    @property
    def probabilities(self) -> npt.NDArray[np.float64]:
        """A distribution over all values that is as sure as the tables: what is not certain falls to all alike.

        The confidence counts as at least 0.001, so that the likeliest result stays the likeliest. [program, value]
        """
        sure = np.maximum(self.confidence, _LEAST_CONFIDENCE)[:, None] * self.results
        missing = 1 - sure.sum(axis=1, keepdims=True)
        spread: npt.NDArray[np.float64] = sure + missing / self.results.shape[1]
        return spread


def run_tables(
    tables: ValueTables,
    programs: ProgramTable,
    *,
    max_steps: int = MAX_STEPS,
    samples: int = SAMPLES,
    seed: int = 0,
    threads: int = 1,
) -> TableRun:
    """Run programs over tables.

    Results of loops are remembered, so that deep nests and long traces take bounded time, and a program that never
    ends is reported. A program with one or two masked lines runs under every filling; with more, under `samples`
    fillings drawn from the weights of the tables, the same for every program with as many masked lines.

    Args:
        tables: They hold every statement of the programs; see `program_statements` and `ValueTables.missing`.
        programs: The programs. Their targets are not looked at.
        max_steps: Statements after which a run is given up; a remembered loop counts as one.
        samples: Fillings to draw for programs with more than `EXACT_MASKS` masked lines.
        seed: What they are drawn from.
        threads: How many threads run programs; the result is the same for any number.

    Raises:
        ValueError: A statement of the programs is not in the tables.
    """
    rows = _line_rows(tables, programs)
    masks = np.add.reduceat(programs.line_tokens[:, 1] == MASK, programs.line_offsets[:-1], dtype=np.int64)
    masks = masks if len(programs) else np.zeros(0, np.int64)
    parts: list[tuple[npt.NDArray[np.int64], TableRun]] = []
    logs = np.log(tables.probabilities.astype(np.float64)), np.log(tables.literal_probabilities.astype(np.float64))
    with ThreadPoolExecutor(threads) as pool:
        for count in np.unique(masks).tolist():
            fillings, weights = _fillings(tables, count, samples, seed)
            chosen = np.flatnonzero(masks == count)
            chunk = max(1, _CHUNK * 27 // len(fillings)) if count else _CHUNK

            def run(
                indices: npt.NDArray[np.int64],
                fillings: npt.NDArray[np.int32] = fillings,
                weights: npt.NDArray[np.float64] = weights,
                count: int = count,
            ) -> tuple[npt.NDArray[np.int64], TableRun]:
                part = programs.take(indices)
                lines = np.concatenate([rows[programs.line_offsets[i] : programs.line_offsets[i + 1]] for i in indices])
                return indices, _run(tables, logs, part, lines, fillings, weights, max_steps, count)

            parts += pool.map(run, (chosen[k : k + chunk] for k in range(0, len(chosen), chunk)))
    return _gather(parts, len(programs), tables.grammar.modulus)


class TableStep(NamedTuple):
    """One step of a program over tables.

    Attributes:
        line: Index of the line, from 0.
        branch: Whether the condition held; None for a statement without one.
        values: The values of all variables after the statement.
        probability: What the tables give for the outcome of the statement.
    """

    line: int
    branch: bool | None
    values: tuple[int, ...]
    probability: float


def walk_tables(tables: ValueTables, program: Program) -> Iterator[TableStep]:
    """The steps of a complete program over tables, made as they are asked for; without end if the program has none.

    Raises:
        ValueError: A statement of the program is not in the tables, or a line is masked.
    """
    if program.is_partial:
        raise ValueError(
            f"Line {program.masked_lines[0] + 1} is masked, so the program has no steps; put a statement in its place."
        )
    rows = _line_rows(tables, ProgramTable.from_programs([program])).tolist()
    graph = control_flow_graph(program)
    values = [0] * VARIABLES
    node = 0
    while node != graph.exit:
        line = int(graph.nodes[node])
        _, operation, variable, _ = graph.node_tokens[node].tolist()
        variable, row = variable - VARIABLE, rows[line]
        branch = None
        if operation == ASSIGN:
            probability = float(tables.literal_probabilities[row])
            values[variable] = int(tables.literals[row])
        else:
            probability = float(tables.probabilities[row, values[variable]])
            outcome = int(tables.outcomes[row, values[variable]])
            if operation in COMPARISON:
                branch = bool(outcome)
            else:
                values[variable] = outcome
        yield TableStep(line, branch, tuple(values), probability)
        node = int(graph.false[node] if branch is False else graph.true[node])


def fillings_of(
    tables: ValueTables, program: Program, samples: int = SAMPLES, seed: int = 0
) -> Iterator[tuple[Program, float]]:
    """The program with each filling of its masked lines, and the weight of each; itself if no line is masked.

    The fillings are those that `run_tables` runs.
    """
    masked = list(program.masked_lines)
    rows, weights = _fillings(tables, len(masked), samples, seed)
    for filling, weight in zip(rows, weights.tolist(), strict=True):
        tokens = program.line_tokens.copy()
        tokens[masked, 1] = tables.statements[filling, 0]
        tokens[masked, 2] = VARIABLE
        tokens[masked, 3] = NUMBER + tables.statements[filling, 1]
        yield Program(tokens), weight


def _line_rows(tables: ValueTables, programs: ProgramTable) -> npt.NDArray[np.int32]:
    """What to look up for each line: the number it assigns, or the row of its statement. int32 [line]"""
    missing = tables.missing(program_statements(programs))
    if len(missing):
        texts = [f"`{statement_text(o, k, tables.grammar)}`" for o, k in missing[:3].tolist()]
        raise ValueError(
            f"The tables lack {', '.join(texts)}{', …' if len(missing) > 3 else ''}, which the programs have; tabulate "
            "these statements too, and join the tables."
        )
    operations = programs.line_tokens[:, 1].astype(np.int64)
    numbers = programs.line_tokens[:, 3].astype(np.int64) - NUMBER
    known = (operations >= OPERATION) & (operations < OPERATION + len(OPERATIONS)) & (numbers <= MAX_NUMBER)
    rows = np.zeros(len(operations), np.int32)
    rows[known] = tables.rows[operations[known] - OPERATION, numbers[known]]
    assigns = operations == ASSIGN
    rows[assigns] = numbers[assigns]
    return rows


def _fillings(
    tables: ValueTables, masks: int, samples: int, seed: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]:
    """Rows of statements for so many masked lines, int32 [filling, mask], and the weight of each filling."""
    if masks == 0:
        return np.zeros((1, 0), np.int32), np.ones(1)
    rows = tables.rows[tables.choices[:, 0] - OPERATION, tables.choices[:, 1]]
    if not len(rows) or (rows < 0).any():
        raise ValueError("The tables do not hold the statements that a masked line may be; tabulate them too.")
    if masks <= EXACT_MASKS:
        chosen = np.array(list(product(range(len(rows)), repeat=masks)), np.int64)
        return rows[chosen], tables.weights[chosen].prod(axis=1)
    chosen = np.random.default_rng(seed).choice(len(rows), (samples, masks), p=tables.weights)
    return rows[chosen], np.full(samples, 1 / samples)


def _run(
    tables: ValueTables,
    logs: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]],
    programs: ProgramTable,
    rows: npt.NDArray[np.int32],
    fillings: npt.NDArray[np.int32],
    weights: npt.NDArray[np.float64],
    max_steps: int,
    masks: int,
) -> TableRun:
    shape = len(programs), len(fillings)
    values, statuses, lines = np.empty(shape, np.int32), np.empty(shape, np.int8), np.empty(shape, np.int32)
    lengths, confidence_logs = np.empty(shape, np.int64), np.empty(shape, np.float64)
    depths = np.empty(len(programs), np.int32)
    compiled.run_all(
        programs.line_offsets, programs.line_tokens, rows, tables.literals, logs[1], tables.outcomes, logs[0],
        fillings, max_steps, values, statuses, lines, lengths, confidence_logs, depths,
    )  # fmt: skip
    ended = statuses == ENDS
    results = np.zeros((len(programs), tables.grammar.modulus))
    index = np.arange(len(programs))
    np.add.at(results, (index[:, None], values), np.where(ended, weights, 0.0))
    value = results.argmax(axis=1).astype(np.int32)
    probability = results[index, value]
    agree = ended & (values == value[:, None])
    known = probability > 0
    confidence = (np.where(agree, np.exp(confidence_logs), 0.0) * weights).sum(axis=1) / np.where(known, probability, 1)
    first = (~ended).argmax(axis=1)
    sampled = masks > EXACT_MASKS
    return TableRun(
        np.where(known, value, -1).astype(np.int32),
        probability,
        np.minimum(confidence, 1.0),
        np.sqrt(probability * (1 - probability) / len(fillings)) if sampled else np.zeros(len(programs)),
        statuses[index, first],
        np.where(ended.all(axis=1), -1, lines[index, first]).astype(np.int32),
        np.where(ended[:, 0], lengths[:, 0], -1) if masks == 0 else np.full(len(programs), -1, np.int64),
        depths,
        results,
    )


def _gather(parts: list[tuple[npt.NDArray[np.int64], TableRun]], programs: int, modulus: int) -> TableRun:
    """The parts of a run, in the order of the programs."""
    run = TableRun(
        value=np.empty(programs, np.int32),
        probability=np.empty(programs),
        confidence=np.empty(programs),
        error=np.empty(programs),
        status=np.empty(programs, np.int8),
        stopped=np.empty(programs, np.int32),
        trace_length=np.empty(programs, np.int64),
        loop_depth=np.empty(programs, np.int32),
        results=np.empty((programs, modulus)),
    )
    for indices, part in parts:
        for field in fields(TableRun):
            getattr(run, field.name)[indices] = getattr(part, field.name)
    return run
