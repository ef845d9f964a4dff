"""The packed step with a hand-written backward pass, in plain torch, for every device; `packed_cpu` compiles its walk.

The arithmetic is that of the dense execution; equations are the paper's. What makes it fast:

- **No autograd graph over the steps.** The forward pass leaves gates, memories and outputs of all rows and tokens in a
  few large buffers; the backward pass walks the steps in reverse and puts the gradients of the gates where these were.
- **Weight gradients at the end**: each a product over all rows and tokens.
- **Few products.** What token k adds to layer 1 is a row of a table; layer 2 reads the output of layer 1 and its own
  side by side, so that a token is one product per layer, forwards and backwards.
"""

from itertools import pairwise

import torch
from torch import Tensor

from ipagnn.ops.pointer.cpu.inputs import Portion, Weights
from ipagnn.ops.pointer.equations import EPSILON

TOKENS = 4

LEAST = 1e-30
"""Probabilities below this are taken for it in logarithms."""

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
        weights: Weights,
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
        self.prepare()

    before: Tensor
    after: Tensor
    inputs: Tensor
    memories: Tensor
    gates: Tensor
    d_states: Tensor
    d_inputs: Tensor

    def place(self, t: int) -> slice:
        """Where in the buffers the rows of step t are."""
        first = self.portion.steps[t] if self.keep else 0
        return slice(first, first + self.portion.steps[t + 1] - self.portion.steps[t])

    def forward(self) -> None:
        """From the first statements to `final`."""
        self.before[self.place(0)] = 0.0
        self.mass[: self.portion.steps[1]] = 1.0
        self.walk()
        if self.normalise:
            self.final *= scale(self.arrived)[:, None]

    def walk(self) -> None:
        """All steps, one after the other."""
        hidden = self.hidden
        for t in range(len(self.portion.steps) - 1):
            here = self.place(t)
            before = self.before[here]
            self.inputs[0, here, hidden:] = before[:, 3 * hidden :]
            for k in range(TOKENS):
                output_1 = before[:, hidden : 2 * hidden] if k == 0 else self.inputs[k - 1, here, :hidden]
                multiply(output_1, self.weights.hidden_1, self.gates[0, k, here])
                self.token(0, k, t)
                multiply(self.inputs[k, here], self.weights.kernel_2, self.gates[1, k, here])
                self.token(1, k, t)
            self.decide(t)
            self.depart(t)

    def trace_loss(self) -> Tensor:
        """Of the decisions that the true traces take: the negative logarithms of their probabilities. [program]"""
        loss = torch.zeros_like(self.arrived)
        if self.portion.taken is not None and self.weights.branch_weight is not None:
            row = (self.portion.taken >= 0).nonzero().squeeze(1)
            probability = self.soft[row, self.portion.taken[row].long()]
            loss.index_add_(0, self.portion.program[row], -probability.clamp(min=LEAST).log())
        return loss

    def _trace_slopes(self, d_trace_loss: Tensor) -> Tensor:
        """The gradient that `trace_loss` gives to the score of each row."""
        taken, slopes = self.portion.taken, self.soft.new_zeros(self.rows)
        if taken is not None:
            missed = self.soft[:, 0] - (taken == 0).to(slopes.dtype)
            slopes = torch.where(taken >= 0, d_trace_loss[self.portion.program] * missed, slopes)
        return slopes

    def backward(self, d_final: Tensor, d_trace_loss: Tensor) -> list[Tensor]:
        """From the gradients of `final` and `trace_loss` to those of the weights, in the order of `Weights.of`.

        Raises:
            RuntimeError: It ran before: the gates are gone.
        """
        if self.memory is None:
            raise RuntimeError("The packed step can go backwards once only; call the model again for a second time.")
        new = self.final.new_empty
        self.d_exit = d_final * scale(self.arrived)[:, None] if self.normalise else d_final.contiguous()
        self.d_arrived = -(self.d_exit * self.final).sum(dim=1) if self.normalise else torch.zeros_like(self.arrived)
        self.d_mass, self.d_score = new(self.rows), self._trace_slopes(d_trace_loss)
        self.walk_back()
        self.memory = None
        return self._weight_gradients()

    def walk_back(self) -> None:
        """All steps in reverse: where the gates were, the gradients of what went into them."""
        hidden, weights = self.hidden, self.weights
        for t in reversed(range(len(self.portion.steps) - 1)):
            here = self.place(t)
            count = here.stop - here.start
            d_state, d_input = self.d_states[t % 2, :count], self.d_inputs[:count]
            self.depart_backward(t)
            for k in reversed(range(TOKENS)):
                self.token_backward(1, k, t)
                multiply(self.gates[1, k, here], weights.kernel_2_t, d_input)
                if k + 1 < TOKENS:
                    add_product(self.gates[0, k + 1, here], weights.hidden_1_t, d_input[:, :hidden])
                self.token_backward(0, k, t)
            if t:
                multiply(self.gates[0, 0, here], weights.hidden_1_t, d_state[:, hidden : 2 * hidden])
                d_state[:, 3 * hidden :] = d_input[:, hidden:]
                if self.normalise:
                    self.arrive_backward(t)

    def _weight_gradients(self) -> list[Tensor]:
        """Each of a product over all rows and tokens."""
        hidden, kind, new = self.hidden, self.weights.hidden_1.dtype, self.final.new_empty
        gates_1, gates_2 = self.gates.view(2, -1, 4 * hidden)
        inputs = self.inputs.view(-1, 2 * hidden)
        d_hidden_1, d_kernel_2 = new(hidden, 4 * hidden), new(2 * hidden, 4 * hidden)
        multiply(self.before[:, hidden : 2 * hidden].t(), gates_1[: self.rows].to(kind), d_hidden_1)
        add_product(inputs[: -self.rows, :hidden].t(), gates_1[self.rows :].to(kind), d_hidden_1)
        multiply(inputs.t(), gates_2.to(kind), d_kernel_2)
        gradients = [self.table_gradient(), d_hidden_1, d_kernel_2[:hidden], d_kernel_2[hidden:], gates_2.sum(dim=0)]
        if self.weights.branch_weight is not None:
            d_weight, d_bias = torch.mv(self.after.t(), self.d_score)[:, None], self.d_score.sum()[None]
            gradients += [torch.cat([d_weight, -d_weight], dim=1), torch.cat([d_bias, -d_bias])]
        return gradients

    # What follows is arithmetic without products.

    def prepare(self) -> None:
        """Work out what the steps need of the plan: the edges to rows and those to exits, each by their source."""
        portion = self.portion
        self._tokens = portion.tokens.t().contiguous()  # [token, row]
        targets = torch.stack([portion.true, portion.false], dim=1).flatten()  # of 2 * row + branch
        ends = torch.tensor(portion.steps, device=targets.device) * 2
        exits = targets >= self.rows

        def by_source(chosen: Tensor, first: int) -> tuple[Tensor, Tensor, list[int]]:
            code = chosen.nonzero().squeeze(1)
            return code, (targets[code] - first).long(), torch.searchsorted(code, ends).tolist()

        self._row_edges, self._exit_edges = by_source((targets >= 0) & ~exits, 0), by_source(exits, self.rows)

    def _edges(self, t: int, *, exits: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Edges that leave step t: 2 * row + branch and row within the step; and where they arrive, within theirs."""
        codes, targets, offsets = self._exit_edges if exits else self._row_edges
        edges = slice(offsets[t], offsets[t + 1])
        code, target = codes[edges] - 2 * self.portion.steps[t], targets[edges]
        return code, code // 2, target if exits else target - self.portion.steps[t + 1]

    def _memory(self, layer: int, k: int, here: slice) -> Tensor:
        """The memory of a layer before token k."""
        part = slice(2 * layer * self.hidden, (2 * layer + 1) * self.hidden)
        if k == 0:
            return self.before[here, part]
        return self.after[here, part] if k == TOKENS else self.memories[layer, k - 1, here]

    def token(self, layer: int, k: int, t: int) -> None:
        """One token of one layer, from the product in its gates to memory and output."""
        here, hidden, steps = self.place(t), self.hidden, self.portion.steps
        gates = self.gates[layer, k, here]
        gates += self.weights.bias_2 if layer else self.weights.table[self._tokens[k, steps[t] : steps[t + 1]]]
        i, f, g, o = gates.chunk(4, dim=1)
        gates[:, : 2 * hidden].sigmoid_()
        g.tanh_()
        o.sigmoid_()
        memory = self._memory(layer, k + 1, here)
        torch.mul(f, self._memory(layer, k, here), out=memory).addcmul_(i, g)
        output = o * memory.tanh()
        if k + 1 == TOKENS:
            self.after[here, (2 * layer + 1) * hidden : (2 * layer + 2) * hidden] = output
        if layer == 0:
            self.inputs[k, here, :hidden] = output
        elif k + 1 < TOKENS:
            self.inputs[k + 1, here, hidden:] = output

    def token_backward(self, layer: int, k: int, t: int) -> None:
        """The same backwards: from the gradients after the token to that of the gates, and of the memory before it."""
        here, hidden = self.place(t), self.hidden
        count = here.stop - here.start
        d_state, d_input = self.d_states[t % 2, :count], self.d_inputs[:count]
        d_memory = d_state[:, 2 * layer * hidden : (2 * layer + 1) * hidden]
        d_output = d_input[:, layer * hidden : (layer + 1) * hidden]
        if k + 1 == TOKENS:
            d_after = d_state[:, (2 * layer + 1) * hidden : (2 * layer + 2) * hidden]
            d_output = d_after if layer else d_output + d_after
        gates = self.gates[layer, k, here]
        i, f, g, o = gates.chunk(4, dim=1)
        shape = self._memory(layer, k + 1, here).tanh()
        d_memory += d_output * o * (1 - shape * shape)
        d_gates = (
            d_memory * g * i * (1 - i),
            d_memory * self._memory(layer, k, here) * f * (1 - f),
            d_memory * i * (1 - g * g),
            d_output * shape * o * (1 - o),
        )
        d_memory *= f
        torch.cat(d_gates, dim=1, out=gates)

    def decide(self, t: int) -> None:
        """The shares of both branches (equation 4)."""
        rows = slice(self.portion.steps[t], self.portion.steps[t + 1])
        soft, shares, one = self.soft[rows], self.shares[rows], self.shares.new_tensor([1.0, 0.0])
        if self.weights.branch_weight is None or self.weights.branch_bias is None:
            shares.copy_(one.expand_as(shares))
            return
        score = torch.mv(self.after[self.place(t)], self.weights.branch_weight) + self.weights.branch_bias
        torch.sigmoid(torch.stack([score, -score], dim=1), out=soft)
        taken = torch.stack([score >= 0, score < 0], dim=1).to(soft.dtype) if self.hard else soft
        torch.where(self.portion.branches[rows, None], taken, one, out=shares)

    def depart(self, t: int) -> None:
        """From the states after step t to those that arrive at the next step and at exits (equations 5 and 6)."""
        steps = self.portion.steps
        rows, after = slice(steps[t], steps[t + 1]), self.after[self.place(t)]
        weights = (self.mass[rows, None] * self.shares[rows]).flatten()
        code, source, target = self._edges(t, exits=True)
        self.final.index_add_(0, target, weights[code, None] * after[source])
        self.arrived.index_add_(0, target, weights[code])
        if t + 2 == len(steps):
            return
        code, source, target = self._edges(t, exits=False)
        state, mass = self.before[self.place(t + 1)].zero_(), self.mass[steps[t + 1] : steps[t + 2]].zero_()
        state.index_add_(0, target, weights[code, None] * after[source])
        mass.index_add_(0, target, weights[code])
        if self.normalise:
            state *= scale(mass)[:, None]

    def depart_backward(self, t: int) -> None:
        """The same backwards, from the gradients of what arrived to those of the states after step t."""
        steps, weights = self.portion.steps, self.weights
        rows, after = slice(steps[t], steps[t + 1]), self.after[self.place(t)]
        mass, shares, soft = self.mass[rows], self.shares[rows], self.soft[rows]
        weight = (mass[:, None] * shares).flatten()
        d_weight = torch.zeros_like(shares)
        d_state, d_next = self.d_states[t % 2, : len(mass)].zero_(), self.d_states[(t + 1) % 2]
        for exits, d_total, d_arrived in (
            (True, self.d_exit, self.d_arrived),
            (False, d_next, self.d_mass[steps[t + 1] :]),
        ):
            code, source, target = self._edges(t, exits=exits)
            gradient = d_total[target]
            d_weight.flatten()[code] = d_arrived[target] + (gradient * after[source]).sum(dim=1)
            d_state.index_add_(0, source, weight[code, None] * gradient)
        torch.sum(shares * d_weight, dim=1, out=self.d_mass[rows])
        if weights.branch_weight is not None:  # decisions by arg max have the gradient of soft ones
            slope = mass * soft[:, 0] * soft[:, 1] * (d_weight[:, 0] - d_weight[:, 1])
            slope = self.d_score[rows].add_(torch.where(self.portion.branches[rows], slope, 0.0))
            d_state += slope[:, None] * weights.branch_weight

    def arrive_backward(self, t: int) -> None:
        """From the gradient of the states before step t to that of the total that arrived there, and of its mass."""
        rows = slice(self.portion.steps[t], self.portion.steps[t + 1])
        d_state = self.d_states[t % 2, : rows.stop - rows.start]
        d_state *= scale(self.mass[rows])[:, None]
        self.d_mass[rows] -= (d_state * self.before[self.place(t)]).sum(dim=1)

    def table_gradient(self) -> Tensor:
        """The gradients of layer 1's gates, summed by token."""
        d_gates = self.gates[0].view(-1, 4 * self.hidden)
        return torch.zeros_like(self.weights.table).index_add_(0, self._tokens.flatten(), d_gates)


def scale(mass: Tensor) -> Tensor:
    """What `pointer.divide` multiplies by."""
    return torch.where(mass > 0, 1.0 / (mass + EPSILON), 1.0)


def multiply(x: Tensor, kernel: Tensor, out: Tensor) -> None:
    """`out = x @ kernel`, in the kernel's type."""
    if x.dtype == kernel.dtype:
        torch.mm(x, kernel, out=out)
    else:
        out.copy_(torch.mm(x.to(kernel.dtype), kernel))


def add_product(x: Tensor, kernel: Tensor, out: Tensor) -> None:
    """`out += x @ kernel`, in the kernel's type."""
    if x.dtype == kernel.dtype:
        out.addmm_(x, kernel)
    else:
        out += torch.mm(x.to(kernel.dtype), kernel)
