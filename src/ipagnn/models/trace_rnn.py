"""The Trace RNN."""

from typing import ClassVar

from torch import Tensor

from ipagnn.data.contract import Batch, RowKind
from ipagnn.languages.arithmetic.program import Task
from ipagnn.models.base import rows_of
from ipagnn.models.registry import register
from ipagnn.models.sequence import SequenceModel


@register
class TraceRNN(SequenceModel):
    """An RNN over the true trace, n_t = n*_t (section 4.1): an oracle for control flow, so complete programs only.

    It takes as many steps as the program does, whatever the step budget says.

    Shapes:
        batch -> logits [program, class]
    """

    name: ClassVar[str] = "trace-rnn"
    title: ClassVar[str] = "Trace RNN (oracle)"
    rows: ClassVar[RowKind | None] = "trace"
    records: ClassVar[frozenset[str]] = frozenset({"pointer", "branch", "states"})
    tasks: ClassVar[tuple[Task, ...]] = ("full",)

    @property
    def needed_rows(self) -> RowKind | None:
        """The rows of the trace, for either execution: a batch holds the trace nowhere else."""
        return "trace"

    def sequences(self, batch: Batch) -> list[Tensor]:
        """The trace."""
        rows = rows_of(batch, "trace")
        return [rows.tokens[rows.program == i] for i in range(len(batch))]
