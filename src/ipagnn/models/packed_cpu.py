"""The packed step on a CPU: its arithmetic without products in compiled code, one call where torch needs ten.

Kernels run on one thread and release the interpreter lock. They work row by row, so that a row's gates stay in the
nearest cache, in short loops over few arrays, which is what the compiler turns into vector instructions.
"""

import math
from typing import Any

import numpy as np
import torch
from numba import njit, types
from numba.extending import overload
from torch import Tensor

from ipagnn.models.packed_step import TOKENS, PackedPass
from ipagnn.models.pointer import EPSILON

_jit = njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz", "arcp"})
# Not numbers stay what they are: training looks for them.

_F = np.float32
_MOST = _F(7.99881172180175781)  # where the approximation reaches 1
_ODD = tuple(
    map(_F, (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
             1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03))
)  # fmt: skip
_EVEN = tuple(map(_F, (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)))


def _tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    raise NotImplementedError("compiled code only")


def _sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    raise NotImplementedError("compiled code only")


@overload(_tanh, jit_options={"fastmath": {"contract", "reassoc", "nsz", "arcp"}})
def _tanh_by_type(x):  # type: ignore[no-untyped-def]
    if x != types.float32:
        return lambda x: math.tanh(x)

    def rational(x):  # type: ignore[no-untyped-def]
        """Quotient of polynomials (as in Eigen), within some units in the last place; a call would not be a vector."""
        x = _MOST if x > _MOST else x
        x = -_MOST if x < -_MOST else x
        y = x * x
        p = _ODD[0]
        p = p * y + _ODD[1]
        p = p * y + _ODD[2]
        p = p * y + _ODD[3]
        p = p * y + _ODD[4]
        p = p * y + _ODD[5]
        p = p * y + _ODD[6]
        q = _EVEN[0]
        q = q * y + _EVEN[1]
        q = q * y + _EVEN[2]
        q = q * y + _EVEN[3]
        return x * p / q

    return rational


@overload(_sigmoid, jit_options={"fastmath": {"contract", "reassoc", "nsz", "arcp"}})
def _sigmoid_by_type(x):  # type: ignore[no-untyped-def]
    if x != types.float32:
        return lambda x: 1.0 / (1.0 + math.exp(-x))
    half = _F(0.5)
    return lambda x: half * _tanh(half * x) + half


@_jit
def _sigmoids(x):  # type: ignore[no-untyped-def]
    for j in range(len(x)):
        x[j] = _sigmoid(x[j])


@_jit
def _tanhs(x):  # type: ignore[no-untyped-def]
    for j in range(len(x)):
        x[j] = _tanh(x[j])


@_jit
def _token(gates, before, after, inputs, memories, table, words, layer, k, place, first, count):  # type: ignore[no-untyped-def]
    """See `PackedPass.token`. table: of the tokens, or the bias as the only row; words: [row, token]."""
    hidden = memories.shape[-1]
    for row in range(count):
        at = place + row
        gate = gates[layer, k, at]
        add = table[words[first + row, k] if layer == 0 else 0]
        i, f, g, o = gate[:hidden], gate[hidden : 2 * hidden], gate[2 * hidden : 3 * hidden], gate[3 * hidden :]
        for j in range(4 * hidden):
            gate[j] += add[j]
        _sigmoids(gate[: 2 * hidden])
        _tanhs(g)
        _sigmoids(o)
        part = 2 * layer * hidden
        old = before[at, part : part + hidden] if k == 0 else memories[layer, k - 1, at]
        new = after[at, part : part + hidden] if k + 1 == TOKENS else memories[layer, k, at]
        for j in range(hidden):
            new[j] = f[j] * old[j] + i[j] * g[j]
        if layer == 0:
            out = inputs[k, at, :hidden]
        elif k + 1 < TOKENS:
            out = inputs[k + 1, at, hidden:]
        else:
            out = after[at, 3 * hidden :]
        for j in range(hidden):
            out[j] = o[j] * _tanh(new[j])
        if layer == 0 and k + 1 == TOKENS:
            after[at, hidden : 2 * hidden] = out


