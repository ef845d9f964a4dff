"""R-GAT on a CUDA GPU: the order of launches, and the weight gradients."""

import torch
import triton
from torch import Tensor

from ipagnn.models.base import ProgramModel
from ipagnn.models.r_gat import RGAT
from ipagnn.ops.messages.rows import KIND_OF_SLOT
from ipagnn.ops.messages.triton import attention_kernels as attention
from ipagnn.ops.messages.triton import forward as message_triton
from ipagnn.ops.messages.triton.launcher import RowLauncher, Shapes, Tile, Tiles, blocks, clear, product
from ipagnn.ops.messages.triton.plan import MessageCapacity, MessagePlan
from ipagnn.ops.pointer.triton.buffers import Weights

SLOTS = 4
SEND_TILES = Tiles(Tile(128, 128, 64, 8, 3), Tile(64, 32, 64, 4, 3))
BACKWARD_TILES = Tiles(Tile(64, 128, 64, 4, 3), Tile(64, 32, 64, 4, 3))


class AttentionLauncher(RowLauncher):
    """R-GAT: attention over all neighbours. A state is one part."""

    parts = 1

    def __init__(
        self, model: ProgramModel, weights: Weights, plan: MessagePlan, memory: Tensor, *, exact: bool
    ) -> None:
        super().__init__(model, weights, plan, memory, exact=exact)
        assert isinstance(model, RGAT)
        self.attention, self.heads, device = model.attention, model.attention.heads, memory.device
        self.w_messages = torch.zeros(self.padded, SLOTS, self.padded, dtype=weights.dtype, device=device)
        self.query, self.key = torch.zeros(2, SLOTS, self.hidden, device=device)
        self.bias = torch.zeros(self.hidden, device=device)
        self.kinds = torch.tensor(KIND_OF_SLOT[SLOTS], device=device)
        self.slot_of_kind = self.kinds.argsort()
        (send, self._send_grid), (back, self._back_grid) = self.tile(SEND_TILES), self.tile(BACKWARD_TILES)
        wide = self.w_messages.flatten(1)
        h = self.views.get("h", self.views["state"]).view(-1, self.padded)
        self._send = {
            "states": blocks(h, send.M, send.K),
            "weights": blocks(wide, send.K, send.N),
            **send.arguments(exact=exact),
        }
        self._send_backward = {
            "d_sent": blocks(self.views["messages"].flatten(1), back.M, back.K),
            "weights": blocks(wide, back.N, back.K),
            **back.arguments(exact=exact),
        }
        self._heads = {
            "H": self.hidden,
            "P": self.padded,
            "COUNT": self.heads,
            "HEADS": triton.next_power_of_2(self.heads),
            "SLICE": triton.next_power_of_2(self.hidden // self.heads),
        }

    @classmethod
    def shapes(cls, model: ProgramModel, weights: Weights, capacity: MessageCapacity) -> Shapes:
        """See `MessageLauncher`."""
        assert isinstance(model, RGAT)
        rows, edges, heads = capacity.rows, capacity.edges, model.config.heads
        padded, kind, full = weights.padded, weights.dtype, torch.float32
        shapes: Shapes = {
            "state": ((rows, 1, padded), full),
            "messages": ((rows, SLOTS, padded), kind),
            "out": ((rows, padded), full),
            "d_out": ((rows, padded), kind),
            "d_state": ((rows, padded), full),
            "rstd": ((rows,), full),
            "sizes": ((rows, heads), full),
            "logits": ((edges, heads), full),
            "d_logits": ((edges, heads), full),
            "s_query": ((rows, SLOTS, heads), kind),
            "s_key": ((rows, SLOTS, heads), kind),
        }
        if kind != full:
            shapes["h"] = (rows, 1, padded), kind
        return shapes

    def inputs(self) -> tuple[Tensor, ...]:
        """See `MessageLauncher`."""
        return *self.cell_inputs(), *(getattr(self.attention, name) for name in ("kernel", "query", "key", "bias"))

    def forward(self, *weights: Tensor) -> Tensor:
        """See `MessageLauncher`."""
        self.waves.load(*weights[:5])
        kernel, query, key, bias = weights[5:]
        size, plan, v = self.hidden, self.plan, self.views
        self.w_messages[:size, :, :size] = kernel[self.kinds].transpose(0, 1)
        self.query.copy_(query[self.kinds].flatten(1))
        self.key.copy_(key[self.kinds].flatten(1))
        self.bias.copy_(bias)
        state, h = v["state"], v.get("h", v["state"])
        self.start(state, h)
        for step in range(plan.capacity.steps):
            message_triton.send[self._send_grid](
                plan.offsets, step, plan.flags, messages=v["messages"],
                ALWAYS=True, SLOTS=SLOTS, PARTS=1, P=self.padded, **self._send,
            )  # fmt: skip
            attention.attend[(self.row_blocks,)](
                plan.offsets, step, plan.next, plan.arrival_offsets, plan.arrivals, v["messages"], state, h,
                self.query, self.key, self.bias, v["logits"], v["sizes"], v["out"], v["rstd"],
                **self._heads, num_warps=1,
            )  # fmt: skip
        return state[plan.final, 0, :size]

    def backward(self, d_final: Tensor) -> tuple[Tensor, ...]:
        """See `MessageLauncher`. The gradients of messages take the place of these."""
        size, padded, plan, v = self.hidden, self.padded, self.plan, self.views
        steps, h, d_messages = plan.capacity.steps, v.get("h", v["state"]), v["messages"]
        seeds = d_final.new_zeros(len(d_final), padded)
        seeds[:, :size] = d_final
        v["d_state"].index_copy_(0, plan.final.long(), seeds)
        for values in (d_messages, v["d_out"], v["s_query"], v["s_key"]):
            clear(plan.offsets, steps, values.view(1, len(values), -1))
        clear(plan.offsets, steps + 1, h.view(1, len(h), -1))
        for step in reversed(range(steps)):
            attention.attend_backward[(self.row_blocks,)](
                plan.offsets, step, plan.next, plan.flags, plan.arrival_offsets, plan.arrivals, v["messages"],
                v["state"], self.bias, v["logits"], v["sizes"], v["out"], v["rstd"], v["d_logits"], v["d_out"],
                v["d_state"], **self._heads, num_warps=1,
            )  # fmt: skip
            attention.messages_backward[(self.row_blocks,)](
                plan.offsets, step, plan.arrival_offsets, plan.arrivals, plan.departure_offsets, plan.departures,
                plan.targets, self.query, self.key, v["logits"], v["d_logits"], v["d_out"], d_messages, v["s_query"],
                v["s_key"], **self._heads, num_warps=1,
            )  # fmt: skip
            attention.send_backward[self._back_grid](
                plan.offsets, step, d_state=v["d_state"], P=padded, **self._send_backward
            )
        lines, back = h.view(-1, padded), self.slot_of_kind
        d_kernel = product(lines, d_messages.view(-1, SLOTS * padded)).view(padded, SLOTS, padded)[:size, :, :size]
        return (
            *self.start_backward(v["d_state"]),
            d_kernel.transpose(0, 1)[back],
            self._logit_gradient(v["s_query"], lines)[back],
            self._logit_gradient(v["s_key"], lines)[back],
            v["d_out"].float().sum(dim=0)[:size],
        )

    def _logit_gradient(self, sums: Tensor, lines: Tensor) -> Tensor:
        """Of query or key: the sum over rows of sums · g = (sums^T h) W. [slot, head, slice]"""
        size, heads = self.hidden, self.heads
        states = product(sums.view(len(sums), -1), lines).view(SLOTS, heads, -1)[:, :, :size]
        kernel = self.w_messages[:size, :, :size].float().view(size, SLOTS, heads, -1)
        return torch.einsum("khi,ikhs->khs", states, kernel)
