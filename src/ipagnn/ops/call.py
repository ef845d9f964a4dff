"""What executions along an instruction pointer are given, and what all executions return."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ipagnn.data.graphs import Graphs

STATE_PARTS = 4
"""A state of a statement LSTM is (c1, h1, c2, h2): memory and output of both layers, hidden numbers each."""

Execute = Callable[[Tensor, Tensor], Tensor]
"""From the states before nodes [row, *state] and the nodes [row] to the states after them."""
Decide = Callable[[Tensor, Tensor], Tensor]
"""From the states after nodes [row, *state] and the nodes [row] to the logits of their successors [row, 2 or 3]."""


@dataclass(frozen=True, slots=True)
class StatementLSTM:
    """The weights of the two-layer LSTM over the tokens of statements, for which there are compiled executions.

    Attributes:
        tokens: Token ids of the statement at each node. int32 [node, 4]
        embedding: [token, hidden]
        input_1, hidden_1, input_2, hidden_2: [hidden, 4 * hidden]
        bias_1, bias_2: [4 * hidden]
        branch_weight, branch_bias: From a state to the logits of its two successors; None where nothing is decided.
            [4 * hidden, 2], [2]
    """

    tokens: Tensor
    embedding: Tensor
    input_1: Tensor
    hidden_1: Tensor
    bias_1: Tensor
    input_2: Tensor
    hidden_2: Tensor
    bias_2: Tensor
    branch_weight: Tensor | None = None
    branch_bias: Tensor | None = None

    @property
    def hidden(self) -> int:
        """H."""
        return len(self.hidden_1)

    def table(self, tokens: Tensor | None = None) -> Tensor:
        """What tokens add to the gates of layer 1; of all tokens if none are given. [token, 4 * hidden]"""
        embedding = self.embedding if tokens is None else self.embedding.index_select(0, tokens)
        return embedding @ self.input_1 + self.bias_1


@dataclass(frozen=True, slots=True, kw_only=True)
class PointerCall:
    """A walk of an instruction pointer over graphs.

    Attributes:
        graphs: The graphs.
        initial: The state at the start of each graph. [graph, *state]
        execute: The cell; equation 3.
        decide: The branch layer; None where nothing is decided. Equation 4.
        hard: Decide by arg max.
        normalise: Divide arriving states by the mass that arrived.
        prune: At inference, less mass than this arriving at a node is dropped.
        record: Any of `pointer`, `branch`, `states`, `dropped` and `exit_mass`, what reached each exit.
        lstm: The weights behind `execute` and `decide`, if they are a statement LSTM and a Dense layer.
        grad: Whether gradients will be asked for.
    """

    graphs: Graphs
    initial: Tensor
    execute: Execute
    decide: Decide | None
    hard: bool = False
    normalise: bool = True
    prune: float = 0.0
    record: frozenset[str] = frozenset()
    lstm: StatementLSTM | None = None
    grad: bool = field(default_factory=torch.is_grad_enabled)


@dataclass(frozen=True, slots=True)
class Result:
    """What an execution returns.

    Attributes:
        final: The state of each exit after the last step. [graph, *state]
        recorded: What was asked for, by name.
    """

    final: Tensor
    recorded: dict[str, Tensor]


class Series:
    """A recorded quantity, step by step.

    Without gradients all steps are written into one tensor. A small tensor kept for each step would lie between the
    large ones that a step frees, which then cannot be used again: in a walk of 1,700 steps that takes 300 MB.

    Args:
        steps: How many values will come.
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._values: list[Tensor] = []
        self._whole: Tensor | None = None
        self._count = 0

    def add(self, value: Tensor) -> None:
        """The value of the next step."""
        if torch.is_grad_enabled():
            self._values.append(value)
            return
        if self._whole is None:
            self._whole = value.new_empty(self._steps, *value.shape)
        self._whole[self._count] = value
        self._count += 1

    def stacked(self, nodes: Tensor) -> Tensor:
        """All values [step, node, ...]; `nodes` has the type and the number of nodes, should there be no value."""
        if self._values:
            return torch.stack(self._values)
        return nodes.new_empty(0, len(nodes)) if self._whole is None else self._whole
