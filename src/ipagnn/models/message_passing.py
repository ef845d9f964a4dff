"""The paper's table of message passing models: five lines, each written in one of two ways.

    line         IPA-GNN              NoControl            NoExecute         GGNN              who
    h_{0,n}      0                    0                    Embed(x_n)        Embed(x_n)        execution.start
    a1_{t,n}     RNN(h, Embed(x_n))   RNN(h, Embed(x_n))   h                 h                 execution.execute
    a2_{t,n,n'}  p·b · a1             1 · a1               p·b · Dense(a1)   1 · Dense(a1)     control, execution
    h~_{t,n}     sum over N_in        sum over N_all       sum over N_in     sum over N_all    control.gather
    h_{t,n}      h~                   h~                   GRU(h, h~)        GRU(h, h~)        execution.update

`control.py` and `execution.py` hold the two ways; a model chooses one of each, and `MessagePassing` runs them: every
node at every step, over the flat graph of the batch. This is the `dense` execution, to be read beside the paper.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ipagnn.data.contract import Batch
from ipagnn.models.base import ProgramModel
from ipagnn.models.output import Output, recorded
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
    def both_ways(batch: Batch) -> "Edges":
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
        has_pointer: Whether it has an instruction pointer.
        exit_keeps: Whether an exit keeps its state, 0 at first, and what arrives is added to it; no update is for it.
    """

    has_pointer: bool
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


class MessagePassing(ProgramModel):
    """A model of the table; a subclass sets `control` and `execution`."""

    records: ClassVar[frozenset[str]] = frozenset({"states"})
    control: Control
    execution: Execution

    def forward(self, batch: Batch, *, record: frozenset[str] = frozenset()) -> Output:
        """See `ProgramModel.forward`."""
        return self.run_dense(batch, record)

    def run_dense(self, batch: Batch, record: frozenset[str] = frozenset()) -> Output:
        """The five lines, T(x) times; a program whose steps are over stands still."""
        table = self.cell.table()
        edges = self.control.edges(batch)
        decides = batch.true != batch.false
        h, p = self.start(batch)
        found = {"pointer": [p], "branch": [], "states": [self._readable(h, p, batch)]}
        for t in range(max(batch.steps.tolist(), default=0)):
            h_new, arrived, b = self.step(h, p, table, batch, edges)
            running = (t < batch.steps)[batch.node_program]
            h = torch.where(running[:, None], h_new, h)
            p = torch.where(running, arrived, p)
            if "pointer" in record:
                found["pointer"].append(p)
            if "branch" in record:
                found["branch"].append(torch.where(running & decides, b[:, 0], torch.nan))
            if "states" in record:
                found["states"].append(self._readable(h, p, batch))
        logits = self.output(self.control.final(h, p, batch))
        series = {
            name: torch.stack(found[name]) if found[name] else p.new_empty(0, len(p)) for name in record & found.keys()
        }
        return Output({"value": logits}, recorded(series, record))

    def start(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """h_{0,n} [node, state] and p_{0,n} [node]."""
        h = self.execution.start(self.cell, batch)
        if self.control.exit_keeps:
            h = torch.where(is_exit(batch)[:, None], 0.0, h)
        return h, torch.zeros_like(h[:, 0]).index_fill(0, batch.starts.long(), 1.0)

    def step(self, h: Tensor, p: Tensor, table: Tensor, batch: Batch, edges: Edges) -> tuple[Tensor, ...]:
        """The other four lines: h_{t,n} [node, state], p_{t,n} [node] and the shares of both branches [node, 2]."""
        a = self.execution.execute(h, self.cell, table, batch)  # a1_{t,n}
        messages = self.execution.messages(a, edges)  # a2_{t,n,n'}
        proposal, arrived, b = self.control.gather(messages, a, p, batch, edges)  # h~_{t,n}
        updated = self.execution.update(h, proposal)  # h_{t,n}
        if self.control.exit_keeps:
            updated = torch.where(is_exit(batch)[:, None], proposal, updated)
        return updated, arrived, b

    def _readable(self, h: Tensor, p: Tensor, batch: Batch) -> Tensor:
        """The states, those of the exits as the output layer would read them now. [node, state]"""
        return h.index_copy(0, batch.exits.long(), self.control.final(h, p, batch))
