"""Execution at inference that follows only the pointer mass worth following.

Long programs have thousands of steps, most of which see next to no mass: it has reached the exit, or is a trickle left
over in some loop. Here the rows of a step are those nodes where enough mass has just arrived, found as execution goes,
so that no plan is needed, and everything ends when nothing is left to follow.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ipagnn.data.contract import Batch
from ipagnn.nn.cell import Dense, StatementRNN
from ipagnn.ops.pointer.equations import branch_decisions, divide, two_edges


@dataclass(frozen=True, slots=True)
class Frontier:
    """The rows of one step, kept where a trace is wanted.

    Attributes:
        node, mass, shares: Node, p, and the shares of the true and the false branch. [row], [row], [row, 2]
        absorbed: Mass that has reached each exit before the step. [program]
    """

    node: Tensor
    mass: Tensor
    shares: Tensor
    absorbed: Tensor


@dataclass(frozen=True, slots=True)
class Pruned:
    """What the pruned execution computed.

    Attributes:
        final: The state of each exit at the end. [program, 4 * hidden]
        absorbed: Mass that reached each exit. [program]
        dropped: Mass that was not followed. [program]
        rows: Node-steps computed.
        frontiers: One for each step, if asked for.
    """

    final: Tensor
    absorbed: Tensor
    dropped: Tensor
    rows: int
    frontiers: list[Frontier] = field(default_factory=list)


@torch.no_grad()
def run_pruned(
    cell: StatementRNN,
    branch: Dense,
    batch: Batch,
    *,
    prune: float,
    hard: bool = False,
    normalise: bool = True,
    keep: bool = False,
) -> Pruned:
    """Execute while mass of at least `prune` arrives somewhere; equations 3 to 6.

    Args:
        cell: Executes a statement.
        branch: From the state after a statement to the logits of (true, false).
        batch: The programs; its rows are not looked at.
        prune: Less mass than this arriving at a node is dropped there.
        hard: Decide by arg max.
        normalise: Divide arriving states by the mass that arrived.
        keep: Keep the frontiers.
    """
    table = cell.table()
    true, false, tokens, program = batch.true.long(), batch.false.long(), batch.node_tokens, batch.node_program.long()
    exits, steps = batch.exits.long(), batch.steps
    decides = true != false
    inner = torch.ones_like(decides).index_fill(0, exits, False)
    final, absorbed = cell.zero_state(len(batch)), table.new_zeros(len(batch))
    dropped = torch.zeros_like(absorbed)

    node = batch.starts.long()
    node = node[inner[node] & (steps > 0)]
    state, mass = cell.zero_state(len(node)), table.new_ones(len(node))
    frontiers: list[Frontier] = []
    t, rows = 0, 0
    while len(node):
        proposal = cell(state, tokens[node], table)  # equation 3
        shares = branch_decisions(branch(proposal), two_edges(decides[node]), hard=hard)  # equation 4
        if keep:
            frontiers.append(Frontier(node, mass, shares, absorbed.clone()))
        rows += len(node)
        two = decides[node].nonzero().squeeze(1)
        source = torch.cat([torch.arange(len(node), device=node.device), two])  # [edge]
        target = torch.cat([true[node], false[node[two]]])
        weight = torch.cat([mass * shares[:, 0], mass[two] * shares[two, 1]])
        arrived = table.new_zeros(len(true)).index_add_(0, target, weight)  # equation 6
        absorbed += arrived[exits]
        followed = inner & (arrived >= prune)
        dropped.index_add_(0, program, torch.where(inner & ~followed, arrived, 0.0))
        t += 1
        followed &= (t < steps)[program]

        # Destinations: the nodes followed, then all exits.
        node = followed.nonzero().squeeze(1)
        slot = torch.full_like(true, -1)
        slot[node] = torch.arange(len(node), device=node.device)
        slot[exits] = torch.arange(len(batch), device=node.device) + len(node)
        arrives = (slot[target] >= 0).nonzero().squeeze(1)
        contributions = weight[arrives, None] * proposal[source[arrives]]
        total = table.new_zeros(len(node) + len(batch), state.shape[1])
        total.index_add_(0, slot[target[arrives]], contributions)  # equation 5
        state, mass = total[: len(node)], arrived[node]
        final += total[len(node) :]
        state = divide(state, mass) if normalise else state
    final = divide(final, absorbed) if normalise else final
    return Pruned(final, absorbed, dropped, rows, frontiers)


def trace_pruned(pruned: Pruned, batch: Batch) -> dict[str, Tensor]:
    """The fields `pointer` and `branch` of an output, for as many steps as were taken."""
    steps, nodes = len(pruned.frontiers), len(batch.true)
    pointer = pruned.absorbed.new_zeros(steps + 1, nodes)
    branch = pruned.absorbed.new_full((steps, nodes), torch.nan)
    exits = batch.exits.long()
    for t, frontier in enumerate(pruned.frontiers):
        pointer[t, exits] = frontier.absorbed
        pointer[t, frontier.node] = frontier.mass
        decides = (batch.true != batch.false)[frontier.node]
        branch[t, frontier.node] = torch.where(decides, frontier.shares[:, 0], torch.nan)
    pointer[steps, exits] = pruned.absorbed
    return {"pointer": pointer, "branch": branch}
