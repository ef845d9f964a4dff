"""Control, in the paper's table: by an instruction pointer, or by none."""

from typing import Literal

import torch
from torch import Tensor

from ipagnn.data.contract import Batch
from ipagnn.nn.cell import Dense
from ipagnn.nn.message_passing import Control, Edges, is_exit
from ipagnn.ops import STATE_PARTS, branch_decisions, divide, two_edges


class InstructionPointer(Control):
    """Control of the IPA-GNN: a message weighs what pointer and branch decision say, p·b.

    Args:
        hidden: Width of a state part.
        generator: Draws the branch layer.
        hard: Decide by arg max, as the Hard IP-RNN does.
        normalise: Divide by the mass that arrived.
        exit_keeps: The exit keeps its state, and what arrives is added to it, as in the IPA-GNN. If not, its edge to
            itself is like any other, and the GRU does the keeping.
    """

    def __init__(
        self, hidden: int, generator: torch.Generator, *, normalise: bool, exit_keeps: bool, hard: bool = False
    ) -> None:
        super().__init__()
        self.normalise, self.exit_keeps, self.hard = normalise, exit_keeps, hard
        self.branch = Dense(STATE_PARTS * hidden, 2, generator)

    def edges(self, batch: Batch) -> Edges:
        """N_in."""
        return Edges.forwards(batch)

    def gather(self, messages: Tensor, a: Tensor, p: Tensor, batch: Batch, edges: Edges) -> tuple[Tensor, ...]:
        """The sum of p·b·a over N_in."""
        b = branch_decisions(self.branch(a), two_edges(batch.true != batch.false), hard=self.hard)  # equation 4
        weight = p[edges.source] * b[edges.source, edges.kind]  # p_{t-1,n'} · b_{t,n',n}
        arrived = torch.zeros_like(p).index_add(0, edges.target, weight)  # equation 6
        if self.exit_keeps:  # what it keeps is no message
            weight = torch.where(is_exit(batch)[edges.source], 0.0, weight)
        total = torch.zeros_like(a).index_add(0, edges.target, weight[:, None] * messages)  # equation 5
        proposal = divide(total, arrived) if self.normalise else total
        if self.exit_keeps:  # the plain sum of what arrived until the end, when `final` divides it once
            proposal = torch.where(is_exit(batch)[:, None], a + total, proposal)
        return proposal, arrived, b

    def final(self, h: Tensor, p: Tensor, batch: Batch) -> Tensor:
        """The state at each exit, divided by the mass there if it is a sum so far. [program, state]"""
        if self.exit_keeps and self.normalise:
            return divide(h[batch.exits], p[batch.exits])
        return h[batch.exits]


class Neighbours(Control):
    """Control of the GGNN: messages along every edge, by default in both directions, with weight 1.

    Args:
        divisor: What sums are divided by. `root` is the GGNN's sqrt(2 + in-degree). `mass` is the rule of the IPA-GNN,
            the sum of the weights, which with weights of 1 is the number of messages: where no GRU bounds them, states
            divided by the root still grow with every step. `one` is the literal sum.
        bidirectional: Also against the edges.
    """

    def __init__(self, divisor: Literal["root", "mass", "one"], *, bidirectional: bool = True) -> None:
        super().__init__()
        self.divisor, self.bidirectional = divisor, bidirectional

    def edges(self, batch: Batch) -> Edges:
        """N_all, or N_in."""
        return Edges.bidirectional(batch) if self.bidirectional else Edges.forwards(batch)

    def gather(self, messages: Tensor, a: Tensor, p: Tensor, batch: Batch, edges: Edges) -> tuple[Tensor, ...]:
        """The sum over the neighbours."""
        total = torch.zeros_like(a).index_add(0, edges.target, messages)
        nothing_decided = torch.full_like(a[:, :2], torch.nan)
        if self.divisor == "root":
            in_degree = torch.zeros_like(p).index_add(0, edges.target, (edges.kind < 2).to(p.dtype))
            total = total / (2 + in_degree).sqrt()[:, None]
        elif self.divisor == "mass":
            total = divide(total, torch.zeros_like(p).index_add(0, edges.target, torch.ones_like(messages[:, 0])))
        return total, p, nothing_decided

    def final(self, h: Tensor, p: Tensor, batch: Batch) -> Tensor:
        """The state at each exit. [program, state]"""
        return h[batch.exits]
