"""The algebra of the instruction pointer, shared by every execution of every model that has one."""

import torch
from torch import Tensor

EPSILON = 1e-7
"""Added to the mass that a state is divided by, as in the authors' release."""


def branch_decisions(logits: Tensor, branches: Tensor, *, hard: bool) -> Tensor:
    """Which share of a node's mass takes the true and the false branch (equation 4).

    Soft decisions are a softmax. Hard ones put everything on the larger logit (the true branch on a tie); their
    gradient is that of the soft ones (straight-through). Where nothing is decided, everything takes the one edge there
    is.

    Args:
        logits: Of the branch layer. [row, 2]
        branches: Whether a row decides at all. [row]
        hard: Decide by arg max.

    Returns:
        Shares of the true and the false branch. [row, 2]
    """
    shares = logits.softmax(dim=-1)
    if hard:
        chosen = torch.zeros_like(shares).scatter_(1, logits.argmax(dim=1, keepdim=True), 1.0)
        shares = chosen + (shares - shares.detach())
    one = torch.eye(1, 2, dtype=shares.dtype, device=shares.device)  # made there: nothing is copied from the host
    return torch.where(branches[:, None], shares, one)


def divide(total: Tensor, mass: Tensor) -> Tensor:
    """The state that arrives, from the sum of p·b·a and the sum of p·b.

    Where no mass arrives the sum is 0 and so is the state; it is then not divided at all, since 1 / 1e-7 would only
    blow up the gradient of decisions that a hard pointer did not take.

    Shapes:
        total [..., state], mass [...] -> [..., state]
    """
    return total / torch.where(mass > 0, mass + EPSILON, torch.ones_like(mass))[..., None]
