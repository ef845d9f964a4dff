"""The Trace RNN."""

from typing import ClassVar

import torch
from torch import Tensor

from ipagnn.data.contract import Batch
from ipagnn.models.base import Walk
from ipagnn.models.registry import register
from ipagnn.models.sequence import SequenceModel, Sequences


@register
class TraceRNN(SequenceModel):
    """An RNN over the true trace, n_t = n*_t (section 4.1): an oracle for control flow, so complete programs only.

    It takes as many steps as the program does, whatever the step budget says.

    Shapes:
        batch -> logits [program, class]
    """

    name: ClassVar[str] = "trace-rnn"
    title: ClassVar[str] = "Trace RNN (oracle)"
    walks: ClassVar[Walk] = "trace"
    records: ClassVar[frozenset[str]] = frozenset({"pointer", "branch", "states"})
    tasks: ClassVar[tuple[str, ...]] = ("full",)

    @staticmethod
    def statements(batch: Batch) -> tuple[Tensor, Tensor]:
        """The statements of the traces."""
        offsets, trace = _trace_of(batch)
        return offsets, batch.node_tokens[trace]

    @staticmethod
    def sequences(batch: Batch) -> Sequences:
        """See `SequenceModel.sequences`."""
        return Sequences.of(*TraceRNN.statements(batch))

    def needed_records(self, record: frozenset[str]) -> frozenset[str]:
        """The pointer is that of the true trace, whatever the execution."""
        return record & {"states"}

    def on_nodes(self, found: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """A pointer of 1 at the node of each step, then at the exit; the model decides nothing itself."""
        offsets, trace = _trace_of(batch)
        lengths = offsets.diff()
        steps, nodes = int(lengths.max()) if len(lengths) else 0, len(batch.true)
        kind, device = self.cell.embedding.dtype, trace.device
        program = torch.repeat_interleave(lengths)
        step = torch.arange(len(trace), device=device) - offsets[program]
        ended = (torch.arange(steps + 1, device=device)[:, None] >= lengths).to(kind)  # [step + 1, program]
        pointer = torch.zeros(steps + 1, nodes, dtype=kind, device=device).index_copy(1, batch.exits.long(), ended)
        pointer[step, trace.long()] = 1.0
        placed = {"pointer": pointer, "branch": pointer.new_full((steps, nodes), torch.nan)}
        if "states" in found:
            place = torch.arange(len(trace), device=device) + program  # exits of sequences stand between
            states = found["states"].new_zeros(steps + 1, nodes, *found["states"].shape[2:])
            exits = batch.plan(self.sequences).graphs.exits.long()
            states[:, batch.exits.long()] = found["states"][:, exits]
            states[step, trace.long()] = found["states"][step, place]
            placed["states"] = states
        return placed


def _trace_of(batch: Batch) -> tuple[Tensor, Tensor]:
    if batch.trace_offsets is None or batch.trace is None:
        raise ValueError(
            "The batch has no true traces, which the Trace RNN reads; build it with model.collate(programs)."
        )
    return batch.trace_offsets, batch.trace
