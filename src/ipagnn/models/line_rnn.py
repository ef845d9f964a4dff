"""The Line-by-Line RNN."""

from itertools import pairwise
from typing import ClassVar

from torch import Tensor

from ipagnn.data.contract import Batch, RowKind
from ipagnn.models.registry import register
from ipagnn.models.sequence import SequenceModel


@register
class LineRNN(SequenceModel):
    """An RNN over the lines in the order of the text, n_t = t (section 4.1); it reads `else`, `pass`, ... as well.

    Shapes:
        batch -> logits [program, class]
    """

    name: ClassVar[str] = "line-rnn"
    title: ClassVar[str] = "Line-by-Line RNN"
    rows: ClassVar[RowKind | None] = "lines"

    def sequences(self, batch: Batch) -> list[Tensor]:
        """The lines."""
        return [batch.line_tokens[first:end] for first, end in pairwise(batch.line_offsets.tolist())]
