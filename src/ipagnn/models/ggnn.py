"""The gated graph neural network."""

from typing import ClassVar

import torch

from ipagnn.models.message_passing import MessagePassing
from ipagnn.models.registry import register
from ipagnn.nn.control import Neighbours
from ipagnn.nn.execution import GatedUpdate
from ipagnn.nn.message_passing import EDGE_TYPES


@register
class GGNN(MessagePassing):
    """The GGNN baseline: the IPA-GNN with both its control and its execution replaced (section 4.4).

        h_{0,n}  = Embed(x_n)
        h~_{t,n} = sum over n' in N_all(n) of Dense_kind(h_{t-1,n'}), over sqrt(2 + in-degree)
        h_{t,n}  = GRU(h_{t-1,n}, h~_{t,n})

    Shapes:
        batch -> logits [program, class]
    """

    name: ClassVar[str] = "ggnn"
    title: ClassVar[str] = "GGNN"

    def build(self, generator: torch.Generator) -> None:
        """See `ProgramModel.build`."""
        super().build(generator)
        self.control = Neighbours("root")
        self.execution = GatedUpdate(self.config.hidden, EDGE_TYPES, generator)