@_jit
def _token_backward(gates, before, after, memories, d_states, d_inputs, layer, k, parity, place, count):  # type: ignore[no-untyped-def]
    """See `PackedPass.token_backward`."""
    hidden = memories.shape[-1]
    part = 2 * layer * hidden
    shape, d_output = np.empty(hidden, gates.dtype), np.empty(hidden, gates.dtype)
    one = gates.dtype.type(1)
    for row in range(count):
        at = place + row
        gate = gates[layer, k, at]
        old = before[at, part : part + hidden] if k == 0 else memories[layer, k - 1, at]
        new = after[at, part : part + hidden] if k + 1 == TOKENS else memories[layer, k, at]
        d_memory = d_states[parity, row, part : part + hidden]
        if k + 1 == TOKENS:
            d_output[:] = d_states[parity, row, part + hidden : part + 2 * hidden]
            if layer == 0:
                d_output += d_inputs[row, :hidden]
        else:
            d_output[:] = d_inputs[row, layer * hidden : (layer + 1) * hidden]
        for j in range(hidden):
            shape[j] = _tanh(new[j])
        for j in range(hidden):
            d_memory[j] += d_output[j] * gate[3 * hidden + j] * (one - shape[j] * shape[j])
        for j in range(hidden):
            o = gate[3 * hidden + j]
            gate[3 * hidden + j] = d_output[j] * shape[j] * o * (one - o)
        for j in range(hidden):
            d_m, i, f, g = d_memory[j], gate[j], gate[hidden + j], gate[2 * hidden + j]
            gate[j] = d_m * g * i * (one - i)
            gate[hidden + j] = d_m * old[j] * f * (one - f)
            gate[2 * hidden + j] = d_m * i * (one - g * g)
            d_memory[j] = d_m * f


@_jit
def _decide(after, branch_weight, branch_bias, branches, soft, shares, hard, place, first, count):  # type: ignore[no-untyped-def]
    """See `PackedPass.decide`."""
    for row in range(count):
        shares[first + row, 0] = 1
        shares[first + row, 1] = 0
        if len(branch_weight) and branches[first + row]:
            state = after[place + row]
            score = branch_bias[0]
            for j in range(len(branch_weight)):
                score += state[j] * branch_weight[j]
            true, false = 1 / (1 + math.exp(-score)), 1 / (1 + math.exp(score))
            soft[first + row, 0] = true
            soft[first + row, 1] = false
            shares[first + row, 0] = (score >= 0) if hard else true
            shares[first + row, 1] = (score < 0) if hard else false


@_jit
def _add_scaled(total, weight, values):  # type: ignore[no-untyped-def]
    for j in range(len(values)):
        total[j] += weight * values[j]


@_jit
def _dot(x, y):  # type: ignore[no-untyped-def]
    total = x[0] * y[0]
    for j in range(1, len(x)):
        total += x[j] * y[j]
    return total


@_jit
def _depart(  # type: ignore[no-untyped-def]
    after, before, mass, shares, true, false, final, arrived, normalise, place, first, count, next_place, next_count
):
    """See `PackedPass.depart`."""
    rows = len(mass)
    following = first + count
    for row in range(next_count):
        before[next_place + row, :] = 0
        mass[following + row] = 0
    for row in range(count):
        state = after[place + row]
        for side in range(2):
            target = true[first + row] if side == 0 else false[first + row]
            weight = mass[first + row] * shares[first + row, side]
            if target >= rows:
                arrived[target - rows] += weight
                _add_scaled(final[target - rows], weight, state)
            elif target >= 0:
                mass[target] += weight
                _add_scaled(before[next_place + target - following], weight, state)
    if normalise:
        for row in range(next_count):
            if mass[following + row] > 0:
                divisor = mass[following + row] + before.dtype.type(EPSILON)
                state = before[next_place + row]
                for j in range(len(state)):
                    state[j] /= divisor


@_jit
def _depart_backward(  # type: ignore[no-untyped-def]
    after, mass, shares, soft, branches, true, false, d_exit, d_arrived, d_mass, d_score, d_states, branch_weight,
    parity, place, first, count,
):  # fmt: skip
    """See `PackedPass.depart_backward`."""
    rows = len(mass)
    following = first + count
    for row in range(count):
        here = first + row
        state, d_state = after[place + row], d_states[parity, row]
        d_state[:] = 0
        d_true = d_false = mass.dtype.type(0)
        for side in range(2):
            target = true[here] if side == 0 else false[here]
            if target < 0:
                continue
            if target >= rows:
                gradient, d_weight = d_exit[target - rows], d_arrived[target - rows]
            else:
                gradient, d_weight = d_states[1 - parity, target - following], d_mass[target]
            d_weight += _dot(gradient, state)
            _add_scaled(d_state, mass[here] * shares[here, side], gradient)
            if side == 0:
                d_true = d_weight
            else:
                d_false = d_weight
        d_mass[here] = shares[here, 0] * d_true + shares[here, 1] * d_false
        d_score[here] = 0
        if branches[here] and len(branch_weight):
            d_score[here] = mass[here] * soft[here, 0] * soft[here, 1] * (d_true - d_false)
            _add_scaled(d_state, d_score[here], branch_weight)


