"""The NoExecute ablation."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from ipagnn._common.options import option
from ipagnn.models.config import ModelConfig
from ipagnn.models.message_passing import MessagePassing
from ipagnn.models.registry import register
from ipagnn.nn.control import InstructionPointer
from ipagnn.nn.execution import GatedUpdate


@register
class NoExecute(MessagePassing):
    """The IPA-GNN with the execution of the GGNN (section 4.4): a pointer walks, but statements are only embedded.

        h_{0,n}  = Embed(x_n)
        h~_{t,n} = sum over n' in N_in(n) of p_{t-1,n'} · b_{t,n',n} · Dense_kind(h_{t-1,n'}), over the arrived mass
        h_{t,n}  = GRU(h_{t-1,n}, h~_{t,n})

    Messages flow forwards only, so there are two edge types, true and false. With `absorbing_exit` the exit is not
    updated: as in the IPA-GNN, h_exit is the sum of what arrives there at any step, 0 at first.

    Shapes:
        batch -> logits [program, class]
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(ModelConfig):
        """Its options."""

        absorbing_exit: bool = option(
            False,
            "Let the exit add up what arrives, as the IPA-GNN's exit does, instead of updating it at every step like "
            "any other node.",
            phrase="the exit absorbs",
        )
        normalise: bool = option(
            True,
            "Divide arriving messages by the mass that arrived.",
            phrase="sums not divided",
        )

    name: ClassVar[str] = "no-execute"
    title: ClassVar[str] = "NoExecute"

    records: ClassVar[frozenset[str]] = frozenset({"pointer", "branch", "states"})
    config: Config

    def build(self, generator: torch.Generator) -> None:
        """See `ProgramModel.build`."""
        super().build(generator)
        config = self.config
        self.control = InstructionPointer(
            config.hidden, generator, normalise=config.normalise, exit_keeps=config.absorbing_exit
        )
        self.execution = GatedUpdate(config.hidden, 2, generator)
