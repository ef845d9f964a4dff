"""The models of the paper's table of message passing (`nn.message_passing`).

`ipagnn.ops.pass_messages` runs them: by kernels or, as written here, every node at every step.
"""

from typing import ClassVar

import torch
from torch import Tensor

from ipagnn.data.contract import Batch
from ipagnn.models.base import ProgramModel
from ipagnn.models.output import Output, recorded
from ipagnn.nn.control import InstructionPointer, Neighbours
from ipagnn.nn.execution import GatedUpdate
from ipagnn.nn.message_passing import Control, Edges, Execution, is_exit
from ipagnn.ops import MessageCall, MessageKind, Messages, pass_messages


class MessagePassing(ProgramModel):
    """A model of the table; a subclass sets `control` and `execution`."""

    has_executions: ClassVar[bool] = True
    every_node: ClassVar[bool] = True
    records: ClassVar[frozenset[str]] = frozenset({"states"})
    control: Control
    execution: Execution

    def forward(
        self, batch: Batch, *, record: frozenset[str] = frozenset(), execution: str = "auto", prune: float = 0.0
    ) -> Output:
        """The five lines, T(x) times; see `ProgramModel.forward`."""
        table, edges = self.cell.table(), self.control.edges(batch)
        call = MessageCall(
            graphs=batch.graphs,
            tokens=batch.node_tokens,
            start=lambda: self.start(batch),
            step=lambda h, p: self.step(h, p, table, batch, edges),
            final=lambda h, p: self.control.final(h, p, batch),
            record=record,
            messages=self.kernels,
        )
        passed = pass_messages(call, execution)
        return Output({"value": self.output(passed.final)}, recorded(passed.recorded, record))

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

    @property
    def kernels(self) -> Messages | None:
        """See `ProgramModel.kernels`: there are some for a GRU, with a soft pointer or all neighbours."""
        control, execution = self.control, self.execution
        if type(self).forward is not MessagePassing.forward or not isinstance(execution, GatedUpdate):
            return None
        kind: MessageKind = "neighbours"
        if isinstance(control, InstructionPointer):
            if control.hard:
                return None
            kind = "absorbing" if control.exit_keeps else "pointer"
        elif not isinstance(control, Neighbours) or control.divisor != "root" or not control.bidirectional:
            return None
        normalise = isinstance(control, InstructionPointer) and control.normalise
        return Messages(kind, self.cell.embedding, self._kernel_weights, normalise)

    def _kernel_weights(self) -> tuple[Tensor, ...]:
        cell, execution = self.cell, self.execution
        assert isinstance(execution, GatedUpdate)
        weights = [cell.table(), cell.hidden_1, cell.input_2, cell.hidden_2, cell.bias_2]
        weights += [torch.stack([getattr(x, name) for x in execution.dense]) for name in ("weight", "bias")]
        weights += [execution.gru.input, execution.gru.hidden, execution.gru.bias]
        if isinstance(self.control, InstructionPointer):
            weights += [*self.control.branch.parameters()]
        return tuple(weights)
