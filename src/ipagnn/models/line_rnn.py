"""The Line-by-Line RNN."""

from typing import ClassVar

from torch import Tensor

from ipagnn.data.contract import Batch
from ipagnn.models.base import Walk
from ipagnn.models.registry import register
from ipagnn.models.sequence import SequenceModel, Sequences


@register
class LineRNN(SequenceModel):
    """An RNN over the lines in the order of the text, n_t = t (section 4.1); it reads `else`, `pass`, ... as well.

    Shapes:
        batch -> logits [program, class]
    """

    name: ClassVar[str] = "line-rnn"
    title: ClassVar[str] = "Line-by-Line RNN"
    walks: ClassVar[Walk] = "lines"

    @staticmethod
    def statements(batch: Batch) -> tuple[Tensor, Tensor]:
        """The lines."""
        return batch.line_offsets, batch.line_tokens

    @staticmethod
    def sequences(batch: Batch) -> Sequences:
        """See `SequenceModel.sequences`."""
        return Sequences.of(*LineRNN.statements(batch))
