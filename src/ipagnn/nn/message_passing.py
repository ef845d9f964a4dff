"""The paper's table of message passing models: five lines, each written in one of two ways.

    line         IPA-GNN              NoControl            NoExecute         GGNN              who
    h_{0,n}      0                    0                    Embed(x_n)        Embed(x_n)        execution.start
    a1_{t,n}     RNN(h, Embed(x_n))   RNN(h, Embed(x_n))   h                 h                 execution.execute
    a2_{t,n,n'}  p·b · a1             1 · a1               p·b · Dense(a1)   1 · Dense(a1)     control, execution
    h~_{t,n}     sum over N_in        sum over N_all       sum over N_in     sum over N_all    control.gather
    h_{t,n}      h~                   h~                   GRU(h, h~)        GRU(h, h~)        execution.update

`control.py` and `execution.py` hold the two ways; a model chooses one of each, and `models.MessagePassing` runs them.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ipagnn.data.contract import Batch
from ipagnn.nn.cell import StatementRNN

EDGE_TYPES = 4
"""True and false branch, forwards; true and false branch, in reverse."""


@dataclass(frozen=True, slots=True)
class Edges:
    """Typed edges of a batch's graph.

    A node that decides nothing has one edge, of the true type. An exit's edge to itself is one of the edges.

    Attributes:
        source, target: [edge]
        kind: 0 true, 1 false, 2 true in reverse, 3 false in reverse. [edge]
    """

    source: Tensor
    target: Tensor
    kind: Tensor

    @staticmethod
    def forwards(batch: Batch) -> "Edges":
        """From each node to its successors: N_in, seen from the target."""
        nodes = torch.arange(len(batch.true), device=batch.true.device, dtype=batch.true.dtype)
        decides = batch.true != batch.false
        source = torch.cat([nodes, nodes[decides]])
        target = torch.cat([batch.true, batch.false[decides]])
        kind = torch.arange(len(source), device=source.device) >= len(nodes)
        return Edges(source, target, kind.to(source.dtype))

    @staticmethod
    def bidirectional(batch: Batch) -> "Edges":
        """The same, and the same in reverse: N_all."""
        edges = Edges.forwards(batch)
        return Edges(
            torch.cat([edges.source, edges.target]),
            torch.cat([edges.target, edges.source]),
            torch.cat([edges.kind, edges.kind + 2]),
        )


def is_exit(batch: Batch) -> Tensor:
    """Whether a node is an exit. [node]"""
    return batch.node_line < 0


class Control(nn.Module, ABC):
    """Where messages go and how much they weigh.

    Attributes:
        exit_keeps: Whether an exit keeps its state, 0 at first, and what arrives is added to it; no update is for it.
    """

    exit_keeps = False

    @abstractmethod
    def edges(self, batch: Batch) -> Edges:
        """The edges that messages take."""

    @abstractmethod
    def gather(self, messages: Tensor, a: Tensor, p: Tensor, batch: Batch, edges: Edges) -> tuple[Tensor, ...]:
        """Weigh the messages and sum them where they arrive.

        Args:
            messages: a2, less its weight. [edge, state]
            a: a1, which decides where branches lead. [node, state]
            p: The pointer. [node]
            batch: The programs.
            edges: Where the messages go.

        Returns:
            h~ [node, state], the new p [node], and the shares of the true and the false branch [node, 2].
        """

    @abstractmethod
    def final(self, h: Tensor, p: Tensor, batch: Batch) -> Tensor:
        """h_final: the state at each exit. [program, state]"""


class Execution(nn.Module, ABC):
    """What a node does with its state."""

    @abstractmethod
    def start(self, cell: StatementRNN, batch: Batch) -> Tensor:
        """h_{0,n}. [node, state]"""

    @abstractmethod
    def execute(self, h: Tensor, cell: StatementRNN, table: Tensor, batch: Batch) -> Tensor:
        """a1_{t,n}. [node, state]"""

    @abstractmethod
    def messages(self, a: Tensor, edges: Edges) -> Tensor:
        """a2_{t,n,n'}, less its weight. [edge, state]"""

    @abstractmethod
    def update(self, h: Tensor, proposal: Tensor) -> Tensor:
        """h_{t,n}. [node, state]"""
