"""GGNN and NoExecute on a CUDA GPU: the order of launches, and the weight gradients."""

from typing import Any

import torch
from torch import Tensor

from ipagnn.ops.messages._compiled.rows import START
from ipagnn.ops.messages.call import Messages
from ipagnn.ops.messages.triton import backward as backward_kernels
from ipagnn.ops.messages.triton import forward as kernels
from ipagnn.ops.messages.triton.launcher import MessageLauncher, Shapes, Tile, Tiles, blocks, clear, product
from ipagnn.ops.messages.triton.plan import KIND_OF_SLOT, MessageCapacity, MessagePlan
from ipagnn.ops.pointer.equations import EPSILON
from ipagnn.ops.pointer.triton.buffers import KernelWeights

SEND_TILES = Tiles(Tile(128, 128, 64, 8, 3), Tile(64, 32, 64, 4, 3))
GATED_TILES = Tiles(Tile(128, 32, 64, 8, 2, registers=128), Tile(64, 32, 64, 4, 3))
ARRIVE_TILES = Tiles(Tile(128, 64, 64, 4, 4), Tile(64, 32, 64, 4, 3))
BACKWARD_TILES = Tiles(Tile(128, 128, 64, 8, 3, blocks=3), Tile(64, 32, 64, 4, 3))


