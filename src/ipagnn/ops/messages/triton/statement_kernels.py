"""The LSTM over statements on a CUDA GPU, for many rows at a time: Triton kernels.

The arithmetic, the order of launches and the buffers are those of `ops.pointer.triton`, for tens of thousands of rows
where that has hundreds. What differs is made for large tiles:

- Blocks of states, gates and weights are fetched through tensor descriptors: no registers for addresses.
- The gates of 32 units stand side by side: [P / 32, 4, 32]. In the accumulator of a product each thread then has all
  four gates of its units, and thanks to the order of the columns (`ORDER`) of 8 units in a row: next to nothing needs
  to be exchanged between threads.
- What follows a product forwards is done in slices of its tile, one after the other, so that registers suffice.
- Backwards products and the gates' arithmetic are kernels of their own: the arithmetic, bound by memory, wants many
  small blocks, products few and large ones. Of 9,200 rows both take 61 us, and took 81 in one kernel (H200, H = 200).
"""

import triton
import triton.language as tl

from ipagnn.ops.pointer.triton.backward import gate_gradients
from ipagnn.ops.pointer.triton.forward import PLAIN, load_four
from ipagnn.ops.pointer.triton.forward import sigmoid as exact_sigmoid
from ipagnn.ops.pointer.triton.forward import tanh as exact_tanh

UNITS = tl.constexpr(32)
"""Units whose gates stand side by side."""
ORDER = [8 * quarter + 2 * pair + one for pair in range(4) for quarter in range(4) for one in range(2)]
"""The order of 32 columns of weights that gives each thread 8 in a row of their product: it has 2 of every 8."""


@triton.jit
def tanh(x, EXACT: tl.constexpr):  # type: ignore[no-untyped-def]
    """Of float32; as the GPU has it, to 2^-11, unless EXACT."""
    if EXACT:
        return exact_tanh(x)
    else:
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def sigmoid(x, EXACT: tl.constexpr):  # type: ignore[no-untyped-def]
    """The same: a third of the instructions of exponential and division."""
    if EXACT:
        return exact_sigmoid(x)
    else:
        return 0.5 * tanh(0.5 * x, EXACT) + 0.5


