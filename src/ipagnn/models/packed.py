"""The packed execution: only the node-steps that can matter, all programs of the batch side by side (SPEC 6).

The rows of one step, over the whole batch, make one matrix product per LSTM layer and token. A row has at most two
successors, among the rows of the next step or the exits; the data side has worked out which (`Rows`). An exit needs no
row: its final state is the sum over everything that ever arrived, divided once.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ipagnn.data.contract import Rows
from ipagnn.models.cell import Dense, StatementRNN
from ipagnn.models.pointer import branch_decisions, divide


@dataclass(frozen=True, slots=True)
class Packed:
    """What the packed execution computed.

    Attributes:
        final: The state of each exit at the end. [program, 4 * hidden]
        mass: p of each row. [row]
        shares: Shares of the true and the false branch; (1, 0) where nothing is decided. [row, 2]
        states: h of each row, before it executes. [row, 4 * hidden]
        proposals: a of each row, after it executed. [row, 4 * hidden]
    """

    final: Tensor
    mass: Tensor
    shares: Tensor
    states: Tensor
    proposals: Tensor


def run_packed(
    cell: StatementRNN, branch: Dense | None, rows: Rows, programs: int, *, hard: bool = False, normalise: bool = True
) -> Packed:
    """Execute all rows.

    Args:
        cell: Executes a statement.
        branch: From the state after a statement to the logits of (true, false); None where rows decide nothing.
        rows: The plan.
        programs: Number of programs in the batch.
        hard: Decide by arg max.
        normalise: Divide arriving states by the mass that arrived. Rows that decide nothing carry all the mass, so for
            them the plain sum is exact and this should be False.

    Returns:
        The final states, and what happened on the way.
    """
    if not len(rows):  # no program has steps enough to reach its exit
        nothing = cell.zero_state(0)
        return Packed(cell.zero_state(programs), nothing[:, 0], nothing[:, :2], nothing, nothing)
    table = cell.table()
    # Edges come by destination, so those that arrive at one step's rows lie together: offsets once to the host.
    steps = rows.step_offsets
    edge_offsets: list[int] = rows.arrival_offsets[list(steps)].tolist()
    destination = torch.repeat_interleave(rows.arrival_offsets.diff())  # [edge]

    state = cell.zero_state(steps[1])
    mass = state.new_ones(steps[1])  # the rows of step 0 are the first statements
    masses: list[Tensor] = []
    shares: list[Tensor] = []
    states: list[Tensor] = []
    proposals: list[Tensor] = []
    for t in range(len(steps) - 1):
        here = slice(steps[t], steps[t + 1])
        proposal = cell(state, rows.tokens[here], table)  # equation 3
        if branch is None:
            share = proposal.new_tensor([1.0, 0.0]).expand(len(proposal), 2)
        else:
            share = branch_decisions(branch(proposal), rows.branches[here], hard=hard)  # equation 4
        masses.append(mass)
        shares.append(share)
        states.append(state)
        proposals.append(proposal)
        if t + 2 < len(steps):
            edges = slice(edge_offsets[t + 1], edge_offsets[t + 2])
            state, mass = _arrive(
                proposal,
                mass[:, None] * share,
                rows.arrivals[edges] - 2 * steps[t],
                destination[edges] - steps[t + 1],
                steps[t + 2] - steps[t + 1],
            )
            state = divide(state, mass) if normalise else state

    all_mass, all_shares, all_proposals = torch.cat(masses), torch.cat(shares), torch.cat(proposals)
    last = slice(edge_offsets[-1], None)
    final, arrived = _arrive(
        all_proposals, all_mass[:, None] * all_shares, rows.arrivals[last], destination[last] - steps[-1], programs
    )
    final = divide(final, arrived) if normalise else final
    return Packed(final, all_mass, all_shares, torch.cat(states), all_proposals)


def _arrive(
    proposals: Tensor, weights: Tensor, arrivals: Tensor, destination: Tensor, count: int
) -> tuple[Tensor, Tensor]:
    """Sums of p·b·a (equation 5) and of p·b (equation 6) at each of `count` destinations."""
    weight = weights.flatten()[arrivals]  # [edge]
    total = proposals.new_zeros(count, proposals.shape[1])
    mass = proposals.new_zeros(count)
    total = total.index_add(0, destination, weight[:, None] * proposals[arrivals // 2])
    return total, mass.index_add(0, destination, weight)
