"""Execution at inference that follows only the pointer mass worth following.

Long programs have thousands of steps, most of which see next to no mass: it has reached the exit, or is a trickle left
over in some loop. Here the rows of a step are those nodes where enough mass has just arrived, found as execution goes,
so that no plan is needed, and everything ends when nothing is left to follow. Any cell and any state will do.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ipagnn.data.graphs import edge_mask, node_graph
from ipagnn.ops.call import PointerCall, Result
from ipagnn.ops.pointer.equations import branch_decisions, divide, spread
from ipagnn.ops.pointer.streaming.plan import steps_to_exit


@dataclass(frozen=True, slots=True)
class Frontier:
    """The rows of one step, kept where they are to be recorded.

    Attributes:
        node, mass, shares: Node, p, and the shares of its successors. [row], [row], [row, 2 or 3]
        absorbed: Mass that has reached each exit before the step. [graph]
    """

    node: Tensor
    mass: Tensor
    shares: Tensor
    absorbed: Tensor


def refuses(call: PointerCall) -> str | None:
    """Calls that prune nothing, gradients, and what is known of rows alone."""
    if not call.prune:
        return "it follows what pruning leaves, and nothing is pruned"
    if call.grad:
        return "it has no gradients; compute them without pruning, or call it under torch.no_grad()"
    return "it does not record states" if "states" in call.record else None


@torch.no_grad()
def run(call: PointerCall) -> Result:
    """Execute while mass of at least `prune` arrives where the exit can be reached in time; equations 3 to 6.

    What is recorded has as many steps as were taken, which may be fewer than the graphs have.
    """
    from ipagnn.ops.pointer.cpu.statement import compile_execute

    graphs = call.graphs
    program, edges, execute = node_graph(graphs), edge_mask(graphs), compile_execute(call)
    last = graphs.steps[program] - steps_to_exit(graphs)  # the last step at which a node can matter
    exits, successors = graphs.exits.long(), graphs.successors.long()
    inner = torch.ones_like(edges[:, 0]).index_fill(0, exits, False)
    at_exit = ~inner[graphs.start.long()]
    final, absorbed = torch.where(spread(at_exit, call.initial), call.initial, 0.0), at_exit.to(call.initial.dtype)
    dropped = torch.zeros_like(absorbed)

    begins = (~at_exit & (last[graphs.start.long()] >= 0)).nonzero().squeeze(1)
    node, state = graphs.start.long()[begins], call.initial[begins]
    mass = absorbed.new_ones(len(node))
    frontiers: list[Frontier] = []
    drawn = bool(call.record & {"pointer", "branch"})
    t = 0
    while len(node):
        proposal = execute(state, node)  # equation 3
        logits = proposal.new_zeros(len(node), edges.shape[1]) if call.decide is None else call.decide(proposal, node)
        shares = branch_decisions(logits, edges[node], hard=call.hard)  # equation 4
        if drawn:
            frontiers.append(Frontier(node, mass, shares, absorbed.clone()))
        sides = [edges[node, side].nonzero().squeeze(1) for side in range(edges.shape[1])]
        source = torch.cat(sides)  # [edge]
        target = torch.cat([successors[node[rows], side] for side, rows in enumerate(sides)])
        weight = torch.cat([mass[rows] * shares[rows, side] for side, rows in enumerate(sides)])
        arrived = mass.new_zeros(graphs.nodes).index_add_(0, target, weight)  # equation 6
        absorbed += arrived[exits]
        t += 1
        in_time = inner & (t <= last)
        followed = in_time & (arrived >= call.prune)
        dropped.index_add_(0, program, torch.where(in_time & ~followed, arrived, 0.0))

        # Destinations: the nodes followed, then all exits.
        node = followed.nonzero().squeeze(1)
        slot = torch.full_like(program, -1)
        slot[node] = torch.arange(len(node), device=node.device)
        slot[exits] = torch.arange(len(graphs), device=node.device) + len(node)
        arrives = (slot[target] >= 0).nonzero().squeeze(1)
        contributions = spread(weight[arrives], proposal) * proposal[source[arrives]]
        total = contributions.new_zeros(len(node) + len(graphs), *state.shape[1:])
        total.index_add_(0, slot[target[arrives]], contributions)  # equation 5
        state, mass = total[: len(node)], arrived[node]
        final = final + total[len(node) :]
        state = divide(state, mass) if call.normalise else state
    final = divide(final, absorbed) if call.normalise else final
    recorded = {name: x for name, x in (("dropped", dropped), ("exit_mass", absorbed)) if name in call.record}
    return Result(final, recorded | (_record(call, frontiers, absorbed, edges) if drawn else {}))


def _record(call: PointerCall, frontiers: list[Frontier], absorbed: Tensor, edges: Tensor) -> dict[str, Tensor]:
    """Pointer and branch decisions, for as many steps as were taken."""
    steps, exits = len(frontiers), call.graphs.exits.long()
    pointer = absorbed.new_zeros(steps + 1, call.graphs.nodes)
    branch = absorbed.new_full((steps, call.graphs.nodes), torch.nan)
    for t, frontier in enumerate(frontiers):
        pointer[t, exits] = frontier.absorbed
        pointer[t, frontier.node] = frontier.mass
        decides = edges[frontier.node, 1:].any(dim=1)
        branch[t, frontier.node] = torch.where(decides, frontier.shares[:, 0], torch.nan)
    pointer[steps, exits] = absorbed
    found = {"pointer": pointer, "branch": branch}
    return {name: found[name] for name in call.record & found.keys()}