@triton.jit
def halves(total, M: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    """The left and the right half of [M, N]."""
    return tl.split(tl.permute(tl.reshape(total, (M, 2, N // 2)), (0, 2, 1)))


@triton.jit
def _in_order(x, M: tl.constexpr, W: tl.constexpr):  # type: ignore[no-untyped-def]
    """[M, 32] of a product with weights in the order of `ORDER`: columns as they were before, rows as in `_lines`."""
    x = tl.reshape(x, (M // (16 * W), W, 2, 8, 4, 4, 2))
    return tl.reshape(tl.permute(x, (0, 2, 1, 3, 5, 4, 6)), (M, UNITS))


@triton.jit
def _lines(M: tl.constexpr, W: tl.constexpr):  # type: ignore[no-untyped-def]
    """The rows of a tile, first those that W warps store first; a product gives each warp 16 in a row."""
    row = tl.arange(0, M)
    return row // (16 * W) * (16 * W) + row // 8 % W * 16 + row // (8 * W) % 2 * 8 + row % 8


@triton.jit
def store_gates(at, inside, i, f, g, o):  # type: ignore[no-untyped-def]
    """The four gates of units, or their gradients, side by side."""
    kind = at.dtype.element_ty
    tl.store(at, i.to(kind), mask=inside)
    tl.store(at + UNITS, f.to(kind), mask=inside)
    tl.store(at + 2 * UNITS, g.to(kind), mask=inside)
    tl.store(at + 3 * UNITS, o.to(kind), mask=inside)


@triton.jit
def _finish_units(  # type: ignore[no-untyped-def]
    gates, table, c, h, saved, plane, line, inside, begin,
    P: tl.constexpr, M: tl.constexpr, TABLE: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """The gates' arithmetic for 32 units; writes c, h one plane on and keeps the gates for the backward pass."""
    early, late = halves(gates, M, 4 * UNITS)
    i, f = halves(early, M, 2 * UNITS)
    g, o = halves(late, M, 2 * UNITS)
    i, f, g, o = _in_order(i, M, W), _in_order(f, M, W), _in_order(g, M, W), _in_order(o, M, W)
    fits = inside[:, None]
    line = line[:, None]
    inner = tl.arange(0, UNITS)[None, :]
    if TABLE:
        at = table + (4 * begin + inner)
        i += tl.load(at, mask=fits, other=0.0).to(tl.float32)
        f += tl.load(at + UNITS, mask=fits, other=0.0).to(tl.float32)
        g += tl.load(at + 2 * UNITS, mask=fits, other=0.0).to(tl.float32)
        o += tl.load(at + 3 * UNITS, mask=fits, other=0.0).to(tl.float32)
    kind = h.dtype.element_ty
    exact: tl.constexpr = kind == tl.float32
    i, f, g, o = sigmoid(i, exact), sigmoid(f, exact), tanh(g, exact), sigmoid(o, exact)
    at = line * P + begin + inner
    cell = f * tl.load(c + at, mask=fits, other=0.0) + i * g
    tl.store(c + plane + at, cell, mask=fits)
    output = tl.where(begin + inner == P - 1, 1.0, o * tanh(cell, exact))  # the last padding column carries the bias
    tl.store(h + plane + at, output.to(kind), mask=fits)
    at = line * (4 * P) + 4 * begin + inner
    store_gates(saved + at, fits, i, f, g, o)


@triton.jit
def _finish_token(  # type: ignore[no-untyped-def]
    gates, table, c, h, saved, plane, line, inside, begin,
    P: tl.constexpr, M: tl.constexpr, N: tl.constexpr, TABLE: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """`_finish_units` for N units; pointers are at the tile's first row, before the token."""
    if N == UNITS:
        _finish_units(gates, table, c, h, saved, plane, line, inside & (begin < P), begin, P, M, TABLE, W)
    else:
        left, right = halves(gates, M, 4 * N)
        _finish_token(left, table, c, h, saved, plane, line, inside, begin, P, M, N // 2, TABLE, W)
        _finish_token(right, table, c, h, saved, plane, line, inside, begin + N // 2, P, M, N // 2, TABLE, W)


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
    W: tl.constexpr,
):  # fmt: skip
    """Token WAVE of layer 1 and token WAVE - 1 of layer 2, for the rows of a wave of the plan.

    Shapes: tokens [row, 4]; table [token, P / 32, 4, 32]; h, c [layer, 5, row, P] (before token 0, after tokens 0..3);
    gates [layer, 4, row, P / 32, 4, 32]. Descriptors: `states` of h, in blocks [M, K]; `weights` of
    [hidden_1, input_2, hidden_2][P][P / 32][4][32], the last in `ORDER`, in blocks [K, 4 N]. W warps share the rows.
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
        line = _lines(M, W)
        inside = line < last - base
        begin = (local % across) * N
        place = base.to(tl.int64) * P
        row = WAVE * capacity + base
        if (tile < tiles) if both else WAVE == 4:  # layer 2, the longer one, goes first
            total = _gate_products(states, weights, row, row + 4 * capacity, P, begin, P, 2, M, N, K, EXACT)
            old = (4 + WAVE) * plane + place  # layer 2 after WAVE - 1 tokens
            saved = gates + 4 * (old - plane)
            _finish_token(total, table, c + old, h + old, saved, plane, line, inside, begin, P, M, N, False, W)
        else:
            word = tl.load(tokens + (4 * base + WAVE) + 4 * line, mask=inside, other=0)
            entry = table + word[:, None] * (4 * P)
            total = _gate_products(states, weights, row, row, 0, begin, P, 1, M, N, K, EXACT)
            old = WAVE * plane + place
            _finish_token(total, entry, c + old, h + old, gates + 4 * old, plane, line, inside, begin, P, M, N, True, W)


@triton.jit(do_not_specialize=PLAIN)
def products_backward(  # type: ignore[no-untyped-def]
    offsets, step, gradients, weights, d_h, d_state, capacity,
    WAVE: tl.constexpr, P: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Gradients of layer 1's output at token WAVE and of layer 2's at WAVE - 1; -1 stands for the state before token 0.

    The latter go to d_state [4, row, P], of c1, h1, c2, h2, all others to d_h [row, layer, P]. Descriptors: `gradients`
    of gates, in blocks [M, K]; `weights` as in `statement_forward`, but as units are numbered, in blocks [N, K].
    """
    first = tl.load(offsets + step)
    last = tl.load(offsets + step + 1)
    wide: tl.constexpr = 2 * P if WAVE >= 0 else P
    across: tl.constexpr = (wide + N - 1) // N
    plane = capacity.to(tl.int64) * P
    precision: tl.constexpr = "ieee" if EXACT else "tf32"
    for tile in range(tl.program_id(0), tl.cdiv(last - first, M) * across, tl.num_programs(0)):
        base = first + (tile // across) * M
        begin = (tile % across) * N
        units = begin + tl.arange(0, N)[None, :]
        total = tl.zeros((M, N), tl.float32)
        if WAVE < 3:  # from layer 1's next token to layer 1, whose units come first
            for start in range(0, tl.where(begin < P, 4 * P, 0), K):
                left = gradients.load([(WAVE + 1) * capacity + base, start])
                total = tl.dot(left, tl.trans(weights.load([begin, start])), total, input_precision=precision)
            total = tl.where(units < P, total, 0.0)
        if WAVE >= 0:  # from layer 2's token to both
            for start in range(0, 4 * P, K):
                left = gradients.load([(4 + WAVE) * capacity + base, start])
                total = tl.dot(left, tl.trans(weights.load([P + begin, start])), total, input_precision=precision)
        line = tl.arange(0, M)[:, None]
        inside = line < last - base
        place = base.to(tl.int64) * P
        if WAVE >= 0:
            fits = inside & (units < (2 * P if WAVE > 0 else P))
            tl.store(d_h + 2 * place + (line * (2 * P) + units), total.to(d_h.dtype.element_ty), mask=fits)
        if WAVE == 0:
            fits = inside & (units >= P) & (units < 2 * P)
            tl.store(d_state + 3 * plane + place + (line * P + units - P), total, mask=fits)
        if WAVE < 0:
            tl.store(d_state + plane + place + (line * P + units), total, mask=inside & (units < P))


@triton.jit(do_not_specialize=PLAIN)
def gates_backward(  # type: ignore[no-untyped-def]
    offsets, step, c, gates, d_h, d_state, capacity,
    WAVE: tl.constexpr, P: tl.constexpr, WIDTH: tl.constexpr, AFTER: tl.constexpr,
):  # fmt: skip
    """The gates' arithmetic backwards, for token WAVE >= 0 of layer 1 and token WAVE - 1 of layer 2.

    gates holds gates on entry and the gradients of their pre-activations on return; d_state [4, row, P] those of c1,
    h1, c2, h2. At the last token h1's come from outside too. With AFTER the cell state after the token is read, without
    it is computed again from the gates as they were kept.
    """
    first = tl.load(offsets + step)
    count = tl.load(offsets + step + 1) - first
    layers: tl.constexpr = 2 if WAVE > 0 else 1
    plane = capacity.to(tl.int64) * P
    units = tl.arange(0, WIDTH)
    fits = units < P
    for index in range(tl.program_id(0), layers * count, tl.num_programs(0)):
        row = first.to(tl.int64) + index // layers
        layer = index % layers
        at = row * P + units
        d_out = tl.load(d_h + (2 * row + layer) * P + units, mask=fits, other=0.0).to(tl.float32)
        if WAVE == 3:
            d_out += tl.load(d_state + plane + at, mask=fits & (layer == 0), other=0.0).to(tl.float32)
        old = WAVE + 4 * layer  # the plane of c before the token; that of the gates is one less in layer 2
        saved = gates + 4 * ((old - layer) * plane + row * P) + (units // UNITS) * (4 * UNITS) + units % UNITS
        i, f, g, o = load_four(saved, fits, UNITS)
        cell = c + old * plane + at
        before = tl.load(cell, mask=fits, other=0.0)
        after = tl.load(cell + plane, mask=fits, other=0.0) if AFTER else f * before + i * g
        d_cell = d_state + 2 * layer * plane + at
        d_c = tl.load(d_cell, mask=fits, other=0.0).to(tl.float32)
        i, f, g, o, d_before = gate_gradients(d_out, d_c, i, f, g, o, before, after)
        tl.store(d_cell, d_before, mask=fits)
        store_gates(saved, fits, i, f, g, o)
