"""The algebra of the instruction pointer, shared by every execution of every model that has one."""

import torch
from torch import Tensor

EPSILON = 1e-7
"""Added to the mass that a state is divided by, as in the authors' release."""


def branch_decisions(logits: Tensor, edges: Tensor, *, hard: bool) -> Tensor:
    """Which share of a node's mass takes each of its edges (equation 4).

    Soft decisions are a softmax. Hard ones put everything on the largest logit (the first on a tie); their gradient is
    that of the soft ones (straight-through). Where nothing is decided, everything takes the one edge there is.

    Args:
        logits: Of the branch layer. [row, 2 or 3]
        edges: Which successors are edges; the first always is. [row, 2 or 3]
        hard: Decide by arg max.

    Returns:
        Shares of the successors. [row, 2 or 3]
    """
    logits = torch.where(edges, logits, -torch.inf)
    shares = logits.softmax(dim=-1)
    if hard:
        chosen = torch.zeros_like(shares).scatter_(1, logits.argmax(dim=1, keepdim=True), 1.0)
        shares = chosen + (shares - shares.detach())
    return shares


def two_edges(decides: Tensor) -> Tensor:
    """Edges of nodes that have a second one where they decide. [row] -> [row, 2]"""
    return torch.stack([torch.ones_like(decides), decides], dim=1)


def spread(weight: Tensor, values: Tensor) -> Tensor:
    """A weight for each row, shaped for a product with the values of rows. [row, 1, ...]"""
    return weight.reshape(*weight.shape, *[1] * (values.ndim - weight.ndim))


def divide(total: Tensor, mass: Tensor, epsilon: float = EPSILON) -> Tensor:
    """The state that arrives, from the sum of p·b·a and the sum of p·b.

    Where no mass arrives the sum is 0 and so is the state; it is then not divided at all, since 1 / 1e-7 would only
    blow up the gradient of decisions that a hard pointer did not take.

    Shapes:
        total [..., *state], mass [...] -> [..., *state]
    """
    return total / spread(torch.where(mass > 0, mass + epsilon, torch.ones_like(mass)), total)
