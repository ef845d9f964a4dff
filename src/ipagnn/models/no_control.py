"""The NoControl ablation."""

from typing import ClassVar

import torch

from ipagnn.models.base import ModelConfig, register
from ipagnn.models.control import Neighbours
from ipagnn.models.execution import RunStatement
from ipagnn.models.message_passing import MessagePassing


@register
class NoControl(MessagePassing):
    """The IPA-GNN with the control of the GGNN (section 4.4): statements are executed, but no pointer says which.

        a_{t,n} = RNN(h_{t-1,n}, Embed(x_n))
        h_{t,n} = sum over n' in N_all(n) of a_{t,n'}, over the number of messages

    With `both_ways=False` the sum is over N_in, the IPA-GNN's with p·b = 1: states follow the program.

    Shapes:
        batch -> logits [program, class]
    """

    name: ClassVar[str] = "no-control"

    def __init__(self, config: ModelConfig, generator: torch.Generator) -> None:
        super().__init__(config, generator)
        self.control = Neighbours("mass" if config.normalise else "one", both_ways=config.both_ways)
        self.execution = RunStatement()