@_jit
def _arrive_backward(before, mass, d_mass, d_states, parity, place, first, count):  # type: ignore[no-untyped-def]
    """See `PackedPass.arrive_backward`."""
    for row in range(count):
        d_state = d_states[parity, row]
        if mass[first + row] > 0:
            divisor = mass[first + row] + before.dtype.type(EPSILON)
            for j in range(len(d_state)):
                d_state[j] /= divisor
        d_mass[first + row] -= _dot(d_state, before[place + row])


@_jit
def _table_gradient(d_gates, words, d_table):  # type: ignore[no-untyped-def]
    """See `PackedPass.table_gradient`."""
    for k in range(words.shape[1]):
        for row in range(len(words)):
            _add_scaled(d_table[words[row, k]], d_table.dtype.type(1), d_gates[k, row])


class CompiledPass(PackedPass):
    """`PackedPass`, with kernels for all but the products."""

    def prepare(self) -> None:
        """Look at everything as arrays."""
        weights, portion = self.weights, self.portion
        nothing = self.final.new_empty(0).numpy()
        self._true, self._false = portion.true.numpy(), portion.false.numpy()
        self._words, self._decides = portion.tokens.numpy(), portion.branches.numpy()
        self._tables = weights.table.numpy(), weights.bias_2[None].numpy()
        decides = weights.branch_weight is not None and weights.branch_bias is not None
        self._branch_weight = weights.branch_weight.numpy() if decides else nothing  # type: ignore[union-attr]
        self._branch_bias = weights.branch_bias[None].numpy() if decides else nothing  # type: ignore[index]
        names = ("gates", "before", "after", "inputs", "memories", "mass", "shares", "soft", "final", "arrived")
        self._arrays = {name: getattr(self, name).numpy() for name in names}

    def token(self, layer: int, k: int, t: int) -> None:
        """See `PackedPass`."""
        a, here = self._arrays, self.place(t)
        _token(
            a["gates"], a["before"], a["after"], a["inputs"], a["memories"], self._tables[layer], self._words, layer, k,
            here.start, self.portion.steps[t], here.stop - here.start,
        )  # fmt: skip

    def token_backward(self, layer: int, k: int, t: int) -> None:
        """See `PackedPass`."""
        a, here = self._arrays, self.place(t)
        _token_backward(
            a["gates"], a["before"], a["after"], a["memories"], a["d_states"], a["d_inputs"], layer, k, t % 2,
            here.start, here.stop - here.start,
        )  # fmt: skip

    def decide(self, t: int) -> None:
        """See `PackedPass`."""
        a, here = self._arrays, self.place(t)
        _decide(
            a["after"], self._branch_weight, self._branch_bias, self._decides, a["soft"], a["shares"], self.hard,
            here.start, self.portion.steps[t], here.stop - here.start,
        )  # fmt: skip

    def depart(self, t: int) -> None:
        """See `PackedPass`."""
        a, here = self._arrays, self.place(t)
        following = self.place(t + 1) if t + 2 < len(self.portion.steps) else slice(0, 0)
        _depart(
            a["after"], a["before"], a["mass"], a["shares"], self._true, self._false, a["final"], a["arrived"],
            self.normalise, here.start, self.portion.steps[t], here.stop - here.start,
            following.start, following.stop - following.start,
        )  # fmt: skip

    def begin_backward(self) -> None:
        """See `PackedPass`."""
        for name in ("d_exit", "d_arrived", "d_mass", "d_score", "d_states", "d_inputs"):
            self._arrays[name] = getattr(self, name).numpy()

    def depart_backward(self, t: int) -> None:
        """See `PackedPass`."""
        a, here = self._arrays, self.place(t)
        _depart_backward(
            a["after"], a["mass"], a["shares"], a["soft"], self._decides, self._true, self._false,
            a["d_exit"], a["d_arrived"], a["d_mass"], a["d_score"], a["d_states"], self._branch_weight,
            t % 2, here.start, self.portion.steps[t], here.stop - here.start,
        )  # fmt: skip

    def arrive_backward(self, t: int) -> None:
        """See `PackedPass`."""
        a, here = self._arrays, self.place(t)
        _arrive_backward(
            a["before"], a["mass"], a["d_mass"], a["d_states"],
            t % 2, here.start, self.portion.steps[t], here.stop - here.start,
        )  # fmt: skip

    def table_gradient(self) -> Tensor:
        """See `PackedPass`."""
        gradient = torch.zeros_like(self.weights.table)
        _table_gradient(self._arrays["gates"][0], self._words, gradient.numpy())
        return gradient
