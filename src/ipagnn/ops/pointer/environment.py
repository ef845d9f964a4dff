"""The plan of a packed execution whose state is an environment: a value for every variable.

The rows are those of every pointer model (`rows.Rows`). What a variable holds is computed where it is written
and read from there (`_compiled/environment.py`), and each distinct statement on each distinct value once per batch.
What no output depends on is not computed.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ipagnn.data.graphs import Graphs
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
from ipagnn.ops._compiled.environment import arrange, mark_needed, number_values
from ipagnn.ops._compiled.plan import build_arrivals
from ipagnn.ops.pointer.rows import plan_rows

WRITES = np.isin(np.arange(OPERATION, OPERATION + len(OPERATIONS)), [ADD, SUBTRACT, MULTIPLY, ASSIGN])
"""By operation: whether it assigns to its variable."""


@dataclass(frozen=True, slots=True)
class EnvironmentPlan:
    """What a batch computes, and in which order.

    First all literals; then at each step its mixtures, statements and conditions. What is read later has a place among
    the views: the value 0 that variables start with, literals, and then step by step mixtures and statements. Literals
    and statements are numbered together as what is written: of the literals, and of the statements of each step, those
    with a view come first. Tensors are int64 unless they say otherwise; tuples are for the host.

    Attributes:
        literals: Number of literals.
        viewed_literals: Number of those with a view.
        steps: The rows of each step. [step + 1]
        statements, conditions, mixtures: Those of each step. [step + 1] each
        viewed: How many of the statements of each step have a view. [step]
        pair_operation, pair_operand: The distinct pairs of operation and operand: literals, then others. [pair] each
        statement_pair, statement_reads: The pair of each statement, and the view that it reads. [statement] each
        condition_pair, condition_reads: The same for conditions. [condition] each
        mixture_row: The row that each mixture is for. [mixture]
        mixture_offsets: Mixture m has the arguments mixture_offsets[m] : [m + 1]. [mixture + 1]
        argument_edge, argument_view: The arrival that brings an argument, and its view. [argument] each
        query_offsets: The likelihoods that are asked of each literal or statement. [written + 1]
        query_program: Of whose target. [query]
        row_program: Of each row. [row]
        row_query: The likelihood of what a row writes to v0; -1 for none. [row]
        row_condition: The condition that a row decides by; -1 for none. [row]
        row_writes: Whether a row writes v0. bool [row]
        arrival_offsets, arrivals: As in `Rows`.
    """

    literals: int
    viewed_literals: int
    steps: tuple[int, ...]
    statements: tuple[int, ...]
    conditions: tuple[int, ...]
    mixtures: tuple[int, ...]
    viewed: tuple[int, ...]
    pair_operation: Tensor
    pair_operand: Tensor
    statement_pair: Tensor
    statement_reads: Tensor
    condition_pair: Tensor
    condition_reads: Tensor
    mixture_row: Tensor
    mixture_offsets: Tensor
    argument_edge: Tensor
    argument_view: Tensor
    query_offsets: Tensor
    query_program: Tensor
    row_program: Tensor
    row_query: Tensor
    row_condition: Tensor
    row_writes: Tensor
    arrival_offsets: Tensor
    arrivals: Tensor

    def to(self, device: torch.device | str) -> Self:
        """The same on `device`."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        moved: dict[str, Any] = {name: x.to(device) for name, x in values.items() if isinstance(x, Tensor)}
        return replace(self, **moved)


def plan_environment(graphs: Graphs, node_tokens: Tensor) -> EnvironmentPlan:
    """Work out what is computed when.

    Args:
        graphs: The graphs.
        node_tokens: Token ids of the statement at each node; none is masked. [node, 4]
    """
    rows = graphs.plan(plan_rows)
    tokens = node_tokens[rows.node].cpu().numpy()
    operation, operand = tokens[:, 1].astype(np.int64) - OPERATION, tokens[:, 3].astype(np.int64) - NUMBER
    variable = tokens[:, 2].astype(np.int64) - VARIABLE
    program, true, false = (x.contiguous().cpu().numpy() for x in (rows.graph, *rows.target.unbind(dim=1)))
    branches = rows.edges[:, 1].contiguous().cpu().numpy()
    offsets, arrivals = (x.astype(np.int64) for x in build_arrivals(true, false, len(graphs)))
    steps = np.array(rows.step_offsets, np.int64)
    slots = int(variable.max(initial=0)) + 1
    values, conditions, mixtures, row_condition, row_value = number_values(
        steps, operation, variable, operand, branches, WRITES, ASSIGN - OPERATION, slots, offsets, arrivals
    )
    kind, _, _, value_input, _ = values
    mixture_of, _, mixture_offsets, _, argument_value = mixtures
    writes = WRITES[operation] & (variable == 0)
    reads, likelihood, asks = mark_needed(
        kind, value_input, conditions[2], mixture_of, mixture_offsets, argument_value, row_value, writes, true, false
    )
    (
        viewed_literals, literals, statement_offsets, viewed, condition_offsets, mixture_steps, *arrays, row_query,
        row_decides,
    ) = arrange(
        len(steps) - 1, values, conditions, mixtures, reads, likelihood, asks, row_condition, row_value, program
    )  # fmt: skip
    host = (statement_offsets, condition_offsets, mixture_steps, viewed)
    tensors = (*arrays, program.astype(np.int64), row_query, row_decides, writes, offsets, arrivals)
    found: list[Any] = [literals, viewed_literals, rows.step_offsets]
    found += [tuple(each.tolist()) for each in host]
    found += [torch.from_numpy(each) for each in tensors]
    plan = EnvironmentPlan(*found)
    return plan.to(graphs.device)
