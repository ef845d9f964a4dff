"""What the paper only looks at in figure 4, as numbers: how the instruction pointer moves, against the true trace."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ipagnn.data.contract import Batch
from ipagnn.languages.arithmetic._compiled.trace import trace_nodes
from ipagnn.languages.arithmetic.grammar import Grammar
from ipagnn.ops import steps_to_exit

DISCRETE: Final = 0.99
"""A branch decision is discrete if one branch gets more than this."""
ARRIVED: Final = 0.5
"""The pointer has reached the exit when at least this much of its mass is there."""

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class PointerMetrics:
    """What the pointer did on each program.

    Only node-steps count from which the exit can still be reached: what happens elsewhere cannot touch the result, and
    not every execution computes it.

    Attributes:
        decided: Pointer mass that met a branch decision, summed over steps: the expected number of decisions.
        discrete: The part of it that met a discrete decision.
        exit_mass: Mass at the exit in the end.
        exit_step: The first step after which the pointer has reached the exit; -1 if it never does.
        path_length: Statements on the path that takes the likelier branch at every decision; -1 if it does not end.
        path_prefix: Statements from the start on which that path and the true trace agree; -1 if the trace is unknown.
        path_exact: Whether the two are the same from start to exit.
    """

    decided: npt.NDArray[np.float64]
    discrete: npt.NDArray[np.float64]
    exit_mass: npt.NDArray[np.float64]
    exit_step: IntArray
    path_length: IntArray
    path_prefix: IntArray
    path_exact: npt.NDArray[np.bool_]

    def take(self, chosen: IntArray) -> Self:
        """The programs `chosen`, in that order."""
        return type(self)(*(getattr(self, field.name)[chosen] for field in fields(self)))

    @staticmethod
    def concatenate(parts: "Sequence[PointerMetrics]") -> "PointerMetrics":
        """Those of all `parts`, in order."""
        names = [field.name for field in fields(PointerMetrics)]
        return PointerMetrics(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def measure_pointer(pointer: Tensor, branch: Tensor, batch: Batch, grammar: Grammar, *, traced: bool) -> PointerMetrics:
    """Measure a recorded pointer.

    Args:
        pointer: As in `ipagnn.models.output`. [step + 1, node]
        branch: The same. [step, node]
        batch: The programs, on the CPU.
        grammar: Decides the true trace.
        traced: Whether the true traces are known, as of complete programs only.
    """
    steps, owner = batch.steps.long(), batch.node_program.long()
    to_exit = steps_to_exit(batch.graphs).long()
    device = pointer.device
    t = torch.arange(len(branch), device=device)[:, None]
    matters = t + to_exit.to(device) <= steps[owner].to(device)  # [step, node]
    decided = torch.where(matters & ~branch.isnan(), pointer[:-1], 0.0)
    discrete = torch.where(torch.maximum(branch, 1 - branch) > DISCRETE, decided, 0.0)

    def by_program(values: Tensor) -> npt.NDArray[np.float64]:
        total = torch.zeros(len(batch), dtype=torch.float64)
        return total.index_add_(0, owner, values.double().sum(dim=0).cpu()).numpy()

    at_exit = pointer[:, batch.exits.long().to(device)].cpu()  # [step + 1, program]
    last = steps.clamp(max=len(at_exit) - 1)
    arrived = (at_exit >= ARRIVED) & (torch.arange(len(at_exit))[:, None] <= steps)
    exit_step = torch.where(arrived.any(dim=0), arrived.int().argmax(dim=0), -1)
    path_length, path_prefix, path_exact = _follow(branch.cpu().numpy(), batch, to_exit.numpy(), grammar, traced)
    return PointerMetrics(
        decided=by_program(decided),
        discrete=by_program(discrete),
        exit_mass=at_exit.gather(0, last[None])[0].double().numpy(),
        exit_step=exit_step.numpy(),
        path_length=path_length,
        path_prefix=path_prefix,
        path_exact=path_exact,
    )


def _follow(
    branch: npt.NDArray[np.float32], batch: Batch, to_exit: IntArray, grammar: Grammar, traced: bool
) -> tuple[IntArray, IntArray, npt.NDArray[np.bool_]]:
    """Walk the path of likelier branches in all programs at once, beside their true traces."""
    true, false = batch.true.numpy(), batch.false.numpy()
    exits, steps = batch.exits.numpy(), batch.steps.numpy()
    node = batch.starts.numpy().copy()
    offsets, trace, lengths = _traces(batch, grammar) if traced else (None, None, None)
    walked = np.zeros(len(batch), np.int64)
    prefix = np.zeros(len(batch), np.int64)
    going, agrees = node != exits, np.ones(len(batch), np.bool_)
    for t in range(len(branch)):
        going &= t + to_exit[node] <= steps
        share = branch[t, node]
        going &= ~np.isnan(share) | (true[node] == false[node])  # a decision that was not computed ends the path
        if not going.any():
            break
        if offsets is not None and trace is not None and lengths is not None:
            held = np.minimum(offsets[:-1] + t, np.maximum(offsets[1:] - 1, 0))
            agrees &= ~going | ((t < np.diff(offsets)) & (trace[held] == node))
            prefix += going & agrees
        walked += going
        node = np.where(going, np.where(np.isnan(share) | (share >= 0.5), true[node], false[node]), node)
        going &= node != exits
    ended = node == exits
    length = np.where(ended, walked, -1)
    if lengths is None:
        return length, np.full(len(batch), -1, np.int64), np.zeros(len(batch), np.bool_)
    unknown = lengths < 0
    return length, np.where(unknown, -1, prefix), ended & (walked == lengths) & (prefix == lengths)


def _traces(batch: Batch, grammar: Grammar) -> tuple[IntArray, npt.NDArray[np.int32], IntArray]:
    """Offsets and nodes of the true traces as far as the steps go, one step further to see which are longer.

    Also their lengths: what is held, or -1 for a trace that cannot be followed.
    """
    tokens, true, false = batch.node_tokens.numpy(), batch.true.numpy(), batch.false.numpy()
    pieces, lengths = [], []
    bounds = batch.node_offsets.tolist()
    for first, end, steps in zip(bounds[:-1], bounds[1:], batch.steps.tolist(), strict=True):
        nodes, problem = trace_nodes(
            *(tokens[first:end], true[first:end], false[first:end], first),
            *(grammar.modulus, grammar.condition_modulus, steps + 1, grammar.wrap),
        )
        pieces.append(nodes)
        lengths.append(-1 if problem else len(nodes))
    offsets = np.concatenate([[0], np.cumsum([len(piece) for piece in pieces])]).astype(np.int64)
    return offsets, np.concatenate([*pieces, np.zeros(1, np.int32)]), np.array(lengths, np.int64)
