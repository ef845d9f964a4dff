"""NoControl on a CUDA GPU: the order of launches."""

from typing import Any

import torch
from torch import Tensor

from ipagnn.models import message_mix_triton as kernels
from ipagnn.models.base import ProgramModel
from ipagnn.models.control import Neighbours
from ipagnn.models.message_cuda import MessageLauncher, Shapes
from ipagnn.models.message_passing import MessagePassing
from ipagnn.models.message_statement_plan import StatementCapacity, StatementPlan
from ipagnn.models.message_statements_triton import UNITS
from ipagnn.models.packed_buffers import Weights
from ipagnn.models.pointer import EPSILON


class StatementLauncher(MessageLauncher[StatementPlan]):
    """NoControl: every statement is executed at every step, and states are exchanged with all neighbours."""

    def __init__(
        self, model: ProgramModel, weights: Weights, plan: StatementPlan, memory: Tensor, *, exact: bool
    ) -> None:
        super().__init__(model, weights, plan, memory, exact=exact)
        assert isinstance(model, MessagePassing)
        assert isinstance(model.control, Neighbours)
        self._mixed: dict[str, Any] = {
            "offsets": plan.offsets,
            "total_step": plan.capacity.steps + 1,
            "counts": plan.counts,
            "h": self.waves.buffers.h,
            "c": self.waves.buffers.c,
            "capacity": plan.capacity.statements,
            "programs": plan.capacity.exits,
            "eps": EPSILON,
            "NORMALISE": model.control.divisor == "mass",
            "P": self.padded,
        }
        self._grid = (2 * self.row_blocks,)  # of one warp each: as many as multiprocessors hold

    @classmethod
    def shapes(cls, model: ProgramModel, weights: Weights, capacity: StatementCapacity) -> Shapes:
        """See `MessageLauncher`."""
        shape = cls.parts, capacity.exits, weights.padded
        return {"exits": (shape, torch.float32), "d_exits": (shape, weights.dtype)}

    def inputs(self) -> tuple[Tensor, ...]:
        """See `MessageLauncher`."""
        return self.cell_inputs()

    def forward(self, *weights: Tensor) -> Tensor:
        """See `MessageLauncher`."""
        self.waves.load(*weights)
        b, plan, exits, width = self.waves.buffers, self.plan, self.views["exits"], self.waves.wide["WIDTH"]
        kernels.begin[(self.row_blocks,)](plan.offsets, b.h, b.c, b.rows, **self.waves.wide)
        self.waves.forward(0)
        for step in range(1, plan.capacity.steps + 1):
            kernels.mix[self._grid](
                exit_offsets=plan.exit_offsets, step=step, arrival_offsets=plan.arrival_offsets, arrivals=plan.arrivals,
                exits=exits, WIDTH=width, **self._mixed, num_warps=1,
            )  # fmt: skip
            if step < plan.capacity.steps:  # when only exits are left
                self.waves.forward(step)
        return exits[:, plan.final, : self.hidden].transpose(0, 1).reshape(len(plan.final), -1)

    def backward(self, d_final: Tensor) -> tuple[Tensor, ...]:
        """See `MessageLauncher`."""
        b, plan, steps, d_exits = self.waves.buffers, self.plan, self.plan.capacity.steps, self.views["d_exits"]
        seeds = d_exits.new_zeros(self.parts, len(d_final), self.padded)
        seeds[:, :, : self.hidden] = d_final.view(-1, self.parts, self.hidden).transpose(0, 1)
        d_exits.index_copy_(1, plan.final.long(), seeds)
        messages: dict[str, Any] = {
            "departure_offsets": plan.departure_offsets,
            "departures": plan.departures,
            "gates": b.gates,
            "d_state": self.waves.d_state,
            "d_exits": d_exits,
            **self._mixed,
        }
        for step in range(steps - 1, 0, -1):  # nobody reads the states of the last
            kernels.mix_backward[self._grid](
                exit_offsets=plan.exit_offsets, step=step, WIDTH=self.waves.wide["WIDTH"], **messages, num_warps=1
            )
            self.waves.backward(step)
        kernels.begin_backward[(self.row_blocks, self.padded // UNITS.value)](
            WIDTH=UNITS.value, B=16, **messages, num_warps=2
        )
        self.waves.backward(0)
        return self.waves.gradients(plan.offsets, steps + 1)
