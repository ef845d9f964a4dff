"""Execution of a model whose state is an environment: a belief in the value of every variable."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from ipagnn.nn.values.base import Values
from ipagnn.ops import EnvironmentPlan, divide, spread

SMALLEST_MASS = 1e-30
"""Added to the mass that beliefs are divided by: as small as can be, so that they stay distributions."""


@dataclass(frozen=True, slots=True)
class Executed:
    """What an execution gives.

    Attributes:
        score: Probability that arrives at the exit with v0 having the target, or any value. [program, 1 or class]
        mass: p of each row. [row]
        shares: Shares of the true and the false branch of each row. [row, 2]
    """

    score: Tensor
    mass: Tensor
    shares: Tensor


def run_environment(values: Values, plan: EnvironmentPlan, programs: int, target: Tensor | None = None) -> Executed:
    """Follow a plan.

    Args:
        values: The representation of values.
        plan: What is computed when.
        programs: Number of programs.
        target: Of each program. If given, only the probability of this value is followed; otherwise that of each.
    """
    operation, operand = plan.pair_operation, plan.pair_operand
    offsets, query_offsets = plan.arrival_offsets.tolist(), plan.query_offsets.tolist()
    target_row = torch.repeat_interleave(plan.arrival_offsets.diff())  # where each edge arrives
    mixture_of = torch.repeat_interleave(plan.mixture_offsets.diff())
    arguments = plan.mixture_offsets.tolist()
    asked_of = torch.repeat_interleave(plan.query_offsets.diff())

    def score(belief: Tensor, program: Tensor) -> Tensor:
        """The probability of the target, or of each value, in each belief. [row, 1 or class]"""
        if target is None:
            return values.probabilities(belief)
        return values.likelihood(belief, target[program])[:, None]

    def operand_of(pair: Tensor) -> Tensor:
        """Numbers; or the views of operands, where some are variables. [row], or [row, *view]"""
        if not plan.variable_operands:
            return operand[pair]
        source = -1 - operand[pair]
        return values.operands(operand[pair].clamp_min(0), source, pool[source.clamp_min(0)])

    def asked(belief: Tensor, first: int) -> Tensor:
        """The scores that are asked of what is written, from the one with number `first` on. [query, 1 or class]"""
        queries = slice(query_offsets[first], query_offsets[first + len(belief)])
        return score(belief[asked_of[queries] - first], plan.query_program[queries])

    rows = plan.steps[-1]
    first_program = plan.row_program[: plan.steps[1] if rows else 0]
    known = values.known(first_program.new_zeros(1))  # variables start at 0
    joint = score(known.expand(len(first_program), *known.shape[1:]), first_program)  # p and v0 has the value
    mass = torch.ones_like(joint[:, 0])  # p
    belief = values.literal(operand[: plan.literals])
    pool = torch.cat([values.view(known), values.view(belief[: plan.viewed_literals])])
    scores = torch.cat([joint.new_zeros(1, joint.shape[1]), asked(belief, 0)])
    shares = torch.eye(1, 2, dtype=pool.dtype, device=pool.device)
    all_mass, all_shares, all_joint = [mass[:0]], [shares[:0]], [joint[:0]]
    edges, joint_edges = mass[:0], joint[:0]
    for t, (first, last) in enumerate(pairwise(plan.steps)):
        if t:
            arriving = slice(offsets[first], offsets[last])
            source, row = plan.arrivals[arriving] - 2 * plan.steps[t - 1], target_row[arriving] - first
            mass = mass.new_zeros(last - first).index_add(0, row, edges[source])  # equation 6
            joint = joint.new_zeros(last - first, joint.shape[1]).index_add(0, row, joint_edges[source])
            mixed = slice(plan.mixtures[t], plan.mixtures[t + 1])
            if mixed.stop > mixed.start:  # equation 5
                chosen = slice(arguments[mixed.start], arguments[mixed.stop])
                brought = pool[plan.argument_view[chosen]]
                weight = edges[plan.arrivals[plan.argument_edge[chosen]] - 2 * plan.steps[t - 1]]
                total = pool.new_zeros(mixed.stop - mixed.start, *pool.shape[1:])
                total = total.index_add(0, mixture_of[chosen] - mixed.start, spread(weight, brought) * brought)
                pool = torch.cat([pool, divide(total, mass[plan.mixture_row[mixed] - first], SMALLEST_MASS)])
        chosen = slice(plan.conditions[t], plan.conditions[t + 1])
        if chosen.stop > chosen.start:  # equation 4
            pair = plan.condition_pair[chosen]
            decided = values.condition(operation[pair], operand_of(pair), pool[plan.condition_reads[chosen]])
            shares = torch.cat([shares, decided.softmax(dim=-1)])
        chosen = slice(plan.statements[t], plan.statements[t + 1])
        if chosen.stop > chosen.start:  # equation 3
            pair = plan.statement_pair[chosen]
            belief = values.statement(operation[pair], operand_of(pair), pool[plan.statement_reads[chosen]])
            scores = torch.cat([scores, asked(belief, plan.literals + chosen.start)])
            pool = torch.cat([pool, values.view(belief[: plan.viewed[t]])])
        b = shares[plan.row_condition[first:last] + 1]
        kept = torch.where(plan.row_writes[first:last, None], 0.0, joint)
        joint = kept + mass[:, None] * scores[plan.row_query[first:last] + 1]
        edges = (mass[:, None] * b).flatten()
        joint_edges = (joint[:, None] * b[:, :, None]).flatten(0, 1)
        all_mass.append(mass)
        all_shares.append(b)
        all_joint.append(joint_edges)
    at_exit = slice(offsets[rows], None)
    total = joint.new_zeros(programs, joint.shape[1])
    total = total.index_add(0, target_row[at_exit] - rows, torch.cat(all_joint)[plan.arrivals[at_exit]])
    return Executed(total, torch.cat(all_mass), torch.cat(all_shares))
