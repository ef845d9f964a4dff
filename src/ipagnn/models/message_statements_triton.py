"""The LSTM over statements on a CUDA GPU, for many rows at a time: Triton kernels.

The arithmetic, the order of launches and the buffers are those of `packed_triton`, for tens of thousands of rows where
that has hundreds. What differs is made for large tiles:

- Blocks of states, gates and weights are fetched through tensor descriptors: no registers for addresses.
- The gates of 32 units stand side by side: [P / 32, 4, 32]. In the accumulator of a product each thread then has all
  four gates of its units, so that nothing needs to be exchanged between threads.
- What follows a product is done in slices of its tile, one after the other, so that registers suffice for large ones.
"""

import triton
import triton.language as tl

from ipagnn.models.packed_triton import PLAIN, sigmoid, tanh

UNITS = tl.constexpr(32)
"""Units whose gates stand side by side."""


@triton.jit
def halves(total, M: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    """The left and the right half of [M, N]."""
    return tl.split(tl.permute(tl.reshape(total, (M, 2, N // 2)), (0, 2, 1)))


@triton.jit
def _finish_units(  # type: ignore[no-untyped-def]
    gates, table, c, h, saved, plane, inside, begin, P: tl.constexpr, M: tl.constexpr, TABLE: tl.constexpr
):
    """The gates' arithmetic for 32 units; writes c, h one plane on and keeps the gates for the backward pass."""
    early, late = halves(gates, M, 4 * UNITS)
    i, f = halves(early, M, 2 * UNITS)
    g, o = halves(late, M, 2 * UNITS)
    fits = inside[:, None]
    line = tl.arange(0, M)[:, None]
    inner = tl.arange(0, UNITS)[None, :]
    if TABLE:
        at = table + (4 * begin + inner)
        i += tl.load(at, mask=fits, other=0.0).to(tl.float32)
        f += tl.load(at + UNITS, mask=fits, other=0.0).to(tl.float32)
        g += tl.load(at + 2 * UNITS, mask=fits, other=0.0).to(tl.float32)
        o += tl.load(at + 3 * UNITS, mask=fits, other=0.0).to(tl.float32)
    i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
    at = line * P + begin + inner
    cell = f * tl.load(c + at, mask=fits, other=0.0) + i * g
    kind = h.dtype.element_ty
    tl.store(c + plane + at, cell, mask=fits)
    output = tl.where(begin + inner == P - 1, 1.0, o * tanh(cell))  # the last padding column carries the bias
    tl.store(h + plane + at, output.to(kind), mask=fits)
    at = line * (4 * P) + 4 * begin + inner
    tl.store(saved + at, i.to(kind), mask=fits)
    tl.store(saved + at + UNITS, f.to(kind), mask=fits)
    tl.store(saved + at + 2 * UNITS, g.to(kind), mask=fits)
    tl.store(saved + at + 3 * UNITS, o.to(kind), mask=fits)


@triton.jit
def _finish_token(  # type: ignore[no-untyped-def]
    gates, table, c, h, saved, plane, inside, begin,
    P: tl.constexpr, M: tl.constexpr, N: tl.constexpr, TABLE: tl.constexpr,
):  # fmt: skip
    """`_finish_units` for N units; pointers are at the tile's first row, before the token."""
    if N == UNITS:
        _finish_units(gates, table, c, h, saved, plane, inside & (begin < P), begin, P, M, TABLE)
    else:
        left, right = halves(gates, M, 4 * N)
        _finish_token(left, table, c, h, saved, plane, inside, begin, P, M, N // 2, TABLE)
        _finish_token(right, table, c, h, saved, plane, inside, begin + N // 2, P, M, N // 2, TABLE)


@triton.jit
def _gate_products(  # type: ignore[no-untyped-def]
    states, weights, first_row, second_row, weight_row, begin,
    P: tl.constexpr, PLANES: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """The product of states and weights [M, 4 N]: one plane of states, or two side by side.

    Where K does not divide P, what a block has beyond the last column is 0.
    """
    total = tl.zeros((M, 4 * N), tl.float32)
    length: tl.constexpr = (P + K - 1) // K * K
    for start in range(0, PLANES * length, K):
        early = start < length
        inner = tl.where(early, start, start - length)
        left = states.load([tl.where(early, first_row, second_row), inner])
        right = weights.load([tl.where(early, weight_row, weight_row + P) + inner, 4 * begin])
        total = tl.dot(left, right, total, input_precision="ieee" if EXACT else "tf32")
    return total


@triton.jit(do_not_specialize=PLAIN)
def statement_forward(  # type: ignore[no-untyped-def]
    offsets, step, tokens, table, states, weights, h, c, gates, capacity,
    WAVE: tl.constexpr, P: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Token WAVE of layer 1 and token WAVE - 1 of layer 2, for the rows of a wave of the plan.

    Shapes: tokens [row, 4]; table [token, P / 32, 4, 32]; h, c [layer, 5, row, P] (before token 0, after tokens 0..3);
    gates [layer, 4, row, P / 32, 4, 32]. Descriptors: `states` of h, in blocks [M, K]; `weights` of
    [hidden_1, input_2, hidden_2][P][P / 32][4][32], in blocks [K, 4 N].
    """
    first = tl.load(offsets + step)
    last = tl.load(offsets + step + 1)
    across: tl.constexpr = (P + N - 1) // N
    both: tl.constexpr = WAVE > 0 and WAVE < 4
    tiles = tl.cdiv(last - first, M) * across
    plane = capacity.to(tl.int64) * P
    count = tiles * 2 if both else tiles
    for tile in range(tl.program_id(0), count, tl.num_programs(0)):
        local = tile % tiles if both else tile
        base = first + (local // across) * M
        line = tl.arange(0, M)
        inside = line < last - base
        begin = (local % across) * N
        place = base.to(tl.int64) * P
        row = WAVE * capacity + base
        if (tile < tiles) if both else WAVE == 4:  # layer 2, the longer one, goes first
            total = _gate_products(states, weights, row, row + 4 * capacity, P, begin, P, 2, M, N, K, EXACT)
            old = (4 + WAVE) * plane + place  # layer 2 after WAVE - 1 tokens
            saved = gates + 4 * (old - plane)
            _finish_token(total, table, c + old, h + old, saved, plane, inside, begin, P, M, N, False)
        else:
            word = tl.load(tokens + (4 * base + WAVE) + 4 * line, mask=inside, other=0)
            entry = table + word[:, None] * (4 * P)
            total = _gate_products(states, weights, row, row, 0, begin, P, 1, M, N, K, EXACT)
            old = WAVE * plane + place
            _finish_token(total, entry, c + old, h + old, gates + 4 * old, plane, inside, begin, P, M, N, True)


@triton.jit
def _back_products(  # type: ignore[no-untyped-def]
    gradients, weights, first_row, second_row, first_weight, second_weight, begin,
    P: tl.constexpr, LENGTH: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """The product of gradients and transposed weights [M, N], summed over one pair (LENGTH is 4 P) or two (8 P)."""
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, LENGTH, K):
        early = start < 4 * P
        inner = tl.where(early, start, start - 4 * P)
        left = gradients.load([tl.where(early, first_row, second_row), inner])
        right = weights.load([tl.where(early, first_weight, second_weight) + begin, inner])
        total = tl.dot(left, tl.trans(right), total, input_precision="ieee" if EXACT else "tf32")
    return total


@triton.jit
def _finish_units_backward(  # type: ignore[no-untyped-def]
    d_h, d_cell, c, saved, plane, inside, begin,
    P: tl.constexpr, M: tl.constexpr, S: tl.constexpr, LAST: tl.constexpr, AFTER: tl.constexpr,
):  # fmt: skip
    """The gates' arithmetic backwards for S units: replaces gates by their gradients, d_cell by that before the token.

    At the LAST token d_h comes from outside too: it lies one plane after d_cell. With AFTER the cell state after the
    token is read, without it is computed again from the gates as they were kept.
    """
    line = tl.arange(0, M)[:, None]
    units = begin + tl.arange(0, S)[None, :]
    fits = inside[:, None] & (units < P)
    at = line * (4 * P) + (units // UNITS) * (4 * UNITS) + units % UNITS
    i = tl.load(saved + at, mask=fits, other=0.0).to(tl.float32)
    f = tl.load(saved + at + UNITS, mask=fits, other=0.0).to(tl.float32)
    g = tl.load(saved + at + 2 * UNITS, mask=fits, other=0.0).to(tl.float32)
    o = tl.load(saved + at + 3 * UNITS, mask=fits, other=0.0).to(tl.float32)
    cell_at = line * P + units
    before = tl.load(c + cell_at, mask=fits, other=0.0)
    after = tl.load(c + plane + cell_at, mask=fits, other=0.0) if AFTER else f * before + i * g
    if LAST:
        d_h += tl.load(d_cell + plane + cell_at, mask=fits, other=0.0)
    shape = tanh(after)
    d_c = tl.load(d_cell + cell_at, mask=fits, other=0.0) + d_h * o * (1.0 - shape * shape)
    kind = saved.dtype.element_ty
    tl.store(d_cell + cell_at, d_c * f, mask=fits)
    tl.store(saved + at, (d_c * g * i * (1.0 - i)).to(kind), mask=fits)
    tl.store(saved + at + UNITS, (d_c * before * f * (1.0 - f)).to(kind), mask=fits)
    tl.store(saved + at + 2 * UNITS, (d_c * i * (1.0 - g * g)).to(kind), mask=fits)
    tl.store(saved + at + 3 * UNITS, (d_h * shape * o * (1.0 - o)).to(kind), mask=fits)


@triton.jit
def _finish_token_backward(  # type: ignore[no-untyped-def]
    d_h, d_cell, c, saved, plane, inside, begin,
    P: tl.constexpr, M: tl.constexpr, N: tl.constexpr, S: tl.constexpr, LAST: tl.constexpr, AFTER: tl.constexpr,
):  # fmt: skip
    """`_finish_units_backward` for N units in slices of S."""
    if N == S:
        _finish_units_backward(d_h, d_cell, c, saved, plane, inside, begin, P, M, S, LAST, AFTER)
    else:
        left, right = halves(d_h, M, N)
        _finish_token_backward(left, d_cell, c, saved, plane, inside, begin, P, M, N // 2, S, LAST, AFTER)
        _finish_token_backward(right, d_cell, c, saved, plane, inside, begin + N // 2, P, M, N // 2, S, LAST, AFTER)


@triton.jit(do_not_specialize=PLAIN)
def statement_backward(  # type: ignore[no-untyped-def]
    offsets, step, gradients, weights, c, gates, d_state, capacity,
    WAVE: tl.constexpr, P: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, S: tl.constexpr,
    EXACT: tl.constexpr, AFTER: tl.constexpr,
):  # fmt: skip
    """Token WAVE of layer 1 and token WAVE - 1 of layer 2, backwards; -1 stands for the state before token 0.

    gates holds gates on entry and the gradients of their pre-activations on return; d_state [4, row, P] those of c1,
    h1, c2, h2. Descriptors: `gradients` of gates, in blocks [M, K]; `weights` those of `statement_forward`, but in
    blocks [N, K].
    """
    first = tl.load(offsets + step)
    last = tl.load(offsets + step + 1)
    across: tl.constexpr = (P + N - 1) // N
    tiles = tl.cdiv(last - first, M) * across
    plane = capacity.to(tl.int64) * P
    count = tiles * 2 if WAVE >= 0 else tiles
    for tile in range(tl.program_id(0), count, tl.num_programs(0)):
        local = tile % tiles
        base = first + (local // across) * M
        inside = tl.arange(0, M) < last - base
        begin = (local % across) * N
        place = base.to(tl.int64) * P
        units = begin + tl.arange(0, N)[None, :]
        at = place + (tl.arange(0, M)[:, None] * P + units)
        fits = inside[:, None] & (units < P)
        upper = (4 + WAVE) * capacity + base  # layer 2, token WAVE
        later = (WAVE + 1) * capacity + base  # layer 1, token WAVE + 1
        if tile < tiles:  # layer 1, the longer one, goes first
            if WAVE == 3:
                d_h = _back_products(gradients, weights, upper, upper, P, P, begin, P, 4 * P, M, N, K, EXACT)
            elif WAVE >= 0:
                d_h = _back_products(gradients, weights, upper, later, P, 0, begin, P, 8 * P, M, N, K, EXACT)
            else:
                d_h = _back_products(gradients, weights, later, later, 0, 0, begin, P, 4 * P, M, N, K, EXACT)
            if WAVE >= 0:
                old = WAVE * plane + place
                saved = gates + 4 * old
                d_cell = d_state + place
                _finish_token_backward(d_h, d_cell, c + old, saved, plane, inside, begin, P, M, N, S, WAVE == 3, AFTER)
            else:
                tl.store(d_state + plane + at, d_h, mask=fits)
        else:
            d_h = _back_products(gradients, weights, upper, upper, 2 * P, 2 * P, begin, P, 4 * P, M, N, K, EXACT)
            if WAVE >= 1:
                old = (4 + WAVE) * plane + place  # layer 2 before token WAVE - 1
                saved = gates + 4 * (old - plane)
                d_cell = d_state + 2 * plane + place
                _finish_token_backward(d_h, d_cell, c + old, saved, plane, inside, begin, P, M, N, S, False, AFTER)
            else:
                tl.store(d_state + 3 * plane + at, d_h, mask=fits)
