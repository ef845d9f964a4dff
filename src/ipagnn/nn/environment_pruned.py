"""Execution of environments at inference that follows only the pointer mass worth following."""

import torch
from torch import Tensor

from ipagnn.data.contract import Batch
from ipagnn.data.graphs import Graphs
from ipagnn.languages.arithmetic.vocabulary import ASSIGN, OPERATION
from ipagnn.nn.environment import SMALLEST_MASS
from ipagnn.nn.values.base import Values
from ipagnn.ops import WRITES, PointerCall, divide, read_statements, walk


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
    start, variables = values.view(known), max(statements.variables, target_variable + 1)
    shape = (variables, *start.shape[1:])
    size = start[0].numel() * variables

    def views(state: Tensor) -> Tensor:
        """Of all variables. [row, variable, *view]"""
        return state[:, :size].reshape(-1, *shape)

    def operands(node: Tensor, h: Tensor) -> Tensor:
        source = statements.source[node]
        return values.operands(operand[node], source, h[torch.arange(len(h), device=h.device), source])

    def execute(state: Tensor, node: Tensor) -> Tensor:
        # Where little mass arrived, it was divided by a little more than that.
        state = state / state[:, -1:]
        h, v0 = views(state), state[:, size:-1]
        for chosen, literal in ((writes & assigns, True), (writes & ~assigns, False)):
            rows = chosen[node].nonzero().squeeze(1)
            if not len(rows):
                continue
            at = node[rows]
            if literal:
                written = values.literal(operand[at])
            else:
                written = values.statement(operation[at], operands(at, h[rows]), h[rows, variable[at]])
            h[rows, variable[at]] = values.view(written)
            scored = variable[at] == target_variable
            v0[rows[scored]] = values.probabilities(written[scored])
        return state

    def decide(state: Tensor, node: Tensor) -> Tensor:
        logits = state.new_zeros(len(node), 2)
        rows = decides[node].nonzero().squeeze(1)
        if len(rows):
            at, h = node[rows], views(state[rows])
            view = h[torch.arange(len(rows), device=rows.device), variable[at]]
            logits[rows] = values.condition(operation[at], operands(at, h), view)
        return logits

    # The views of all variables; the distribution of v0, which of mixed digits is not what these say each for itself;
    # and a 1, which becomes the mass that beliefs were divided by too little of.
    one = start.new_ones(len(start), 1)
    initial = torch.cat([start.flatten(1)] * variables + [values.probabilities(known), one], dim=1)
    asked = record | {"exit_mass"}
    walked = walk(
        PointerCall(graphs=graphs, initial=initial, execute=execute, decide=decide, prune=prune, record=asked)
    )
    score = divide(walked.final[:, size:-1], walked.final[:, -1], SMALLEST_MASS)
    score = score * walked.recorded["exit_mass"][:, None]
    return score, {name: found for name, found in walked.recorded.items() if name in record}
