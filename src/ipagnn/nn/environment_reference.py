"""The equations of the environment IPA-GNN over all nodes and steps: the execution that others are compared with."""

import torch
from torch import Tensor

from ipagnn.data.contract import Batch
from ipagnn.languages.arithmetic.vocabulary import ASSIGN, OPERATION
from ipagnn.nn.environment import SMALLEST_MASS
from ipagnn.nn.message_passing import Edges
from ipagnn.nn.values.base import Values
from ipagnn.ops import WRITES, branch_decisions, divide, read_statements, two_edges


def run_environment_reference(
    values: Values, batch: Batch, target_variable: int, record: frozenset[str]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Follow the equations step by step; a program whose steps are over stands still.

    An exit is its own successor, so it keeps what it has by the same equations.

    Args:
        values: The representation of values.
        batch: Complete programs.
        target_variable: The variable whose value at the exit is predicted.
        record: `beliefs` are recorded only if they are asked for.

    Returns:
        The probability that arrives at the exit with each value [program, class]; and `pointer`, `branch` and
        `beliefs`.
    """
    nodes = torch.arange(len(batch.true), device=batch.true.device)
    is_exit, decides = batch.node_line < 0, batch.true != batch.false
    statements = read_statements(batch.node_tokens)
    operation, variable, operand = statements.operation, statements.variable, statements.operand
    source = statements.source
    writes = torch.from_numpy(WRITES).to(nodes.device)[operation] & ~is_exit
    scored = (writes & (variable == target_variable))[:, None]
    assigns = (operation == ASSIGN - OPERATION) & (source < 0)
    literal, arithmetic, branching = nodes[writes & assigns], nodes[writes & ~assigns], nodes[decides]
    edges = Edges.forwards(batch)
    origin, target, kind = edges.source.long(), edges.target.long(), edges.kind.long()

    literals = values.literal(operand[literal])
    variables = max(statements.variables, target_variable + 1)
    known = values.known(torch.zeros_like(nodes))
    h = torch.stack([known] * variables, dim=1)  # [node, variable, *belief]
    p = torch.zeros_like(values.probabilities(known)[:, 0]).index_fill(0, batch.starts.long(), 1.0)  # [node]
    joint = p[:, None] * values.probabilities(known)  # p, and v0 has this value. [node, class]
    pointer, branch, beliefs = [p], [], [h]
    for t in range(max(batch.steps.tolist(), default=0)):
        view = values.view(h[nodes, variable])
        right = values.operands(operand, source, values.view(h[nodes, source]))
        written = values.statement(operation[arithmetic], right[arithmetic], view[arithmetic])
        a = h.index_put((literal, variable[literal]), literals)
        a = a.index_put((arithmetic, variable[arithmetic]), written)  # equation 3
        logits = values.condition(operation[branching], right[branching], view[branching])
        logits = torch.zeros_like(joint[:, :2]).index_copy(0, branching, logits)
        b = branch_decisions(logits, two_edges(decides), hard=False)  # equation 4
        share = b[origin, kind]
        weight = p[origin] * share
        arrived = torch.zeros_like(p).index_add(0, target, weight)  # equation 6
        total = torch.zeros_like(h).index_add(0, target, weight.view(-1, *[1] * (h.ndim - 1)) * a[origin])
        mixed = divide(total.flatten(1), arrived, SMALLEST_MASS).view_as(h)  # equation 5
        after = torch.where(scored, p[:, None] * values.probabilities(a[:, target_variable]), joint)
        joined = torch.zeros_like(joint).index_add(0, target, share[:, None] * after[origin])
        running = (t < batch.steps)[batch.node_program.long()]
        h = torch.where(running.view(-1, *[1] * (h.ndim - 1)), mixed, h)
        p, joint = torch.where(running, arrived, p), torch.where(running[:, None], joined, joint)
        pointer.append(p)
        branch.append(torch.where(running & decides, b[:, 0], torch.nan))
        if "beliefs" in record:
            beliefs.append(h)
    found = {"pointer": torch.stack(pointer), "beliefs": torch.stack(beliefs)}
    found["branch"] = torch.stack(branch) if branch else p.new_zeros(0, len(p))
    return joint[batch.exits.long()], found