class GatedLauncher(MessageLauncher):
    """GGNN and NoExecute: Dense layers, a GRU, and a pointer or none."""

    def __init__(
        self, how: Messages, weights: KernelWeights, plan: MessagePlan, memory: Tensor, *, exact: bool
    ) -> None:
        super().__init__(how, weights, plan, memory, exact=exact)
        self.pointer, self.absorbs = how.kind != "neighbours", how.kind == "absorbing"
        normalise = self.pointer and how.normalise
        padded, slots, device = self.padded, self.slots, memory.device
        self.w_messages = torch.zeros(padded, slots, padded, dtype=weights.dtype, device=device)
        self.w_input, self.w_hidden = torch.zeros(2, padded, 3, padded, dtype=weights.dtype, device=device)
        self.w_branch = torch.zeros(self.parts, padded, device=device)
        self.b_branch = torch.zeros(1, device=device)
        self.kinds = torch.tensor(KIND_OF_SLOT[slots], device=device)
        self.order = torch.tensor([2, 0, 1], device=device)  # n, r, z, of a GRU's r, z, n
        self.slot_of_kind, self.back = self.kinds.argsort(), self.order.argsort()
        self._rows = {"POINTER": self.pointer, "NORMALISE": normalise, "SLOTS": slots, "PARTS": self.parts}
        self._rows |= self.waves.wide
        self._send, self._gated, self._arrive, self._back = self._tiled(exact=exact)

    def _tiled(self, *, exact: bool) -> tuple[dict[str, Any], ...]:
        """What the four kernels with products read, in which blocks."""
        padded, v = self.padded, self.views
        h, x = v.get("h", v["state"]).view(-1, padded), v["x"].view(-1, padded)
        gates = v["gates"].view(-1, 4 * padded)
        d_messages = v.get("d_messages", v["messages"]).view(-1, self.slots * padded)
        w_messages, w_input, w_hidden = self.w_messages.flatten(1), self.w_input.flatten(1), self.w_hidden.flatten(1)
        (send, self._send_grid), (gated, self._gated_grid) = self.tile(SEND_TILES), self.tile(GATED_TILES)
        (arrive, self._arrive_grid), (back, self._back_grid) = self.tile(ARRIVE_TILES), self.tile(BACKWARD_TILES)
        tiled: tuple[dict[str, Any], ...] = (
            {"states": blocks(h, send.M, send.K), "weights": blocks(w_messages, send.K, send.N)},
            {
                "arrived": blocks(x, gated.M, gated.K),
                "states": blocks(h, gated.M, gated.K),
                "w_input": blocks(w_input, gated.K, gated.N),
                "w_hidden": blocks(w_hidden, gated.K, gated.N),
            },
            {"gradients": blocks(gates, arrive.M, arrive.K), "w_input": blocks(w_input, arrive.N, arrive.K)},
            {
                "gradients": blocks(gates, back.M, back.K),
                "d_sent": blocks(d_messages, back.M, back.K),
                "w_hidden": blocks(w_hidden, back.N, back.K),
                "w_messages": blocks(w_messages, back.N, back.K),
            },
        )
        for arguments, tile in zip(tiled, (send, gated, arrive, back), strict=True):
            arguments |= {"PARTS": self.parts, "P": padded, **tile.arguments(exact=exact)}
        return tiled

    @classmethod
    def shapes(cls, weights: KernelWeights, capacity: MessageCapacity) -> Shapes:
        """See `MessageLauncher`."""
        rows, slots, padded, kind = capacity.rows, capacity.slots, weights.padded, weights.dtype
        shapes: Shapes = {
            "state": ((rows, cls.parts, padded), torch.float32),
            "messages": ((rows, cls.parts, slots, padded), kind),
            "x": ((rows, cls.parts, padded), kind),
            "gates": ((rows, cls.parts, 4, padded), kind),
            "d_state": ((rows, cls.parts, padded), torch.float32),
            "d_x": ((rows, cls.parts, padded), kind),
            **dict.fromkeys(("scales", "pointer", "decision", "d_pointer", "d_score"), ((rows,), torch.float32)),
        }
        if kind != torch.float32:
            shapes["h"] = (rows, cls.parts, padded), kind
        if capacity.kind != "neighbours":  # without a pointer nobody reads messages when their gradients are written
            shapes["d_messages"] = shapes["messages"]
        return shapes

    def forward(self, *weights: Tensor) -> Tensor:
        """See `MessageLauncher`."""
        self.waves.load(*weights[:5])
        dense, bias, w_input, w_hidden, gru_bias, *branch = weights[5:]
        size, plan, v = self.hidden, self.plan, self.views
        self.w_messages[:size, :, :size] = dense[self.kinds].transpose(0, 1)
        self.w_messages[-1, :, :size] = bias[self.kinds]
        self.w_input[:size, :, :size] = w_input.view(size, 3, size)[:, self.order]
        self.w_input[-1, :, :size] = gru_bias.view(3, size)[self.order]
        self.w_hidden[:size, :, :size] = w_hidden.view(size, 3, size)
        if branch:
            self.w_branch[:, :size] = (branch[0][:, 0] - branch[0][:, 1]).view(self.parts, size)
            self.b_branch.copy_((branch[1][0] - branch[1][1])[None])
            v["pointer"].copy_((plan.flags & START) != 0)
        state, h = v["state"], v.get("h", v["state"])
        self.start(state, h)
        for step in range(plan.capacity.steps):
            kernels.send[self._send_grid](
                plan.offsets, step, plan.flags, messages=v["messages"], ALWAYS=False, SLOTS=self.slots, **self._send
            )
            self._gather(step, v["x"])
            kernels.gated_forward[self._gated_grid](
                plan.offsets, step, plan.next, plan.arrival_offsets, bias=self.w_input[-1], state=state, h=h,
                gates=v["gates"], SKIP=self.pointer, **self._gated,
            )  # fmt: skip
        if self.absorbs:
            self._gather(plan.capacity.steps, state)
        return state[plan.final, :, :size].reshape(len(plan.final), -1)

    def _gather(self, step: int, to: Tensor) -> None:
        """What arrives for the updates at the rows of a step, or for the exits that absorb it."""
        plan, v = self.plan, self.views
        kernels.gather[(self.row_blocks,)](
            plan.offsets, step, plan.next, plan.flags, plan.arrival_offsets, plan.arrivals, v["messages"],
            v.get("h", v["state"]), self.w_branch, self.b_branch, v["pointer"], v["decision"], v["scales"], to, EPSILON,
            **self._rows, num_warps=4,
        )  # fmt: skip

    def backward(self, d_final: Tensor) -> tuple[Tensor, ...]:
        """See `MessageLauncher`."""
        size, padded, plan, v = self.hidden, self.padded, self.plan, self.views
        steps, d_messages, h = plan.capacity.steps, v.get("d_messages", v["messages"]), v.get("h", v["state"])
        seeds = d_final.new_zeros(len(d_final), self.parts, padded)
        seeds[:, :, :size] = d_final.view(-1, self.parts, size)
        final, ended = plan.final.long(), steps if self.absorbs else steps + 1  # exits that absorb are never updated
        absorbed = v["state"][final].to(h.dtype) if self.absorbs else None
        for values in (v["gates"], d_messages, v["x"], v["d_score"], v["d_pointer"]):
            clear(plan.offsets, steps, values.view(1, len(values), -1))
        clear(plan.offsets, ended, h.view(1, len(h), -1))
        if absorbed is not None:  # it is to an exit what h~ is to others
            v["x"].index_copy_(0, final, absorbed)
            v["d_x"].index_copy_(0, final, seeds.to(h.dtype))
        else:
            v["d_state"].index_copy_(0, final, seeds)
        for step in reversed(range(ended)):
            if step < steps:
                backward_kernels.arrive_backward[self._arrive_grid](
                    plan.offsets, step, plan.arrival_offsets, d_x=v["d_x"], SKIP=self.pointer, **self._arrive
                )
                backward_kernels.gather_backward[(self.row_blocks,)](
                    plan.offsets, step, plan.next, plan.flags, plan.departure_offsets, plan.departures, plan.targets,
                    v["messages"], v["x"], v["d_x"], d_messages, v["pointer"], v["decision"], v["scales"],
                    v["d_pointer"], v["d_score"], **self._rows, num_warps=4,
                )  # fmt: skip
            backward_kernels.state_products_backward[self._back_grid](  # nobody needs the step's d_x any more
                plan.offsets, step, plan.next, plan.flags, d_h=v["d_x"], SLOTS=self.slots, **self._back
            )
            backward_kernels.update_backward[(self.row_blocks,)](
                plan.offsets, step, plan.next, plan.previous, plan.flags, v["d_x"], h, v["gates"], v["d_state"],
                self.w_branch, v["d_score"], FIRST=step == 0, POINTER=self.pointer, PARTS=self.parts,
                **self.waves.wide, num_warps=1,
            )  # fmt: skip
        lines, gates = h.view(-1, padded), v["gates"].view(-1, 4 * padded)
        d_weight = product(lines, d_messages.view(-1, self.slots * padded)).view(padded, self.slots, padded)[..., :size]
        d_input = product(v["x"].view(-1, padded), gates[:, : 3 * padded]).view(padded, 3, padded)[..., :size]
        d_hidden = product(lines, gates[:, padded:]).view(padded, 3, padded)[:size, :, :size]
        gradients = [
            d_weight[:size].transpose(0, 1)[self.slot_of_kind],
            d_weight[-1][self.slot_of_kind],
            d_input[:size][:, self.back].reshape(size, 3 * size),
            d_hidden.reshape(size, 3 * size),
            d_input[-1][self.back].reshape(3 * size),
        ]
        if self.pointer:
            score = v["d_score"][:, None].to(h.dtype)
            d_branch = product(h.view(len(h), -1), score).view(self.parts, padded, 1)[:, :size].reshape(-1, 1)
            d_bias = v["d_score"].sum()[None]
            gradients += [torch.cat([d_branch, -d_branch], dim=1), torch.cat([d_bias, -d_bias])]
        return *self.start_backward(v["d_state"]), *gradients
