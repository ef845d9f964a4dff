"""The NoExecute ablation."""

from typing import ClassVar

import torch

from ipagnn.models.base import ModelConfig, register
from ipagnn.models.message_passing import MessagePassing
from ipagnn.nn.control import InstructionPointer
from ipagnn.nn.execution import GatedUpdate


@register
class NoExecute(MessagePassing):
    """The IPA-GNN with the execution of the GGNN (section 4.4): a pointer walks, but statements are only embedded.

        h_{0,n}  = Embed(x_n)
        h~_{t,n} = sum over n' in N_in(n) of p_{t-1,n'} · b_{t,n',n} · Dense_kind(h_{t-1,n'}), over the arrived mass
        h_{t,n}  = GRU(h_{t-1,n}, h~_{t,n})

    Messages flow forwards only, so there are two edge types, true and false. With `absorb` the exit is not updated:
    as in the IPA-GNN, h_exit is the sum of what arrives there at any step, 0 at first.

    Shapes:
        batch -> logits [program, class]
    """

    name: ClassVar[str] = "no-execute"
    title: ClassVar[str] = "NoExecute"

    def __init__(self, config: ModelConfig, generator: torch.Generator) -> None:
        super().__init__(config, generator)
        self.control = InstructionPointer(
            config.hidden, generator, normalise=config.normalise, exit_keeps=config.absorb
        )
        self.execution = GatedUpdate(config.hidden, 2, generator)
