"""The packed step on a CPU with a hand-written backward pass: buffers, and products over all rows.

The arithmetic is that of `ops.reference`; equations are the paper's. What makes it fast:

- **No autograd graph over the steps.** The forward pass leaves gates, memories and outputs of all rows and tokens in a
  few large buffers; the backward pass walks the steps in reverse and puts the gradients of the gates where these were.
- **Weight gradients at the end**: each a product over all rows and tokens.
- **Compiled loops.** `compiled_pass` goes through the steps.
- **Few products.** What token k adds to layer 1 is a row of a table; layer 2 reads the output of layer 1 and its own
  side by side, so that a token is one product per layer, forwards and backwards.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ipagnn.ops.pointer.cpu.compiled_pass import TOKENS, run_steps, run_steps_backward, sum_by_token
from ipagnn.ops.pointer.cpu.inputs import PassWeights, Portion
from ipagnn.ops.pointer.cpu.math import product
from ipagnn.ops.pointer.equations import EPSILON

ALIGNED = 16
"""Buffers begin at multiples of so many numbers: a cache line."""


class PackedPass:
    """One forward pass over a portion, and the backward pass that may follow it once.

    A state is (c1, h1, c2, h2), side by side. In the buffers, `before` and `after` [row, 4 H] are the states before and
    after a row's statement; `inputs` [token, row, 2 H] is what layer 2 reads: the output of layer 1 after the token and
    its own before it; `memories` [layer, token, row, H] are those after tokens 0 to 2; `gates` [layer, token, row, 4 H]
    are i, f, g, o, and later the gradients of what went into them. `d_states` [2, row, 4 H] are the gradients of two
    steps' states, those after the statement and in the end those before it; `d_inputs` [row, 2 H] is that of `inputs`.

    Args:
        weights: Of the model.
        portion: The plan.
        hard: Decide by arg max.
        normalise: Divide arriving states by the mass that arrived.
        keep: Keep the buffers of all rows. If not, there is room for the rows of one step, and only `final`, `mass` and
            `shares` can be read in the end.
        memory: To lay the buffers in, if it is large enough: fresh memory costs a tenth of a pass. [number]
    """

    def __init__(
        self,
        weights: PassWeights,
        portion: Portion,
        *,
        hard: bool,
        normalise: bool,
        keep: bool,
        memory: Tensor | None = None,
    ) -> None:
        self.weights, self.portion, self.hard, self.normalise, self.keep = weights, portion, hard, normalise, keep
        self.hidden = hidden = weights.hidden
        steps = portion.steps
        self.rows = steps[-1]
        self.widest = max(b - a for a, b in pairwise(steps))
        room, work = (self.rows, self.widest) if keep else (self.widest, 0)
        shapes = {
            "before": (room, 4 * hidden),
            "after": (room, 4 * hidden),
            "inputs": (TOKENS, room, 2 * hidden),
            "memories": (2, TOKENS - 1, room, hidden),
            "gates": (2, TOKENS, room, 4 * hidden),
            "d_states": (2, work, 4 * hidden),
            "d_inputs": (work, 2 * hidden),
        }
        new = weights.bias_2.new_empty
        sizes = [-(-torch.Size(shape).numel() // ALIGNED) * ALIGNED for shape in shapes.values()]
        if memory is None or len(memory) < sum(sizes):
            memory = new(sum(sizes) + sum(sizes) // 8 if keep else sum(sizes))  # the next batch may be a little larger
        self.memory: Tensor | None = memory
        for (name, shape), place in zip(shapes.items(), memory[: sum(sizes)].split(sizes), strict=True):
            setattr(self, name, place[: torch.Size(shape).numel()].view(shape))
        self.mass, self.arrived = new(self.rows), new(portion.programs).zero_()
        self.shares, self.soft = new(self.rows, 2), new(self.rows, 2)
        self.final = new(portion.programs, 4 * hidden).zero_()
        self._address, self._steps = product(self.final.dtype), np.array(steps)
        self._words = portion.tokens.numpy()
        self._leaving = portion.branches.numpy(), portion.true.numpy(), portion.false.numpy()

    before: Tensor
    after: Tensor
    inputs: Tensor
    memories: Tensor
    gates: Tensor
    d_states: Tensor
    d_inputs: Tensor

    def forward(self) -> None:
        """From the first statements to `final`."""
        self.before[: self.portion.steps[1]] = 0.0
        self.mass[: self.portion.steps[1]] = 1.0
        weights = self.weights
        run_steps(  # type: ignore[call-arg]
            self._address, self._steps, self.keep, weights.hidden_1.numpy(), weights.weight_2.numpy(),
            weights.table.numpy(), weights.bias_2[None].numpy(), weights.branch_weight.numpy(),
            weights.branch_bias.numpy(), self._words, *self._leaving,
            *self._arrays("gates", "before", "after", "inputs", "memories"),
            *self._arrays("mass", "shares", "soft", "final", "arrived"), self.hard, self.normalise,
        )  # fmt: skip
        if self.normalise:
            self.final *= scale(self.arrived)[:, None]

    def _arrays(self, *names: str) -> list[Any]:
        return [getattr(self, name).numpy() for name in names]

    def backward(self, d_final: Tensor) -> list[Tensor]:
        """From the gradients of `final` to those of the weights, in the order of `PassWeights.of`.

        Raises:
            RuntimeError: It ran before: the gates are gone.
        """
        if self.memory is None:
            raise RuntimeError("The packed step can go backwards once only; call the model again for a second time.")
        new = self.final.new_empty
        self.d_exit = d_final * scale(self.arrived)[:, None] if self.normalise else d_final.contiguous()
        self.d_arrived = -(self.d_exit * self.final).sum(dim=1) if self.normalise else torch.zeros_like(self.arrived)
        self.d_mass, self.d_score = new(self.rows), new(self.rows).zero_()
        run_steps_backward(  # type: ignore[call-arg]
            self._address, self._steps, self.weights.hidden_1_t.numpy(), self.weights.weight_2_t.numpy(),
            self.weights.branch_weight.numpy(), *self._leaving,
            *self._arrays("gates", "before", "after", "memories", "mass", "shares", "soft"),
            *self._arrays("d_exit", "d_arrived", "d_mass", "d_score", "d_states", "d_inputs"), self.normalise,
        )  # fmt: skip
        self.memory = None
        return self._weight_gradients()

    def _weight_gradients(self) -> list[Tensor]:
        """Each of a product over all rows and tokens."""
        hidden, new = self.hidden, self.final.new_empty
        gates_1, gates_2 = self.gates.view(2, -1, 4 * hidden)
        inputs = self.inputs.view(-1, 2 * hidden)
        d_hidden_1, d_weight_2 = new(hidden, 4 * hidden), new(2 * hidden, 4 * hidden)
        torch.mm(self.before[:, hidden : 2 * hidden].t(), gates_1[: self.rows], out=d_hidden_1)
        d_hidden_1.addmm_(inputs[: -self.rows, :hidden].t(), gates_1[self.rows :])
        torch.mm(inputs.t(), gates_2, out=d_weight_2)
        d_table = torch.zeros_like(self.weights.table)
        sum_by_token(self.gates[0].numpy(), self._words, d_table.numpy())
        gradients = [d_table, d_hidden_1, d_weight_2[:hidden], d_weight_2[hidden:], gates_2.sum(dim=0)]
        if len(self.weights.branch_weight):
            d_weight, d_bias = torch.mv(self.after.t(), self.d_score)[:, None], self.d_score.sum()[None]
            gradients += [torch.cat([d_weight, -d_weight], dim=1), torch.cat([d_bias, -d_bias])]
        return gradients


def scale(mass: Tensor) -> Tensor:
    """What `equations.divide` multiplies by."""
    return torch.where(mass > 0, 1.0 / (mass + EPSILON), 1.0)
