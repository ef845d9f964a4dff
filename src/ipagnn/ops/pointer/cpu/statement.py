"""The statement LSTM on a CPU without gradients: products by the BLAS that torch brings, the rest compiled.

It reads and writes states in place, some rows at a time, so that gates stay in the cache between a product and what is
made of it. It does not hold the interpreter lock, so several threads can run it.
"""

from typing import Final

import torch
from torch import Tensor

from ipagnn.ops.call import Execute, PointerCall
from ipagnn.ops.pointer.cpu.compiled_pass import TOKENS, _sigmoids, _tanhs
from ipagnn.ops.pointer.cpu.math import jit, multiply, product, tanh

ROWS: Final = 128
"""Rows at a time: enough for products at full speed."""


def compile_execute(call: PointerCall) -> Execute:
    """`call.execute`, compiled where it is the statement LSTM on a CPU."""
    lstm = call.lstm
    if lstm is None or call.graphs.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return call.execute
    address = product(lstm.bias_2.dtype)
    if address is None:
        return call.execute
    used, places = lstm.tokens.unique(return_inverse=True)  # a small batch has few of all tokens
    words = places.to(torch.int32)
    kernel_2 = torch.cat([lstm.input_2, lstm.hidden_2])
    weights = [x.detach().contiguous().numpy() for x in (lstm.table(used), lstm.hidden_1, kernel_2, lstm.bias_2)]
    hidden = lstm.hidden
    gates, inputs = kernel_2.new_empty(ROWS, 4 * hidden).numpy(), kernel_2.new_empty(ROWS, 2 * hidden).numpy()

    def execute(state: Tensor, node: Tensor) -> Tensor:
        after = state.clone(memory_format=torch.contiguous_format)
        _run(address, *weights, words[node].numpy(), after.numpy(), gates, inputs)  # type: ignore[call-arg]
        return after

    return execute


@jit
def _update(gate, add, memory, output):  # type: ignore[no-untyped-def]
    """One layer's memory and output after a token, from the products of its gates."""
    hidden = len(memory)
    for j in range(4 * hidden):
        gate[j] += add[j]
    i, f, g, o = gate[:hidden], gate[hidden : 2 * hidden], gate[2 * hidden : 3 * hidden], gate[3 * hidden :]
    _sigmoids(gate[: 2 * hidden])
    _tanhs(g)
    _sigmoids(o)
    for j in range(hidden):
        memory[j] = f[j] * memory[j] + i[j] * g[j]
    for j in range(hidden):
        output[j] = o[j] * tanh(memory[j])


@jit
def _run(address, table, hidden_1, kernel_2, bias_2, words, states, all_gates, all_inputs):  # type: ignore[no-untyped-def]
    """The states after the statements of `words` [row, token], in place of those before them."""
    hidden = len(hidden_1)
    for first in range(0, len(states), len(all_gates)):
        state = states[first : first + len(all_gates)]
        gates, inputs = all_gates[: len(state)], all_inputs[: len(state)]
        inputs[:, :hidden] = state[:, hidden : 2 * hidden]
        inputs[:, hidden:] = state[:, 3 * hidden :]
        for k in range(TOKENS):
            multiply(address, inputs[:, :hidden], hidden_1, gates, 0)
            for row in range(len(state)):
                _update(gates[row], table[words[first + row, k]], state[row, :hidden], inputs[row, :hidden])
            multiply(address, inputs, kernel_2, gates, 0)
            for row in range(len(state)):
                _update(gates[row], bias_2, state[row, 2 * hidden : 3 * hidden], inputs[row, hidden:])
        state[:, hidden : 2 * hidden] = inputs[:, :hidden]
        state[:, 3 * hidden :] = inputs[:, hidden:]
