"""The loops of a `PackedPass`, compiled: all steps of a pass in one call, products by the BLAS that torch brings.

A pass runs on one thread and does not hold the interpreter lock: two that call torch for each product, hundreds of
times, wait for the lock longer than a second core can make up for in a small batch. Functions work row by row, so that
a row's gates stay in the nearest cache, in short loops over few arrays, which is what the compiler turns into vector
instructions.

Arrays have the names and shapes of the buffers of `PackedPass`. A step has `count` rows: they are `first` and later in
arrays of all rows, and `place` and later in buffers that may hold the rows of one step alone.
"""

import math

import numpy as np

from ipagnn.ops.pointer.cpu.math import jit, multiply, sigmoid, tanh
from ipagnn.ops.pointer.equations import EPSILON

TOKENS = 4
"""Tokens of a statement."""


@jit
def _sigmoids(x):  # type: ignore[no-untyped-def]
    for j in range(len(x)):
        x[j] = sigmoid(x[j])


@jit
def _tanhs(x):  # type: ignore[no-untyped-def]
    for j in range(len(x)):
        x[j] = tanh(x[j])


@jit
def _token(gates, before, after, inputs, memories, table, words, layer, k, place, first, count):  # type: ignore[no-untyped-def]
    """The gates of token k in a layer, from the products of its inputs; then the memory and the output after it.

    Args:
        table: What is added to the gates: of layer 1 a row for each token, of layer 2 its bias as the only row.
        words: Rows of the table. [row, token]
    """
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
            out[j] = o[j] * tanh(new[j])
        if layer == 0 and k + 1 == TOKENS:
            after[at, hidden : 2 * hidden] = out


@jit
def _token_backward(gates, before, after, memories, d_states, d_inputs, layer, k, parity, place, count):  # type: ignore[no-untyped-def]
    """The reverse of `_token`: the gradients of what went into the gates, in place of the gates.

    Those of the memory are in `d_states`, at the step's `parity`, and become those before the token.
    """
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
            shape[j] = tanh(new[j])
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


@jit
def _decide(after, branch_weight, branch_bias, branches, soft, shares, hard, place, first, count):  # type: ignore[no-untyped-def]
    """The shares of both successors (equation 4), and in `soft` what they are before a hard decision."""
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


@jit
def _add_scaled(total, weight, values):  # type: ignore[no-untyped-def]
    for j in range(len(values)):
        total[j] += weight * values[j]


@jit
def _dot(x, y):  # type: ignore[no-untyped-def]
    total = x[0] * y[0]
    for j in range(1, len(x)):
        total += x[j] * y[j]
    return total


@jit
def _depart(  # type: ignore[no-untyped-def]
    after, before, mass, shares, true, false, final, arrived, normalise, place, first, count, next_place, next_count
):
    """Equations 5 and 6, by source: states and mass that arrive at the rows of the next step and at exits."""
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


@jit
def _depart_backward(  # type: ignore[no-untyped-def]
    after, mass, shares, soft, branches, true, false, d_exit, d_arrived, d_mass, d_score, d_states, branch_weight,
    parity, place, first, count,
):  # fmt: skip
    """The reverse of `_depart` and `_decide`: the gradients of the states after the statements of a step."""
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
        if branches[here] and len(branch_weight):
            d_score[here] += mass[here] * soft[here, 0] * soft[here, 1] * (d_true - d_false)
            _add_scaled(d_state, d_score[here], branch_weight)


@jit
def _arrive_backward(before, mass, d_mass, d_states, parity, place, first, count):  # type: ignore[no-untyped-def]
    """The reverse of the division by the mass that arrived."""
    for row in range(count):
        d_state = d_states[parity, row]
        if mass[first + row] > 0:
            divisor = mass[first + row] + before.dtype.type(EPSILON)
            for j in range(len(d_state)):
                d_state[j] /= divisor
        d_mass[first + row] -= _dot(d_state, before[place + row])


@jit
def sum_by_token(d_gates, words, d_table):  # type: ignore[no-untyped-def]
    """Add the gradients of layer 1's gates by token."""
    for k in range(words.shape[1]):
        for row in range(len(words)):
            _add_scaled(d_table[words[row, k]], d_table.dtype.type(1), d_gates[k, row])


@jit
def run_steps(  # type: ignore[no-untyped-def]
    address, steps, keep, hidden_1, weight_2, table, bias, branch_weight, branch_bias, words, branches, true, false,
    gates, before, after, inputs, memories, mass, shares, soft, final, arrived, hard, normalise,
):  # fmt: skip
    """All steps, one after the other."""
    hidden = memories.shape[-1]
    for t in range(len(steps) - 1):
        first, count = steps[t], steps[t + 1] - steps[t]
        place = first if keep else 0
        end = place + count
        inputs[0, place:end, hidden:] = before[place:end, 3 * hidden :]
        for k in range(TOKENS):
            output = before[place:end, hidden : 2 * hidden] if k == 0 else inputs[k - 1, place:end, :hidden]
            multiply(address, output, hidden_1, gates[0, k, place:end], 0)
            _token(gates, before, after, inputs, memories, table, words, 0, k, place, first, count)
            multiply(address, inputs[k, place:end], weight_2, gates[1, k, place:end], 0)
            _token(gates, before, after, inputs, memories, bias, words, 1, k, place, first, count)
        _decide(after, branch_weight, branch_bias, branches, soft, shares, hard, place, first, count)
        next_count = steps[t + 2] - steps[t + 1] if t + 2 < len(steps) else 0
        _depart(
            after, before, mass, shares, true, false, final, arrived, normalise, place, first, count,
            end if keep else 0, next_count,
        )  # fmt: skip


@jit
def run_steps_backward(  # type: ignore[no-untyped-def]
    address, steps, hidden_1_t, weight_2_t, branch_weight, branches, true, false, gates, before, after, memories, mass,
    shares, soft, d_exit, d_arrived, d_mass, d_score, d_states, d_inputs, normalise,
):  # fmt: skip
    """All steps in reverse: where the gates were, the gradients of what went into them."""
    hidden = memories.shape[-1]
    for t in range(len(steps) - 2, -1, -1):
        first, count, parity = steps[t], steps[t + 1] - steps[t], t % 2
        end = first + count
        d_state, d_input = d_states[parity, :count], d_inputs[:count]
        _depart_backward(
            after, mass, shares, soft, branches, true, false, d_exit, d_arrived, d_mass, d_score, d_states,
            branch_weight, parity, first, first, count,
        )  # fmt: skip
        for k in range(TOKENS - 1, -1, -1):
            _token_backward(gates, before, after, memories, d_states, d_inputs, 1, k, parity, first, count)
            multiply(address, gates[1, k, first:end], weight_2_t, d_input, 0)
            if k + 1 < TOKENS:
                multiply(address, gates[0, k + 1, first:end], hidden_1_t, d_input[:, :hidden], 1)
            _token_backward(gates, before, after, memories, d_states, d_inputs, 0, k, parity, first, count)
        if t:
            multiply(address, gates[0, 0, first:end], hidden_1_t, d_state[:, hidden : 2 * hidden], 0)
            d_state[:, 3 * hidden :] = d_input[:, hidden:]
            if normalise:
                _arrive_backward(before, mass, d_mass, d_states, parity, first, first, count)
