"""The recurrent models that read one sequence of statements per program, without deciding anything."""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from ipagnn._common.options import option
from ipagnn.data.contract import Batch
from ipagnn.models.base import ProgramModel, rows_of
from ipagnn.models.config import ModelConfig
from ipagnn.models.output import Output, recorded
from ipagnn.nn.cell import Decoder
from ipagnn.ops.pointer.packed import run_packed
from ipagnn.ops.pointer.unpack import unpack


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

    config: Config

    def build(self, generator: torch.Generator) -> None:
        """See `ProgramModel.build`."""
        super().build(generator)
        if self.config.decoder:
            self.output = Decoder(self.config.hidden, self.config.grammar.modulus, generator)

    @abstractmethod
    def sequences(self, batch: Batch) -> list[Tensor]:
        """The statements of each program in the order they are read. [statement, 4] each"""

    def forward(self, batch: Batch, *, record: frozenset[str] = frozenset()) -> Output:
        """See `ProgramModel.forward`."""
        if self.config.execution == "dense":
            return self._run_dense(batch)
        assert self.rows is not None
        rows = rows_of(batch, self.rows)
        packed = run_packed(self.cell, None, rows, len(batch), normalise=False, keep=bool(record))
        found = unpack(packed, rows, batch, record, normalise=False)
        return Output({"value": self.output(packed.final)}, recorded(found, record))

    def _run_dense(self, batch: Batch) -> Output:
        """One program at a time, one statement at a time."""
        finals = []
        for statements in self.sequences(batch):
            h = self.cell.zero_state(1)
            for statement in statements:
                h = self.cell(h, statement[None])
            finals.append(h)
        return Output({"value": self.output(torch.cat([self.cell.zero_state(0), *finals]))})
