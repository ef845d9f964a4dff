"""The Instruction Pointer Attention Graph Neural Network."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ipagnn._common.options import option
from ipagnn.data.contract import Batch
from ipagnn.data.graphs import Graphs
from ipagnn.models.base import ProgramModel
from ipagnn.models.config import ModelConfig
from ipagnn.models.output import Output, recorded
from ipagnn.models.registry import register
from ipagnn.models.stepping import PointerKernels
from ipagnn.nn.control import InstructionPointer
from ipagnn.nn.layer import IPAGNNLayer
from ipagnn.ops import plan_rows


@register
class IPAGNN(ProgramModel):
    """The model of the paper (section 4.2): a soft instruction pointer walks the control flow graph.

        a_{t,n}  = RNN(h_{t-1,n}, Embed(x_n))                                          (3)
        b_{t,n,:} = Softmax(Dense(a_{t,n})) where n branches, else 1                   (4)
        h_{t,n}  = sum over n' in N_in(n) of p_{t-1,n'} · b_{t,n',n} · a_{t,n'}        (5)
        p_{t,n}  = sum over n' in N_in(n) of p_{t-1,n'} · b_{t,n',n}                   (6)

    with p_0 on node 0 and h_0 = 0. By default (5) is divided by (6) plus 1e-7, as in the release. The exit is not
    executed: it absorbs. `ipagnn.nn.IPAGNNLayer` runs these lines; here are the statement cell, the branch layer and
    the output layer around it.

    Shapes:
        batch -> logits [program, class]
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(ModelConfig):
        """Its options."""

        normalise: bool = option(
            True,
            "Divide arriving states by the mass that arrived, as the release does; False is the literal sum of "
            "equation 5.",
            phrase="sums not divided",
        )

    name: ClassVar[str] = "ipa-gnn"
    title: ClassVar[str] = "IPA-GNN"
    records: ClassVar[frozenset[str]] = frozenset({"pointer", "branch", "states", "dropped", "exit_mass"})
    can_prune: ClassVar[bool] = True
    has_executions: ClassVar[bool] = True
    reliable_lines: ClassVar[int | None] = None
    hard: ClassVar[bool] = False
    config: Config
    control: InstructionPointer

    def build(self, generator: torch.Generator) -> None:
        """See `ProgramModel.build`."""
        super().build(generator)
        config = self.config
        self.control = InstructionPointer(
            config.hidden, generator, hard=self.hard, normalise=config.normalise, exit_keeps=True
        )

    @property
    def layer(self) -> IPAGNNLayer:
        """The layer over this model's weights. It is no submodule, as names in a state dict are the file format."""
        return IPAGNNLayer(cell=self.cell, branch=self.control.branch, hard=self.hard, normalise=self.config.normalise)

    def forward(
        self, batch: Batch, *, record: frozenset[str] = frozenset(), execution: str = "auto", prune: float = 0.0
    ) -> Output:
        """See `ProgramModel.forward`."""
        walked = self.layer(*self.walked(batch), record=record, execution=execution, prune=prune)
        return Output({"value": self.output(walked.final)}, recorded(walked.recorded, record))

    def walked(self, batch: Batch) -> tuple[Graphs, Tensor]:
        """What is walked: the control flow graphs, and the tokens of each node's statement."""
        return batch.graphs, batch.node_tokens

    @property
    def kernels(self) -> PointerKernels | None:
        """See `ProgramModel.kernels`."""
        if type(self).forward is not IPAGNN.forward:
            return None
        branch = tuple(self.control.branch.parameters())
        return PointerKernels(self.walked, self.hard, self.config.normalise, branch)

    def prepare(self, batch: Batch, *, record: Collection[str] = ()) -> Batch:
        """See `ProgramModel.prepare`."""
        batch.graphs.plan(plan_rows)
        return batch
