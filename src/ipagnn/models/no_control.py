"""The NoControl ablation."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from ipagnn._common.options import option
from ipagnn.models.config import ModelConfig
from ipagnn.models.message_passing import MessagePassing
from ipagnn.models.registry import register
from ipagnn.nn.control import Neighbours
from ipagnn.nn.execution import RunStatement, RunTypedStatement
from ipagnn.nn.message_passing import EDGE_TYPES


@register
class NoControl(MessagePassing):
    """The IPA-GNN with the control of the GGNN (section 4.4): statements are executed, but no pointer says which.

        a_{t,n} = RNN(h_{t-1,n}, Embed(x_n))
        h_{t,n} = sum over n' in N_all(n) of a_{t,n'}, over the number of messages

    With `bidirectional=False` the sum is over N_in, the IPA-GNN's with p·b = 1: states follow the program. To this
    model the arms of an `if` and `else` are the same, as nothing distinguishes true edges from false ones; with
    `edge_types=True` it sends Dense_kind(a) like the GGNN, and they are not.

    Shapes:
        batch -> logits [program, class]
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(ModelConfig):
        """Its options."""

        bidirectional: bool = option(
            True,
            "Send messages against the edges as well, as in the paper's table.",
            phrase="messages along edges only",
        )
        edge_types: bool = option(
            False,
            "Send messages through one Dense layer per edge type, as the GGNN does, so that the branches of an `if` "
            "and `else` can be distinguished.",
            phrase="a Dense per edge type",
            variant="edge types",
        )
        normalise: bool = option(True, "Divide the sum of messages by their number.", phrase="sums not divided")

    name: ClassVar[str] = "no-control"
    title: ClassVar[str] = "NoControl"

    config: Config

    def build(self, generator: torch.Generator) -> None:
        """See `ProgramModel.build`."""
        super().build(generator)
        config = self.config
        self.control = Neighbours("mass" if config.normalise else "one", bidirectional=config.bidirectional)
        kinds = EDGE_TYPES if config.bidirectional else EDGE_TYPES // 2
        self.execution = RunTypedStatement(config.hidden, kinds, generator) if config.edge_types else RunStatement()
