"""Execution of a model whose state is an environment: a belief in the value of every variable."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ipagnn.nn.values.base import Values
from ipagnn.ops.pointer.environment import EnvironmentPlan, Statements
from ipagnn.ops.pointer.equations import divide

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

    def score(belief: Tensor, program: Tensor) -> Tensor:
        """The probability of the target, or of each value, in each belief. [row, 1 or class]"""
        if target is None:
            return values.probabilities(belief)
        return values.likelihood(belief, target[program])[:, None]

    def compute(statements: Statements, pool: Tensor | None) -> tuple[Tensor, Tensor]:
        """Views of what is read later, and scores of what is asked."""
        if pool is None:
            belief = values.literal(statements.operand)
        else:
            belief = values.statement(statements.operation, statements.operand, pool[statements.reads])
        return values.view(belief[: statements.viewed]), score(belief[statements.asked], statements.program)

    start = values.known(plan.first_program.new_zeros(1))  # variables start at 0
    pool = values.view(start)
    joint = score(start.expand(len(plan.first_program), *start.shape[1:]), plan.first_program)  # p and v0 has the value
    mass = torch.ones_like(joint[:, 0])  # p
    literals, asked = compute(plan.literals, None)
    scores = torch.cat([joint.new_zeros(1, joint.shape[1]), asked])
    shares = torch.eye(1, 2, dtype=pool.dtype, device=pool.device)
    all_mass, all_shares, all_joint = [mass[:0]], [shares[:0]], [joint[:0]]
    edges, joint_edges, joined = mass[:0], joint[:0], 0
    for t, step in enumerate(plan.steps):
        if t:
            arriving = edges[step.arrivals]
            mass = mass.new_zeros(step.rows).index_add(0, step.target, arriving)  # equation 6
            joint = joint.new_zeros(step.rows, joint.shape[1]).index_add(0, step.target, joint_edges[step.arrivals])
            if step.mixtures:  # equation 5
                brought = pool[step.mixed_value]
                weight = arriving[step.mixed_edge].view(-1, *[1] * (brought.ndim - 1))
                total = brought.new_zeros(step.mixtures, *brought.shape[1:]).index_add(0, step.mixed, weight * brought)
                divided = divide(total.flatten(1), mass[step.mixed_target], SMALLEST_MASS)
                pool = torch.cat([pool, divided.view_as(total)])
        if len(step.condition_reads):  # equation 4
            decided = values.condition(step.condition_operation, step.condition_operand, pool[step.condition_reads])
            shares = torch.cat([shares, decided.softmax(dim=-1)])
        joining = [pool, literals[joined : joined + step.literals]]
        joined += step.literals
        if len(step.statements.operation):
            views, asked = compute(step.statements, pool)
            joining.append(views)
            scores = torch.cat([scores, asked])
        pool = torch.cat(joining)[step.keep]
        b = shares[step.row_condition]
        joint = joint * step.row_keeps[:, None] + mass[:, None] * scores[step.row_query]
        edges = (mass[:, None] * b).flatten()
        joint_edges = (joint[:, None] * b[:, :, None]).flatten(0, 1)
        all_mass.append(mass)
        all_shares.append(b)
        all_joint.append(joint_edges)
    total = joint.new_zeros(programs, joint.shape[1])
    total = total.index_add(0, plan.exit_program, torch.cat(all_joint)[plan.exits])
    return Executed(total, torch.cat(all_mass), torch.cat(all_shares))
