"""The plan of a packed execution whose state is an environment: a value for every variable.

The rows are those of every pointer model (`rows.Rows`). What a variable holds is computed where it is written
and read from there (`_compiled/environment.py`), and each distinct statement on each distinct value once per batch.
What no output depends on is not computed.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ipagnn.data.graphs import Graphs, Tensors
from ipagnn.languages.arithmetic.vocabulary import (
    ASSIGN,
    ASSIGNMENT_IDS,
    BASE,
    MASK,
    NUMBER,
    OPERATION,
    OPERATIONS,
    VARIABLE,
    VARIABLES,
    VOCABULARY_SIZE,
)
from ipagnn.ops._compiled.environment import arrange, mark_needed, number_values
from ipagnn.ops._compiled.plan import build_arrivals
from ipagnn.ops.pointer.rows import plan_rows

WRITES = np.isin(np.arange(OPERATION, OPERATION + len(OPERATIONS)), ASSIGNMENT_IDS)
"""By operation: whether it assigns to its variable."""


@dataclass(frozen=True, slots=True)
class EnvironmentPlan(Tensors):
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
        variable_operands: Whether some operand is a variable.
        pair_operation, pair_operand: The distinct pairs of operation and operand: literals, then others. An operand
            that is a variable with the view i is -1 - i. [pair] each
        statement_pair, statement_reads: The pair of each statement, and the view that it reads. [statement] each
        condition_pair, condition_reads: The same for conditions. [condition] each
        mixture_row: The row that each mixture is for. [mixture]
        mixture_offsets: Mixture m has the arguments mixture_offsets[m] : [m + 1]. [mixture + 1]
        argument_edge, argument_view: The arrival that brings an argument, and its view. [argument] each
        query_offsets: The likelihoods that are asked of each literal or statement. [written + 1]
        query_program: Of whose target. [query]
        row_program: Of each row. [row]
        row_query: The likelihood of what a row writes to the target variable; -1 for none. [row]
        row_condition: The condition that a row decides by; -1 for none. [row]
        row_writes: Whether a row writes the target variable. bool [row]
        arrival_offsets, arrivals: As in `Rows`.
    """

    literals: int
    viewed_literals: int
    steps: tuple[int, ...]
    statements: tuple[int, ...]
    conditions: tuple[int, ...]
    mixtures: tuple[int, ...]
    viewed: tuple[int, ...]
    variable_operands: bool
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


@dataclass(frozen=True, slots=True)
class Statements:
    """The statements of nodes, as numbers; of an exit, all are 0 or none.

    Attributes:
        operation: Less `vocabulary.OPERATION`. int64 [node]
        variable: k of vk. int64 [node]
        operand: The number on the right; 0 where that is a variable. int64 [node]
        source: The variable on the right; -1 where that is a number. int64 [node]
    """

    operation: Tensor
    variable: Tensor
    operand: Tensor
    source: Tensor

    @property
    def variables(self) -> int:
        """How many variables there are, up to the last that is named."""
        return 1 + int(torch.cat([self.variable, self.source, self.variable.new_zeros(1)]).max())


def read_statements(node_tokens: Tensor) -> Statements:
    """The statements that token ids stand for; none is masked. [node, token]"""
    tokens = node_tokens.long()
    is_exit = tokens[:, 1] == 0

    def variable_of(token: Tensor) -> Tensor:
        return token - torch.where(token < MASK, VARIABLE, VOCABULARY_SIZE - VARIABLES)

    places = BASE ** torch.arange(tokens.shape[1] - 3, device=tokens.device)
    digits = (tokens[:, 3:] - NUMBER).clamp_min(0)
    is_variable = tokens[:, 3] >= VARIABLE
    return Statements(
        torch.where(is_exit, 0, tokens[:, 1] - OPERATION),
        torch.where(is_exit, 0, variable_of(tokens[:, 2])),
        torch.where(is_variable, 0, (digits * places).sum(dim=1)),
        torch.where(is_variable, variable_of(tokens[:, 3]), -1),
    )


def follower(weight: Tensor) -> Callable[..., Tensor] | None:
    """Compiled code that follows the likelihood of targets, for weights like this one; None if there is none.

    See `ipagnn.ops.pointer.cpu.environment.follow` for its arguments.
    """
    from ipagnn.ops.pointer.cpu.environment import can_follow, follow

    return follow if can_follow(weight) else None


def plan_environment(graphs: Graphs, node_tokens: Tensor, target_variable: int = 0) -> EnvironmentPlan:
    """Work out what is computed when.

    Args:
        graphs: The graphs.
        node_tokens: Token ids of the statement at each node; none is masked. [node, token]
        target_variable: The variable that the output reads.
    """
    rows = graphs.plan(plan_rows)
    statements = read_statements(node_tokens[rows.node].cpu())
    operation, variable, operand, source = (getattr(statements, each.name).numpy() for each in fields(statements))
    program, true, false = (x.contiguous().cpu().numpy() for x in (rows.graph, *rows.target.unbind(dim=1)))
    branches = rows.edges[:, 1].contiguous().cpu().numpy()
    offsets, arrivals = (x.astype(np.int64) for x in build_arrivals(true, false, len(graphs)))
    steps = np.array(rows.step_offsets, np.int64)
    values, conditions, mixtures, row_condition, row_value = number_values(
        *(steps, operation, variable, operand, source, branches, WRITES, ASSIGN - OPERATION, statements.variables),
        *(offsets, arrivals),
    )
    kind, _, value_operand, value_input, _ = values
    mixture_of, _, mixture_offsets, _, argument_value = mixtures
    writes = WRITES[operation] & (variable == target_variable)
    reads, likelihood, asks = mark_needed(
        *(kind, value_input, value_operand, conditions[2], conditions[1]),
        *(mixture_of, mixture_offsets, argument_value, row_value, writes, true, false),
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
    found.append(bool((source >= 0).any()))
    found += [torch.from_numpy(each) for each in tensors]
    plan = EnvironmentPlan(*found)
    return plan.to(graphs.device)
