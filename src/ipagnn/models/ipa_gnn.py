"""The Instruction Pointer Attention Graph Neural Network."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from ipagnn._common.options import option
from ipagnn.data.contract import Batch, RowKind
from ipagnn.models.base import rows_of
from ipagnn.models.config import ModelConfig
from ipagnn.models.message_passing import MessagePassing
from ipagnn.models.output import Output, recorded
from ipagnn.models.registry import register
from ipagnn.nn.control import InstructionPointer
from ipagnn.nn.execution import RunStatement
from ipagnn.ops.pointer.packed import run_packed
from ipagnn.ops.pointer.streaming.pruned import run_pruned, trace_pruned
from ipagnn.ops.pointer.unpack import unpack


@register
class IPAGNN(MessagePassing):
    """The model of the paper (section 4.2): a soft instruction pointer walks the control flow graph.

        a_{t,n}  = RNN(h_{t-1,n}, Embed(x_n))                                          (3)
        b_{t,n,:} = Softmax(Dense(a_{t,n})) where n branches, else 1                   (4)
        h_{t,n}  = sum over n' in N_in(n) of p_{t-1,n'} · b_{t,n',n} · a_{t,n'}        (5)
        p_{t,n}  = sum over n' in N_in(n) of p_{t-1,n'} · b_{t,n',n}                   (6)

    with p_0 on node 0 and h_0 = 0. By default (5) is divided by (6) plus 1e-7, as in the release. The exit is not
    executed: it absorbs. `dense` runs these lines over all nodes (`MessagePassing.run_dense`), `packed` over those that
    can matter (`run_packed`).

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
    rows: ClassVar[RowKind | None] = "graph"
    records: ClassVar[frozenset[str]] = frozenset({"pointer", "branch", "states", "dropped", "trace_loss"})
    can_prune: ClassVar[bool] = True
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
        self.execution = RunStatement()

    def forward(self, batch: Batch, *, record: frozenset[str] = frozenset()) -> Output:
        """See `ProgramModel.forward`."""
        if self.config.prune:
            return self._run_pruned(batch, record)
        if self.config.execution == "dense":
            return self.run_dense(batch, record)
        rows = rows_of(batch, "graph")
        packed = run_packed(
            self.cell,
            self.control.branch,
            rows,
            len(batch),
            hard=self.hard,
            normalise=self.config.normalise,
            keep=bool(record & {"pointer", "branch", "states"}),
        )
        found = unpack(packed, rows, batch, record, normalise=self.config.normalise)
        if "trace_loss" in record:
            if packed.trace_loss is None:
                raise ValueError(
                    "The batch has no branch labels, so there is no trace_loss; collate it with taken=True."
                )
            found["trace_loss"] = packed.trace_loss
        if "dropped" in record:
            found["dropped"] = torch.zeros_like(packed.final[:, 0])
        return Output({"value": self.output(packed.final)}, recorded(found, record))

    def _run_pruned(self, batch: Batch, record: frozenset[str]) -> Output:
        if self.training:
            raise RuntimeError("Pruning is for inference only; call model.eval() first, or train with prune=0.")
        if refused := sorted(record & {"states", "trace_loss"}):
            raise ValueError(f"Pruned execution does not record {refused[0]}; ask for the pointer, or set prune=0.")
        drawn = bool(record & {"pointer", "branch"})
        config = self.config
        pruned = run_pruned(
            self.cell,
            self.control.branch,
            batch,
            prune=config.prune,
            hard=self.hard,
            normalise=config.normalise,
            keep=drawn,
        )
        found = trace_pruned(pruned, batch) if drawn else {}
        return Output({"value": self.output(pruned.final)}, recorded(found | {"dropped": pruned.dropped}, record))
