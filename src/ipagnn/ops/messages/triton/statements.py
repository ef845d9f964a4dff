"""NoControl on a CUDA GPU: the order of launches."""

from typing import Any

import torch
from torch import Tensor

from ipagnn.ops.messages.call import Messages
from ipagnn.ops.messages.triton import mix as kernels
from ipagnn.ops.messages.triton.launcher import (
    MessageLauncher,
    Shapes,
    Tile,
    Tiles,
    blocks,
    clear,
    multiprocessors,
    product,
)
from ipagnn.ops.messages.triton.statement_kernels import UNITS
from ipagnn.ops.messages.triton.statement_plan import StatementCapacity, StatementPlan
from ipagnn.ops.pointer.equations import EPSILON
from ipagnn.ops.pointer.triton.buffers import Weights

PRODUCT_TILES = Tiles(Tile(128, 128, 64, 8, 3), Tile(64, 32, 64, 4, 3))
"""Those that are fastest for `message_triton.send`, whose products have the same shape."""


class StatementLauncher(MessageLauncher[StatementPlan]):
    """NoControl: every statement is executed at every step, and states are exchanged with all neighbours."""

    def __init__(self, how: Messages, weights: Weights, plan: StatementPlan, memory: Tensor, *, exact: bool) -> None:
        super().__init__(how, weights, plan, memory, exact=exact)
        slots, v = plan.capacity.slots, self.views
        self._mixed: dict[str, Any] = {
            "offsets": plan.offsets,
            "total_step": plan.capacity.steps + 1,
            "counts": plan.counts,
            "h": self.waves.buffers.h,
            "c": self.waves.buffers.c,
            "capacity": plan.capacity.statements,
            "programs": plan.capacity.exits,
            "eps": EPSILON,
            "NORMALISE": how.normalise,
            "SLOTS": slots,
            "P": self.padded,
        }
        self.w_messages = torch.zeros(slots, self.padded, self.padded, dtype=weights.dtype, device=memory.device)
        self._products: tuple[_Products, ...] = ()
        if slots > 1:
            b, exits = self.waves.buffers, v["exits"]
            self._products = (
                _Products(self, plan.offsets, (b.c, b.h, 5), v["x"], self.waves.d_state, v["d_x"], exact=exact),
                _Products(
                    self,
                    plan.exit_offsets,
                    (exits, exits[1:], 2),
                    v["x_exits"],
                    v["d_exits"],
                    v["d_x_exits"],
                    exact=exact,
                ),
            )
        self._grid = (2 * self.row_blocks,)  # of one warp each: as many as multiprocessors hold

    @classmethod
    def shapes(cls, weights: Weights, capacity: StatementCapacity) -> Shapes:
        """See `MessageLauncher`."""
        exits = cls.parts, capacity.exits, weights.padded
        shapes: Shapes = {"exits": (exits, torch.float32), "d_exits": (exits, weights.dtype)}
        if capacity.slots > 1:
            for name, rows in (("x", capacity.statements), ("x_exits", capacity.exits)):
                shape = cls.parts, rows, capacity.slots, weights.padded
                shapes |= {name: (shape, weights.dtype), f"d_{name}": (shape, weights.dtype)}
        return shapes

    def forward(self, *weights: Tensor) -> Tensor:
        """See `MessageLauncher`."""
        self.waves.load(*weights[:5])
        for dense, bias in zip(weights[5::2], weights[6::2], strict=True):
            self.w_messages[:, : self.hidden, : self.hidden] = dense
            self.w_messages[:, -1, : self.hidden] = bias
        b, plan, v, slots = self.waves.buffers, self.plan, self.views, self.plan.capacity.slots
        exits = v["exits"]
        x, x_exits = v.get("x", exits), v.get("x_exits", exits)
        kernels.begin[(self.row_blocks,)](plan.offsets, b.h, b.c, x, b.rows, SLOTS=slots, **self.waves.wide)
        self.waves.forward(0)
        for step in range(1, plan.capacity.steps + 1):
            kernels.mix[self._grid](
                exit_offsets=plan.exit_offsets, step=step, arrival_offsets=plan.arrival_offsets, arrivals=plan.arrivals,
                exits=exits, x=x, x_exits=x_exits, WIDTH=self.waves.wide["WIDTH"], **self._mixed, num_warps=1,
            )  # fmt: skip
            for products in self._products:
                products.forward(step)
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
            "d_x": self.views.get("d_x", self.waves.d_state),
            "d_x_exits": self.views.get("d_x_exits", d_exits),
            **self._mixed,
        }
        for step in range(steps - 1, -1, -1):  # nobody reads the states of the last
            for products in self._products:
                products.backward(step + 1)
            if step > 0:
                kernels.mix_backward[self._grid](
                    exit_offsets=plan.exit_offsets, step=step, d_exits=d_exits, WIDTH=self.waves.wide["WIDTH"],
                    **messages, num_warps=1,
                )  # fmt: skip
            else:
                kernels.begin_backward[(self.row_blocks, self.padded // UNITS.value)](
                    WIDTH=UNITS.value, B=16, **messages, num_warps=2
                )
            self.waves.backward(step)
        gradients = self.waves.gradients(plan.offsets, steps + 1)
        if not self._products:
            return gradients
        rows, exits = (products.gradients(steps + 1) for products in self._products)
        d_weights = (rows + exits).view(-1, self.padded, self.padded)[..., : self.hidden]
        return *gradients, d_weights[:, : self.hidden], d_weights[:, -1]


class _Products:
    """Products with the weights of edge types, for rows or for exits.

    Args:
        launcher: Whose weights, and how many slots.
        offsets: First row of each step.
        states: c and h of layer 1, which `forward` writes, and how many planes later those of layer 2 stand.
        x: What arrived, by slots. [part, row, slot, P]
        d_states: Gradients of states, which `backward` reads. [part, row, P]
        d_x: Those of x, which it writes.
        exact: Products of float32 in full precision rather than tf32.
    """

    def __init__(
        self,
        launcher: StatementLauncher,
        offsets: Tensor,
        states: tuple[Tensor, Tensor, int],
        x: Tensor,
        d_states: Tensor,
        d_x: Tensor,
        *,
        exact: bool,
    ) -> None:
        parts, rows, slots, padded = x.shape
        c, h, layer = states
        self.offsets, self.x, self.d_states, self.d_x = offsets, x, d_states, d_x
        weights = launcher.w_messages.view(slots * padded, padded)
        tile = PRODUCT_TILES.choose(parts * rows / (len(offsets) - 2), x.dtype, exact=exact)
        self._grid = (tile.blocks * multiprocessors(x.device),)
        common = {"capacity": rows, "SLOTS": slots, "P": padded, **tile.arguments(exact=exact)}
        self._forward = common | {
            "x": blocks(x.view(-1, slots * padded), tile.M, tile.K),
            "weights": blocks(weights, tile.K, tile.N),
            "LAYER": layer,
            "c": c,
            "h": h,
        }
        self._backward = common | {
            "gradients": blocks(d_states.view(-1, padded), tile.M, tile.K),
            "weights": blocks(weights, tile.N, tile.K),
        }

    def forward(self, step: int) -> None:
        """The states of a step."""
        kernels.multiply[self._grid](self.offsets, step, **self._forward)

    def backward(self, step: int) -> None:
        """The gradients of what arrived for a step."""
        kernels.multiply_backward[self._grid](self.offsets, step, d_x=self.d_x, **self._backward)

    def gradients(self, end: int) -> Tensor:
        """Of the weights [slots * P, P]; offsets[end] rows took part."""
        left, right = self.x.flatten(2), self.d_states
        for values in (left, right):
            clear(self.offsets, end, values)
        return product(left.flatten(0, 1), right.flatten(0, 1))
