"""Inference on a CUDA GPU: Triton kernels for a step whose launches are the same whatever step it is.

The arithmetic is that of `pruned.py` and `packed.py`; equations are the paper's. A step is five *waves* (as in
`triton.forward`: token k of LSTM layer 1 and token k - 1 of layer 2 at once) and one `arrive`. Kernels find the step in
device memory (`clock[0] + step`) and from it how many rows there are, so that one CUDA graph of a few steps, replayed,
runs programs of any number of steps.

Rows are the nodes that mass has just arrived at, in no particular order: `arrive` hands out places by counting. What a
row computes does not depend on its place, and what arrives is summed in the order of a node's edges, so that results
are reproducible bit for bit.

Buffers pad H with zeros to P > H. The last padding column of every output h is 1 and carries the bias of layer 2.
"""

import triton
import triton.language as tl

from ipagnn.ops.pointer.triton.forward import apart, load_four, load_state, sigmoid, store_state, tanh

PLAIN = ["step", "capacity", "nodes", "eps", "prune"]
"""Arguments whose values must not make Triton compile a kernel anew."""


@triton.jit(do_not_specialize=PLAIN)
def wave(  # type: ignore[no-untyped-def]
    clock, step, starts, counts, tokens, table, weights, h, c, capacity,
    WAVE: tl.constexpr, IN_PLACE: tl.constexpr, PRECISION: tl.constexpr,
    P: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Token WAVE of layer 1 and token WAVE - 1 of layer 2, for the rows 0 : counts[t].

    With IN_PLACE, rows are programs, which begin where the step before has ended: what is read before token 0 is what
    was written after token 3.

    Shapes: tokens [.., 4], those of step t from starts[t] on; table [token, P, 4]; weights [3, P, 4, P] (hidden_1,
    input_2, hidden_2; the outputs' axes before the inputs', as tensor cores read tf32); h, c [layer, 5, row, P]
    (before token 0, after tokens 0..3).
    """
    t = tl.load(clock) + step
    count = tl.load(counts + t)
    first = tl.load(starts + t)
    across: tl.constexpr = P // N
    both: tl.constexpr = WAVE > 0 and WAVE < 4
    tiles = tl.cdiv(count, M) * across
    plane = capacity.to(tl.int64) * P
    total = tiles * 2 if both else tiles
    # Both layers share one loop: the outputs of layer 1, then, for layer 2, its own.
    old_1 = (4 if IN_PLACE and WAVE == 0 else WAVE) * plane
    old_2 = (9 if IN_PLACE and WAVE == 1 else 4 + WAVE) * plane
    for tile in range(tl.program_id(0), total, tl.num_programs(0)):
        layer_2 = tile < tiles if both else WAVE == 4  # the longer one goes first
        local = tile % tiles if both else tile
        rows = ((local // across) * M + tl.arange(0, M)).to(tl.int64)
        inside = rows < count
        fits = inside[:, None]
        units = (local % across) * N + tl.arange(0, N)
        columns = (local % across) * (4 * N) + tl.arange(0, 4 * N)
        if layer_2:
            gates = tl.zeros((M, 4 * N), tl.float32)
        else:
            word = tl.load(tokens + (first + rows) * 4 + WAVE, mask=inside, other=0).to(tl.int64)
            gates = tl.load(table + word[:, None] * (4 * P) + columns[None, :])
        kernel = tl.where(layer_2, 4 * P * P, 0)
        for start in range(0, tl.where(layer_2, 2 * P, P), K):
            inner = start + tl.arange(0, K)
            own = start >= P
            source = tl.where(own, old_2 - P, old_1) + rows[:, None] * P + inner[None, :]
            left = tl.load(h + source, mask=fits, other=0.0)
            right = tl.load(weights + tl.where(own, 8 * P * P - P, kernel) + columns[None, :] * P + inner[:, None])
            gates = tl.dot(left, right, gates, input_precision=PRECISION)
        at = rows[:, None] * P + units[None, :]
        old = tl.where(layer_2, old_2, old_1)
        new = tl.where(layer_2, 5 + WAVE, 1 + WAVE) * plane
        i, f, g, o = apart(gates, M, N)
        cell = sigmoid(f) * tl.load(c + old + at, mask=fits, other=0.0) + sigmoid(i) * tanh(g)
        tl.store(c + new + at, cell, mask=fits)
        output = tl.where(units[None, :] == P - 1, 1.0, sigmoid(o) * tanh(cell))  # the last one carries the bias
        tl.store(h + new + at, output.to(h.dtype.element_ty), mask=fits)


@triton.jit(do_not_specialize=PLAIN)
def arrive(  # type: ignore[no-untyped-def]
    clock, step, nodes_at, counts, last, exit_of, owner, node_tokens, edge_offsets, edges, decides,
    branch_weight, branch_bias, place, mass, tokens, h, c, capacity, nodes, final, final_mass, dropped,
    origin, pointer, branch, eps, prune,
    NORMALISE: tl.constexpr, HARD: tl.constexpr, TRACE: tl.constexpr, P: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Equations 4 to 6 by destination: from the rows that executed step t - 1 to those of step t, and to the exits.

    Node n takes part up to step last[n], from which the exit can just be reached. Of mass less than `prune` nothing
    follows, and never of none. `place` and `mass` [2, ...] alternate between steps: where a node's row is (-1: it has
    none), and the mass of a row. `branch_weight` [4, P] and `branch_bias` [1] are differences, true minus false.
    """
    t = tl.load(clock) + step
    now = t % 2
    before = 1 - now
    column = tl.arange(0, WIDTH)
    inside = column < P
    plane = capacity.to(tl.int64) * P
    w_c1, w_h1, w_c2, w_h2 = load_four(branch_weight + column, inside, P)
    bias = tl.load(branch_bias)
    for node in range(tl.program_id(0), tl.load(nodes_at + t), tl.num_programs(0)):
        arrived = 0.0
        s_c1 = tl.zeros((WIDTH,), tl.float32)
        s_h1 = tl.zeros((WIDTH,), tl.float32)
        s_c2 = tl.zeros((WIDTH,), tl.float32)
        s_h2 = tl.zeros((WIDTH,), tl.float32)
        takes_part = t <= tl.load(last + node)
        first_edge = tl.load(edge_offsets + node)
        last_edge = tl.where(takes_part, tl.load(edge_offsets + node + 1), first_edge)
        for edge in range(first_edge, last_edge):
            code = tl.load(edges + edge)
            source = code // 2
            row = tl.load(place + before * nodes + source)
            there = row >= 0
            at = 4 * plane + row.to(tl.int64) * P + column
            a_c1, a_h1, a_c2, a_h2 = load_state(h, c, at, plane, inside & there)
            score = tl.sum(a_c1 * w_c1 + a_h1 * w_h1 + a_c2 * w_c2 + a_h2 * w_h2) + bias
            branching = tl.load(decides + source) != 0
            true, false = sigmoid(score), sigmoid(-score)
            if HARD:
                true = tl.where(score >= 0, 1.0, 0.0)
                false = 1.0 - true
            if TRACE:
                told = branch + (t - 1).to(tl.int64) * nodes + tl.load(origin + source)
                tl.store(told, true, mask=there & branching)
            share = tl.where(branching, tl.where(code % 2 == 0, true, false), 1.0)
            weight = tl.load(mass + before * capacity + row, mask=there, other=0.0) * share
            arrived += weight
            s_c1 += weight * a_c1
            s_h1 += weight * a_h1
            s_c2 += weight * a_c2
            s_h2 += weight * a_h2
        program = tl.load(exit_of + node)
        if program >= 0:
            arrived += tl.load(final_mass + program)
            tl.store(final_mass + program, arrived, mask=takes_part)
            total = final + program.to(tl.int64) * (4 * P) + column
            f_c1, f_h1, f_c2, f_h2 = load_four(total, inside, P)
            tl.store(total, f_c1 + s_c1, mask=inside)
            tl.store(total + P, f_h1 + s_h1, mask=inside)
            tl.store(total + 2 * P, f_c2 + s_c2, mask=inside)
            tl.store(total + 3 * P, f_h2 + s_h2, mask=inside)
        else:
            row = -1
            if arrived > 0:
                if arrived >= prune:
                    row = tl.atomic_add(counts + t, 1, sem="relaxed")
                    tl.store(mass + now * capacity + row, arrived)
                    for k in tl.static_range(4):
                        tl.store(tokens + row * 4 + k, tl.load(node_tokens + node * 4 + k))
                    scale = 1.0 / (arrived + eps) if NORMALISE else 1.0
                    at = row.to(tl.int64) * P + column
                    store_state(h, c, at, plane, inside, s_c1 * scale, s_h1 * scale, s_c2 * scale, s_h2 * scale)
                else:
                    tl.atomic_add(dropped + tl.load(owner + node), arrived, sem="relaxed")
            tl.store(place + now * nodes + node, row)
        if TRACE:
            tl.store(pointer + t.to(tl.int64) * nodes + tl.load(origin + node), arrived, mask=takes_part)
