"""Execution of environments at inference that follows only the pointer mass worth following."""

import torch
from torch import Tensor

from ipagnn.data.contract import Batch
from ipagnn.data.graphs import Graphs
from ipagnn.languages.arithmetic.vocabulary import ASSIGN, OPERATION
from ipagnn.nn.environment import SMALLEST_MASS
from ipagnn.nn.values.base import Values
from ipagnn.ops import walk
from ipagnn.ops.call import PointerCall
from ipagnn.ops.pointer.environment import WRITES, read_statements
from ipagnn.ops.pointer.equations import divide


def run_environment_pruned(
    values: Values, batch: Batch, graphs: Graphs, prune: float, record: frozenset[str], target_variable: int = 0
) -> tuple[Tensor, dict[str, Tensor]]:
    """Walk complete programs, whose states are beliefs in the values of their variables.

    A learned pointer is nearly discrete, so that few nodes of a program are left at each step.

    Args:
        values: The representation of values.
        batch: The programs.
        graphs: Their graphs.
        prune: Pointer mass below this that arrives at a node is dropped.
        record: Any of `pointer`, `branch` and `dropped`.
        target_variable: The variable that the output reads.

    Returns:
        The probability that arrives at the exit with v0 having each value [program, class], and what was recorded.
    """
    statements = read_statements(batch.node_tokens)
    operation, variable, operand = statements.operation, statements.variable, statements.operand
    is_exit = batch.node_line < 0
    writes = torch.from_numpy(WRITES).to(operation.device)[operation] & ~is_exit
    assigns, decides = (operation == ASSIGN - OPERATION) & (statements.source < 0), batch.true != batch.false

    known = values.known(torch.zeros_like(batch.exits).long())
    variables = max(statements.variables, target_variable + 1)
    shape = (variables, *known.shape[1:])
    size = known[0].numel() * variables

    def operands(node: Tensor, h: Tensor) -> Tensor:
        source = statements.source[node]
        return values.operands(operand[node], source, values.view(h[torch.arange(len(h), device=h.device), source]))

    def execute(state: Tensor, node: Tensor) -> Tensor:
        # Where little mass arrived, it was divided by a little more than that.
        h = state[:, :size].reshape(-1, *shape)
        h, v0 = (x / x.sum(dim=-1, keepdim=True) for x in (h, state[:, size:]))
        for chosen, literal in ((writes & assigns, True), (writes & ~assigns, False)):
            rows = chosen[node].nonzero().squeeze(1)
            if not len(rows):
                continue
            at = node[rows]
            if literal:
                written = values.literal(operand[at])
            else:
                right = operands(at, h[rows])
                written = values.statement(operation[at], right, values.view(h[rows, variable[at]]))
            h[rows, variable[at]] = written
            scored = variable[at] == target_variable
            v0[rows[scored]] = values.probabilities(written[scored])
        return torch.cat([h.flatten(1), v0], dim=1)

    def decide(state: Tensor, node: Tensor) -> Tensor:
        logits = state.new_zeros(len(node), 2)
        rows = decides[node].nonzero().squeeze(1)
        if len(rows):
            at = node[rows]
            h = state[rows, :size].reshape(-1, *shape)
            view = values.view(h[torch.arange(len(rows), device=rows.device), variable[at]])
            logits[rows] = values.condition(operation[at], operands(at, h), view)
        return logits

    # Beside the beliefs, the distribution of v0: of mixed digits it is not what these say each for itself.
    initial = torch.cat([known.flatten(1)] * variables + [values.probabilities(known)], dim=1)
    asked = record | {"exit_mass"}
    walked = walk(
        PointerCall(graphs=graphs, initial=initial, execute=execute, decide=decide, prune=prune, record=asked)
    )
    final = walked.final[:, size:]
    score = divide(final, final.sum(dim=1), SMALLEST_MASS) * walked.recorded["exit_mass"][:, None]
    return score, {name: found for name, found in walked.recorded.items() if name in record}
