"""The NoControl ablation."""

from typing import ClassVar

import torch

from ipagnn.models.base import ModelConfig, register
from ipagnn.models.message_passing import EDGE_TYPES, MessagePassing
from ipagnn.nn.control import Neighbours
from ipagnn.nn.execution import RunStatement, RunTypedStatement


@register
class NoControl(MessagePassing):
    """The IPA-GNN with the control of the GGNN (section 4.4): statements are executed, but no pointer says which.

        a_{t,n} = RNN(h_{t-1,n}, Embed(x_n))
        h_{t,n} = sum over n' in N_all(n) of a_{t,n'}, over the number of messages

    With `both_ways=False` the sum is over N_in, the IPA-GNN's with p·b = 1: states follow the program. To this model
    the arms of an `if` and `else` are the same, as nothing tells true edges from false ones; with `edge_types=True` it
    sends Dense_kind(a) like the GGNN, and they are not.

    Shapes:
        batch -> logits [program, class]
    """

    name: ClassVar[str] = "no-control"
    title: ClassVar[str] = "NoControl"

    def __init__(self, config: ModelConfig, generator: torch.Generator) -> None:
        super().__init__(config, generator)
        self.control = Neighbours("mass" if config.normalise else "one", both_ways=config.both_ways)
        kinds = EDGE_TYPES if config.both_ways else EDGE_TYPES // 2
        self.execution = RunTypedStatement(config.hidden, kinds, generator) if config.edge_types else RunStatement()
