"""What a model believes the value of each variable to be at each step, next to the true value."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from ipagnn._common.time_limit import check_time
from ipagnn.inference.loaded import LoadedModel
from ipagnn.languages.arithmetic import ControlFlowGraph, Program, trace
from ipagnn.languages.arithmetic.interpreter import trace_values
from ipagnn.languages.arithmetic.table_run import TableStep
from ipagnn.languages.arithmetic.vocabulary import MASK, MAX_VARIABLES, VARIABLE, variable_of

FILLED_STEPS: Final = 300
"""Steps that are kept of a program with masked lines, which takes another path with each filling of them."""
MOST_FILLINGS: Final = 1_000
MOST_BYTES: Final = 512 * 2**20
"""Beliefs that take more memory than this are not recorded."""

Floats = npt.NDArray[np.float32]
_EXIT: Final = -1


@dataclass(frozen=True, eq=False, slots=True)
class Beliefs:
    """The values of the variables before the first step and after each, as a model has them and as they are.

    Step t executes the line where control is after t - 1 steps. For a model with a soft pointer control is where most
    of the pointer is, and beliefs are mixed over nodes as the pointer is spread.

    Attributes:
        variables: The variables that the program mentions: k of vk.
        lines: Where control is after each step, counted from 0; -1 at the exit. int32 [step + 1]
        values: The likeliest value of each variable. int64 [step + 1, variable]
        probabilities: Its probability. Where control is hard, what the model gave it when it was written.
            float32 [step + 1, variable]
        true_lines: As `lines`, of the true trace; None for a program with masked lines. int32 [step + 1]
        true_values: The true values modulo the modulus; those at the end where the true trace is over. None for a
            program with masked lines. int64 [step + 1, variable]
    """

    variables: list[int]
    lines: npt.NDArray[np.int32] = field(repr=False)
    values: npt.NDArray[np.int64] = field(repr=False)
    probabilities: Floats = field(repr=False)
    true_lines: npt.NDArray[np.int32] | None = field(repr=False)
    true_values: npt.NDArray[np.int64] | None = field(repr=False)

    @property
    def differs(self) -> npt.NDArray[np.bool_]:
        """Which values are not the true ones; none where those are unknown. [step + 1, variable]"""
        if self.true_values is None:
            return np.zeros(self.values.shape, np.bool_)
        different: npt.NDArray[np.bool_] = self.values != self.true_values
        return different

    @property
    def parts(self) -> int | None:
        """The first step after which a value or the place of control is not the true one; None if there is none."""
        different = self.differs.any(axis=1)
        if self.true_lines is not None:
            different |= self.lines != self.true_lines
        return int(different.argmax()) if different.any() else None

    def to_dict(self) -> dict[str, Any]:
        """As JSON knows it."""
        return {
            "variables": self.variables,
            "lines": self.lines.tolist(),
            "values": self.values.tolist(),
            "probabilities": self.probabilities.astype(np.float64).round(4).tolist(),
            "true_lines": None if self.true_lines is None else self.true_lines.tolist(),
            "true_values": None if self.true_values is None else self.true_values.tolist(),
            "parts": self.parts,
        }


class Walk(NamedTuple):
    """What a model does on a program, over its tables or automata.

    Attributes:
        pointer: Weight of the fillings whose control is at each node; 1 at one node for a complete program.
            [step + 1, node]
        branch: Of this weight, the share that takes the true branch by the model's own probabilities. [step, node]
        ended: Whether all runs came to an end within the steps that are kept.
        beliefs: The values of the variables.
    """

    pointer: Floats
    branch: Floats
    ended: bool
    beliefs: Beliefs


def walk(program: Program, graph: ControlFlowGraph, chosen: LoadedModel, limit: int) -> Walk:
    """Follow a program over the tables or automata of a model, step by step.

    Args:
        program: The program; with masked lines it is followed for each filling of them.
        graph: Its control flow graph.
        chosen: A model that runs over one of them.
        limit: Steps to keep; with masked lines `FILLED_STEPS` at most.
    """
    assert chosen.unbounded is not None
    most = min(limit, FILLED_STEPS) if program.is_partial else limit
    runs, weights = [], []
    ended = True
    for filled, weight, run in chosen.unbounded.walks(program, MOST_FILLINGS):
        check_time()
        steps = list(islice(run, most + 1))
        ended = ended and len(steps) <= most
        runs.append(_spell(steps[:most], filled, len(steps) <= most))
        weights.append(weight)
    length = max(len(run.lines) for run in runs)
    lines = np.stack([_padded(run.lines, length) for run in runs])  # [filling, step + 1]
    values = np.stack([_padded(run.values, length) for run in runs])  # [filling, step + 1, variable]
    sure = np.stack([_padded(run.probabilities, length) for run in runs])
    holds = np.stack([_padded(run.holds, length) for run in runs])
    weight_of = np.array(weights)

    node_of = np.full(len(program) + 1, graph.exit)
    node_of[graph.nodes] = np.arange(graph.exit)
    nodes = node_of[lines]  # the last entry is the exit's, which is line -1
    pointer, true = np.zeros((2, length, len(graph)))
    at = np.broadcast_to(np.arange(length), nodes.shape)
    np.add.at(pointer, (at, nodes), weight_of[:, None])
    np.add.at(true, (at, nodes), weight_of[:, None] * np.nan_to_num(holds))
    decides = (graph.true != graph.false) & (pointer > 0)
    branch = np.where(decides, true / np.where(pointer > 0, pointer, 1), np.nan)[:-1]
    named = _variables(program)
    likeliest, probabilities = _mix(values[:, :, named], sure[:, :, named], weight_of)
    beliefs = _beside_truth(program, chosen, named, _likely_lines(pointer, graph), likeliest, probabilities)
    return Walk(pointer.astype(np.float32), branch.astype(np.float32), ended, beliefs)


def recorded_beliefs(program: Program, graph: ControlFlowGraph, chosen: LoadedModel, limit: int) -> Beliefs | None:
    """The beliefs of a model with a soft pointer; None if it records none, or they would take too much memory."""
    model = chosen.model
    if not {"pointer", "beliefs"} <= model.records:
        return None
    batch = model.collate([program])
    steps, named = int(batch.steps[0]), _variables(program)
    if 4 * (steps + 1) * len(graph) * (1 + max(named)) * chosen.grammar.modulus > MOST_BYTES:
        return None
    with torch.inference_mode():
        output = model(batch.to(next(model.parameters()).device), record=("pointer", "beliefs"))
    if output.recorded["beliefs"].axes[-1] != "value":
        return None
    pointer, beliefs = output["pointer"][: limit + 1], output["beliefs"][: limit + 1, :, named]
    mixed = torch.einsum("tn,tnvy->tvy", pointer, beliefs) / pointer.sum(dim=1)[:, None, None].clamp_min(1e-30)
    probabilities, values = mixed.max(dim=2)
    lines = _likely_lines(pointer.float().cpu().numpy(), graph)
    return _beside_truth(*(program, chosen, named, lines, values.cpu().numpy(), probabilities.float().cpu().numpy()))


class _Steps(NamedTuple):
    """A run, before the first step and after each; `holds` is the probability of the true branch."""

    lines: npt.NDArray[np.int32]
    values: npt.NDArray[np.int64]
    probabilities: Floats
    holds: Floats


def _spell(steps: list[TableStep], program: Program, ended: bool) -> _Steps:
    tokens = program.line_tokens
    length = len(steps)
    values = np.zeros((length + 1, MAX_VARIABLES), np.int64)
    sure = np.ones((length + 1, MAX_VARIABLES), np.float32)
    lines, holds = np.full(length + 1, _EXIT, np.int32), np.full(length + 1, np.nan, np.float32)
    for t, step in enumerate(steps):
        lines[t] = step.line
        values[t + 1, : len(step.values)], sure[t + 1] = step.values, sure[t]
        if step.branch is None:
            sure[t + 1, variable_of(int(tokens[step.line, 2]))] = step.probability
        else:
            holds[t] = step.probability if step.branch else 1 - step.probability
    if not ended:  # where the last step led is not known
        return _Steps(lines[:-1], values[:-1], sure[:-1], holds[:-1])
    return _Steps(lines, values, sure, holds)


def _padded(run: npt.NDArray[Any], length: int) -> npt.NDArray[Any]:
    """What stays as it was in the end."""
    return run[np.minimum(np.arange(length), len(run) - 1)]


def _mix(
    values: npt.NDArray[np.int64], sure: Floats, weights: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.int64], Floats]:
    """The likeliest value of each variable at each step over all fillings, and its probability."""
    if len(values) == 1:
        return values[0], sure[0]
    likeliest, probability = np.empty(values.shape[1:], np.int64), np.empty(values.shape[1:], np.float32)
    for at in np.ndindex(*values.shape[1:]):
        check_time()
        found, which = np.unique(values[(slice(None), *at)], return_inverse=True)
        share = np.bincount(which, weights * sure[(slice(None), *at)])
        likeliest[at], probability[at] = found[share.argmax()], share.max()
    return likeliest, probability


def _likely_lines(pointer: npt.NDArray[Any], graph: ControlFlowGraph) -> npt.NDArray[np.int32]:
    """The line where most of the pointer is; -1 for the exit. [step + 1]"""
    at: npt.NDArray[np.int32] = np.append(graph.nodes, _EXIT)[pointer.argmax(axis=1)].astype(np.int32)
    return at


def _variables(program: Program) -> list[int]:
    """The variables that a program mentions; v0 is the one of a masked line."""
    tokens = program.line_tokens[:, 2:4]
    return sorted({0, *map(variable_of, tokens[(tokens >= VARIABLE) & (tokens != MASK)].tolist())})


def _beside_truth(
    program: Program,
    chosen: LoadedModel,
    named: list[int],
    lines: npt.NDArray[np.int32],
    values: npt.NDArray[np.int64],
    probabilities: Floats,
) -> Beliefs:
    if program.is_partial:
        return Beliefs(named, lines, values, probabilities, None, None)
    moduli = chosen.grammar.modulus, chosen.grammar.condition_modulus
    wrap = chosen.grammar.wrap
    count = len(lines)
    true_lines = [step.line for step in trace(program, count, *moduli, wrap=wrap)]
    states: Iterator[tuple[int, ...]] = chain(
        [(0,) * MAX_VARIABLES], trace_values(program, count - 1, *moduli, wrap=wrap)
    )
    true_values = np.array(list(states), np.int64)[:, named]
    padded_lines = np.full(count, _EXIT, np.int32)
    padded_lines[: len(true_lines)] = true_lines
    return Beliefs(named, lines, values, probabilities, padded_lines, _padded(true_values, count))
