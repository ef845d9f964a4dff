"""The recurrent models that read one sequence of statements per program, without deciding anything."""

from abc import abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor

from ipagnn._common.options import option
from ipagnn.data.contract import Batch
from ipagnn.data.graphs import Graphs, Tensors
from ipagnn.models.base import ProgramModel
from ipagnn.models.config import ModelConfig
from ipagnn.models.output import Output, recorded
from ipagnn.models.stepping import PointerKernels
from ipagnn.nn.cell import Decoder
from ipagnn.nn.layer import IPAGNNLayer
from ipagnn.ops import plan_rows


class SequenceModel(ProgramModel):
    """h_t = RNN(h_{t-1}, Embed(x_{n_{t-1}})) over a given sequence n_0, n_1, ... (equation 1).

    All mass is always in one place, so arriving states are copied, never divided.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(ModelConfig):
        """Its options."""

        decoder: bool = option(
            False,
            "Read the final state as the release's recurrent models do, through two more LSTM layers.",
            phrase="the release's decoder",
            variant="decoder",
        )

    has_executions: ClassVar[bool] = True
    config: Config

    def build(self, generator: torch.Generator) -> None:
        """See `ProgramModel.build`."""
        super().build(generator)
        if self.config.decoder:
            self.output = Decoder(self.config.hidden, self.config.grammar.modulus, generator)

    @property
    def layer(self) -> IPAGNNLayer:
        """The layer over this model's cell; see `IPAGNN.layer`."""
        return IPAGNNLayer(cell=self.cell, successors=1, normalise=False)

    @staticmethod
    @abstractmethod
    def statements(batch: Batch) -> tuple[Tensor, Tensor]:
        """What is read: program i has the statements offsets[i] : offsets[i + 1] of tokens [statement, 4]."""

    @staticmethod
    @abstractmethod
    def sequences(batch: Batch) -> "Sequences":
        """The same as graphs; kept by the batch."""

    def forward(
        self, batch: Batch, *, record: frozenset[str] = frozenset(), execution: str = "auto", prune: float = 0.0
    ) -> Output:
        """See `ProgramModel.forward`."""
        if execution == "reference" and not record:
            return Output({"value": self.output(self._one_by_one(*self.statements(batch)))})
        graphs, tokens = self.walked(batch)
        walked = self.layer(graphs, tokens, record=self.needed_records(record), execution=execution, prune=prune)
        found = self.on_nodes(walked.recorded, batch)
        return Output({"value": self.output(walked.final)}, recorded(found, record))

    def needed_records(self, record: frozenset[str]) -> frozenset[str]:
        """What must be recorded of the sequences."""
        return record

    def on_nodes(self, found: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """What was recorded, by node of the batch instead of by statement of the sequences."""
        return found

    def walked(self, batch: Batch) -> tuple[Graphs, Tensor]:
        """What is walked: the sequences as graphs, and the tokens of each statement."""
        sequences = batch.plan(self.sequences)
        return sequences.graphs, sequences.tokens

    def _one_by_one(self, offsets: Tensor, tokens: Tensor) -> Tensor:
        """One program at a time, one statement at a time. [program, state]"""
        finals = [self.cell.zero_state(0)]
        for first, end in pairwise(offsets.tolist()):
            h = self.cell.zero_state(1)
            for statement in tokens[first:end]:
                h = self.cell(h, statement[None])
            finals.append(h)
        return torch.cat(finals)

    @property
    def kernels(self) -> PointerKernels | None:
        """See `ProgramModel.kernels`."""
        return PointerKernels(self.walked) if type(self).forward is SequenceModel.forward else None

    def prepare(self, batch: Batch, *, record: Collection[str] = ()) -> Batch:
        """See `ProgramModel.prepare`."""
        batch.plan(self.sequences).graphs.plan(plan_rows)
        return batch


@dataclass(frozen=True, slots=True)
class Sequences(Tensors):
    """Sequences of statements as graphs: each node leads to the next, and the last to an exit.

    Attributes:
        graphs: The graphs.
        tokens: Token ids of the statement at each node; 0 for exits. int32 [node, 4]
    """

    graphs: Graphs
    tokens: Tensor

    @staticmethod
    def of(offsets: Tensor, tokens: Tensor) -> "Sequences":
        """Sequence i has the statements offsets[i] : offsets[i + 1] of `tokens` [statement, 4]."""
        count, device = len(offsets) - 1, offsets.device
        spread = offsets + torch.arange(count + 1, device=device)  # a node more in each, its exit
        exits = spread[1:] - 1
        nodes = int(spread[-1])
        is_exit = torch.zeros(nodes, dtype=torch.bool, device=device).index_fill(0, exits.long(), True)
        of_node = tokens.new_zeros(nodes, tokens.shape[1])
        of_node[~is_exit] = tokens
        here = torch.arange(nodes, device=device)
        following = torch.where(is_exit, here, here + 1).int()
        successors = torch.stack([following, following], dim=1)
        spread = spread.int()
        return Sequences(Graphs(successors, spread, spread[:-1], spread[1:] - 1, offsets.diff().int()), of_node)
