"""The plan of a packed execution whose state is an environment: a value for every variable.

The rows are those of every pointer model (`data.contract.Rows`). What a variable holds is computed where it is written
and read from there (`_compiled/environment.py`), and each distinct statement on each distinct value once per batch.
What no output depends on is not computed.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ipagnn.data.contract import Rows
from ipagnn.languages.arithmetic.vocabulary import (
    ADD,
    ASSIGN,
    MULTIPLY,
    NUMBER,
    OPERATION,
    OPERATIONS,
    SUBTRACT,
    VARIABLE,
)
from ipagnn.ops._compiled.environment import LITERAL, MIXTURE, STATEMENT, mark_needed, number_values

Indices = npt.NDArray[np.int64]

WRITES = np.isin(np.arange(OPERATION, OPERATION + len(OPERATIONS)), [ADD, SUBTRACT, MULTIPLY, ASSIGN])
"""By operation: whether it assigns to its variable."""


@dataclass(frozen=True, slots=True)
class Statements:
    """Statements that are computed together.

    Attributes:
        operation, operand: Of each. [statement]
        reads: Where in the pool of its step the value stands that it reads; empty for literals. [statement]
        viewed: The first so many are read later; of the others only likelihoods are asked for.
        asked: Which statement each likelihood is asked of, and of which program's target. [query] each
    """

    operation: Tensor
    operand: Tensor
    reads: Tensor
    viewed: int
    asked: Tensor
    program: Tensor


@dataclass(frozen=True, slots=True)
class EnvironmentStep:
    """What is computed at one step.

    The pool holds the views of all values that are read later. A step appends its mixtures; then statements and
    conditions read. It appends its literals and the views of its statements, and keeps what is needed from then on.

    Attributes:
        rows: Number of rows.
        arrivals: Edges that arrive, 2 * row + branch counted within the step before. [edge]
        target: The row that each arrives at. [edge]
        mixtures: Number of mixtures.
        mixed_edge, mixed_value, mixed: Of each argument: which of the arrivals brings it, where in the pool its value
            stands, and which mixture it belongs to. [argument] each
        mixed_target: The row that a mixture belongs to. [mixture]
        statements: Those with the likelihoods that are asked of them.
        condition_operation, condition_operand, condition_reads: The conditions. [condition] each
        row_condition: The condition that each row decides by, counted from 1 over all steps; 0 for none. [row]
        row_query: The likelihood of what each row writes to v0, counted from 1 over all steps; 0 for none. [row]
        row_keeps: 1 where v0 stays what it is, 0 where the row writes it. [row]
        literals: How many literals join the pool.
        keep: What stays in the pool; None if all of it. [value]
    """

    rows: int
    arrivals: Tensor
    target: Tensor
    mixtures: int
    mixed_edge: Tensor
    mixed_value: Tensor
    mixed: Tensor
    mixed_target: Tensor
    statements: Statements
    condition_operation: Tensor
    condition_operand: Tensor
    condition_reads: Tensor
    row_condition: Tensor
    row_query: Tensor
    row_keeps: Tensor
    literals: int
    keep: Tensor


@dataclass(frozen=True, slots=True)
class EnvironmentPlan:
    """All steps of a batch.

    Attributes:
        literals: All literals of the batch.
        first_program: The program of each row of the first step. [row]
        steps: In order.
        exits: Edges that arrive at exits, 2 * row + branch, and the program of each. [edge] each
    """

    literals: Statements
    first_program: Tensor
    steps: list[EnvironmentStep]
    exits: Tensor
    exit_program: Tensor


def plan_environment(rows: Rows) -> EnvironmentPlan:
    """Work out what is computed when.

    Args:
        rows: Of kind `graph`; no statement is masked.
    """
    device = rows.tokens.device
    tokens = rows.tokens.cpu().numpy()
    operation, operand = tokens[:, 1].astype(np.int64) - OPERATION, tokens[:, 3].astype(np.int64) - NUMBER
    variable = tokens[:, 2].astype(np.int64) - VARIABLE
    program, true, false = (x.cpu().numpy() for x in (rows.program, rows.true, rows.false))
    branches = rows.branches.cpu().numpy()
    offsets, arrivals = rows.arrival_offsets.cpu().numpy().astype(np.int64), rows.arrivals.cpu().numpy()
    starts = np.array(rows.step_offsets, np.int64)
    slots = int(variable.max(initial=0)) + 1
    values, conditions, mixtures, row_condition, row_value = number_values(
        starts, operation, variable, operand, branches, WRITES, ASSIGN - OPERATION, slots, offsets, arrivals
    )
    kind, value_operation, value_operand, value_input, value_step = values
    condition_operation, condition_operand, condition_input, condition_step = conditions
    mixture_of, mixture_row, mixture_offsets, argument_edge, argument_value = mixtures
    scored = WRITES[operation] & (variable == 0)
    reads, likelihood, asks = mark_needed(
        kind, value_input, condition_input, mixture_of, mixture_offsets, argument_value, row_value, scored, true, false
    )

    # The last step whose pool must still hold a value: it is read at the next one.
    until = np.full(len(kind), -1, np.int64)
    stated = np.flatnonzero((kind == STATEMENT) & (reads | likelihood))
    np.maximum.at(until, value_input[stated], value_step[stated] - 1)
    np.maximum.at(until, condition_input, condition_step - 1)
    mixture_value = np.flatnonzero(kind == MIXTURE)
    mixture_reads = reads[mixture_value]
    argument_mixture = np.repeat(np.arange(len(mixture_row)), np.diff(mixture_offsets))
    argument_needed = mixture_reads[argument_mixture]
    np.maximum.at(
        until, argument_value[argument_needed], value_step[mixture_value[argument_mixture[argument_needed]]] - 1
    )

    def tensor(array: npt.NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    asking = np.flatnonzero(asks)
    computed_at = np.where(kind == LITERAL, -1, value_step)  # all literals come first
    query_order = asking[np.argsort(computed_at[row_value[asking]], kind="stable")]
    row_query = np.zeros(len(operation), np.int64)
    row_query[query_order] = np.arange(1, len(query_order) + 1)
    query_value = row_value[query_order]

    def statements(chosen: Indices, position: Indices) -> tuple[Statements, Indices]:
        """Statements in the order they are computed in: those that are read first."""
        chosen = chosen[np.argsort(~reads[chosen], kind="stable")]
        place = np.full(len(kind), -1, np.int64)
        place[chosen] = np.arange(len(chosen))
        queries = query_order[place[query_value] >= 0]
        reading = value_input[chosen]
        return (
            Statements(
                operation=tensor(value_operation[chosen].astype(np.int64)),
                operand=tensor(value_operand[chosen]),
                reads=tensor(position[reading] if len(chosen) and reading[0] >= 0 else reading[:0].astype(np.int64)),
                viewed=int(reads[chosen].sum()),
                asked=tensor(place[row_value[queries]]),
                program=tensor(program[queries].astype(np.int64)),
            ),
            chosen,
        )

    position = np.full(len(kind), -1, np.int64)
    literal, literals = statements(np.flatnonzero((kind == LITERAL) & (reads | likelihood)), position)
    steps = []
    pool = np.zeros(1, np.int64)  # the start
    position[0] = 0
    for t in range(len(starts) - 1):
        first, last = starts[t], starts[t + 1]
        edges = slice(offsets[first], offsets[last])
        here = (value_step == t) & reads
        mixed = np.flatnonzero(here & (kind == MIXTURE))
        numbers = mixture_of[mixed]
        arguments = np.flatnonzero(np.isin(argument_mixture, numbers))
        mixed_place = np.full(len(mixture_row), -1, np.int64)
        mixed_place[numbers] = np.arange(len(numbers))
        mixed_value = position[argument_value[arguments]]
        pool = np.concatenate([pool, mixed])
        position[pool] = np.arange(len(pool))
        stated_here = np.flatnonzero((value_step == t) & (kind == STATEMENT) & (reads | likelihood))
        computed, order = statements(stated_here, position)
        deciding = np.flatnonzero(condition_step == t)
        condition_reads = position[condition_input[deciding]]
        joining = literals[(value_step[literals] == t) & reads[literals]]
        pool = np.concatenate([pool, joining, order[: computed.viewed]])
        keep = np.flatnonzero(until[pool] >= t)
        steps.append(
            EnvironmentStep(
                rows=int(last - first),
                arrivals=tensor(arrivals[edges].astype(np.int64) - 2 * (starts[t - 1] if t else 0)),
                target=tensor(np.repeat(np.arange(last - first), np.diff(offsets[first : last + 1]))),
                mixtures=len(mixed),
                mixed_edge=tensor(argument_edge[arguments].astype(np.int64) - offsets[first]),
                mixed_value=tensor(mixed_value),
                mixed=tensor(mixed_place[argument_mixture[arguments]]),
                mixed_target=tensor(mixture_row[numbers].astype(np.int64) - first),
                statements=computed,
                condition_operation=tensor(condition_operation[deciding].astype(np.int64)),
                condition_operand=tensor(condition_operand[deciding]),
                condition_reads=tensor(condition_reads),
                row_condition=tensor(row_condition[first:last].astype(np.int64) + 1),
                row_query=tensor(row_query[first:last]),
                row_keeps=tensor(~scored[first:last]),
                literals=len(joining),
                keep=tensor(keep),
            )
        )
        pool = pool[keep]
        position[:] = -1
        position[pool] = np.arange(len(pool))
    exits = arrivals[offsets[len(operation)] :].astype(np.int64)
    exit_counts = np.diff(offsets[len(operation) :])
    first_program = program[: starts[1] if len(starts) > 1 else 0].astype(np.int64)
    exit_program = np.repeat(np.arange(len(exit_counts)), exit_counts)
    return EnvironmentPlan(literal, tensor(first_program), steps, tensor(exits), tensor(exit_program))
