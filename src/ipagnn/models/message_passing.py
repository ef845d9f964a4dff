"""The models of the paper's table of message passing (`nn.message_passing`), as they run: every node at every step.

On a CUDA GPU, training runs GGNN and NoExecute by kernels instead; `MessagePassing.messages` says which.
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
from ipagnn.ops.messages.call import Messages


class MessagePassing(ProgramModel):
    """A model of the table; a subclass sets `control` and `execution`."""

    records: ClassVar[frozenset[str]] = frozenset({"states"})
    control: Control
    execution: Execution

    def forward(self, batch: Batch, *, record: frozenset[str] = frozenset()) -> Output:
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

    @property
    def messages(self) -> Messages | None:
        """How kernels pass this model's messages; None if there are none for it."""
        control = self.control
        if type(self).forward is not MessagePassing.forward or not isinstance(self.execution, GatedUpdate):
            return None
        if isinstance(control, InstructionPointer):
            if control.hard:
                return None
            return Messages("absorbing" if control.exit_keeps else "pointer", normalise=control.normalise)
        assert isinstance(control, Neighbours)
        return Messages("neighbours") if control.divisor == "root" and control.bidirectional else None

    def message_weights(self) -> tuple[Tensor, ...]:
        """The weights that kernels read, in the order in which they take them."""
        cell, execution = self.cell, self.execution
        assert isinstance(execution, GatedUpdate)
        weights = [cell.table(), cell.hidden_1, cell.input_2, cell.hidden_2, cell.bias_2]
        weights += [torch.stack([getattr(x, name) for x in execution.dense]) for name in ("weight", "bias")]
        weights += [execution.gru.input, execution.gru.hidden, execution.gru.bias]
        if isinstance(self.control, InstructionPointer):
            weights += [*self.control.branch.parameters()]
        return tuple(weights)
