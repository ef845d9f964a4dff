"""The packed step on a CUDA GPU: Triton kernels for its forward and backward pass.

The arithmetic is that of `packed.py`; equations are the paper's. What makes it fast:

- **Few launches.** A step is five *waves* and one aggregation. Wave k runs token k of LSTM layer 1 and token k - 1 of
  layer 2 at once (they do not depend on each other), as one matrix product with the gates' arithmetic at its end. The
  backward pass mirrors it.
- **Nothing depends on the host.** Kernels read the number of rows from device memory and loop over tiles, so that one
  CUDA graph serves all batches that fit its buffers.
- **No atomics.** State arrives by destination (`Rows.arrivals`), gradients of the token table by token (`Plan.order`);
  both are sums in a fixed order, so that a step is reproducible bit for bit.
- **Weight gradients at the end**: each a single product over all rows and tokens.

Buffers pad rows up to a fixed capacity, and the hidden size H with zeros to P > H, a multiple of 32. The last padding
column of every output h is 1, so that layer 2's bias is the last row of `input_2` and its gradient comes with the
product.
"""

import triton
import triton.language as tl

PLAIN = ["step", "total_step", "capacity", "programs", "eps"]
"""Arguments whose values must not make Triton compile a kernel anew."""


@triton.jit
def sigmoid(x):  # type: ignore[no-untyped-def]
    """Of float32."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def tanh(x):  # type: ignore[no-untyped-def]
    """Of float32; exact enough where its argument is not tiny."""
    return 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0


@triton.jit
def _gate_products(  # type: ignore[no-untyped-def]
    total, states, weights, first_plane, second_plane, rows, inside, columns,
    P: tl.constexpr, LENGTH: tl.constexpr, K: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Add states @ weights to the gates: one plane of states, or two side by side in a single loop.

    weights: [LENGTH, 4 P], where LENGTH is P or 2 P; columns: of the 4 P.
    """
    for start in range(0, LENGTH, K):
        plane = tl.where(start < P, first_plane, second_plane - P)
        inner = start + tl.arange(0, K)
        left = tl.load(states + plane + rows[:, None] * P + inner[None, :], mask=inside[:, None], other=0.0)
        right = tl.load(weights + inner[:, None] * (4 * P) + columns[None, :])
        total = tl.dot(left, right, total, input_precision="ieee" if EXACT else "tf32")
    return total


@triton.jit
def apart(gates, M: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    """i, f, g, o [M, N] of [M, 4 N], where they lie side by side."""
    even, odd = tl.split(tl.reshape(gates, (M, N, 2, 2)))
    i, g = tl.split(even)
    f, o = tl.split(odd)
    return i, f, g, o


@triton.jit
def together(i, f, g, o, M: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    """The reverse of `apart`."""
    return tl.reshape(tl.join(tl.join(i, g), tl.join(f, o)), (M, 4 * N))


@triton.jit
def _finish_token(  # type: ignore[no-untyped-def]
    gates, c, h, saved, at, gate_at, plane, fits, units, P: tl.constexpr, M: tl.constexpr, N: tl.constexpr
):
    """The gates' arithmetic; writes c, h one plane on (after the token) and keeps the gates for the backward pass."""
    i, f, g, o = apart(gates, M, N)
    i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
    cell = f * tl.load(c + at, mask=fits, other=0.0) + i * g
    kind = h.dtype.element_ty
    tl.store(c + plane + at, cell, mask=fits)
    output = tl.where(units[None, :] == P - 1, 1.0, o * tanh(cell))  # the last padding column carries the bias
    tl.store(h + plane + at, output.to(kind), mask=fits)
    tl.store(saved + gate_at, together(i, f, g, o, M, N).to(kind), mask=fits)


@triton.jit
def load_four(at, fits, stride):  # type: ignore[no-untyped-def]
    """Four blocks, `stride` apart, as float32."""
    return (
        tl.load(at, mask=fits, other=0.0).to(tl.float32),
        tl.load(at + stride, mask=fits, other=0.0).to(tl.float32),
        tl.load(at + 2 * stride, mask=fits, other=0.0).to(tl.float32),
        tl.load(at + 3 * stride, mask=fits, other=0.0).to(tl.float32),
    )


@triton.jit(do_not_specialize=PLAIN)
def wave_forward(  # type: ignore[no-untyped-def]
    offsets, step, tokens, table, weights, h, c, gates, capacity,
    WAVE: tl.constexpr, P: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Token WAVE of layer 1 and token WAVE - 1 of layer 2, for all rows of one step.

    Shapes: tokens [row, 4]; table [token, P, 4]; weights [3, P, P, 4] (hidden_1, input_2, hidden_2);
    h, c [layer, 5, row, P] (before token 0, after tokens 0..3); gates [layer, 4, row, P, 4].
    """
    first = tl.load(offsets + step)
    last = tl.load(offsets + step + 1)
    across: tl.constexpr = P // N
    both: tl.constexpr = WAVE > 0 and WAVE < 4
    tiles = tl.cdiv(last - first, M) * across
    plane = capacity.to(tl.int64) * P
    count = tiles * 2 if both else tiles
    for tile in range(tl.program_id(0), count, tl.num_programs(0)):
        local = tile % tiles if both else tile
        rows = (first + (local // across) * M + tl.arange(0, M)).to(tl.int64)
        inside = rows < last
        fits = inside[:, None]
        units = (local % across) * N + tl.arange(0, N)
        columns = (local % across) * (4 * N) + tl.arange(0, 4 * N)
        at = rows[:, None] * P + units[None, :]
        gate_at = rows[:, None] * (4 * P) + columns[None, :]
        if (tile < tiles) if both else WAVE == 4:  # layer 2, the longer one, goes first
            total = tl.zeros((M, 4 * N), tl.float32)
            old = (4 + WAVE) * plane  # layer 2 after WAVE - 1 tokens
            total = _gate_products(
                total, h, weights + 4 * P * P, WAVE * plane, old, rows, inside, columns, P, 2 * P, K, EXACT
            )
            _finish_token(total, c + old, h + old, gates + 4 * (old - plane), at, gate_at, plane, fits, units, P, M, N)
        else:
            word = tl.load(tokens + rows * 4 + WAVE, mask=inside, other=0).to(tl.int64)
            total = tl.load(table + word[:, None] * (4 * P) + columns[None, :]).to(tl.float32)
            old = WAVE * plane
            total = _gate_products(total, h, weights, old, old, rows, inside, columns, P, P, K, EXACT)
            _finish_token(total, c + old, h + old, gates + 4 * old, at, gate_at, plane, fits, units, P, M, N)


@triton.jit
def load_state(h, c, at, plane, inside):  # type: ignore[no-untyped-def]
    """(c1, h1, c2, h2) of a row; `at` points into layer 1's plane, layer 2's is five planes on."""
    return (
        tl.load(c + at, mask=inside, other=0.0),
        tl.load(h + at, mask=inside, other=0.0).to(tl.float32),
        tl.load(c + 5 * plane + at, mask=inside, other=0.0),
        tl.load(h + 5 * plane + at, mask=inside, other=0.0).to(tl.float32),
    )


@triton.jit
def store_state(h, c, at, plane, inside, c1, h1, c2, h2):  # type: ignore[no-untyped-def]
    """The reverse of `load_state`."""
    kind = h.dtype.element_ty
    tl.store(c + at, c1, mask=inside)
    tl.store(h + at, h1.to(kind), mask=inside)
    tl.store(c + 5 * plane + at, c2, mask=inside)
    tl.store(h + 5 * plane + at, h2.to(kind), mask=inside)


@triton.jit(do_not_specialize=PLAIN)
def aggregate(  # type: ignore[no-untyped-def]
    offsets, step, arrival_offsets, arrivals, branches, branch_weight, branch_bias, pointer, decision,
    h, c, capacity, final, final_mass, programs, eps,
    EXITS: tl.constexpr, NORMALISE: tl.constexpr, HARD: tl.constexpr, P: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Equations 4 to 6 by destination: state and pointer mass that arrive at the rows of `step`, or at the exits.

    Every arrival's branch decision is computed from its source's state proposal, which is read here anyway.
    `branch_weight` [4, P] and `branch_bias` [1] are differences (true minus false): a softmax of two is a sigmoid.
    """
    column = tl.arange(0, WIDTH)
    inside = column < P
    plane = capacity.to(tl.int64) * P
    w_c1, w_h1, w_c2, w_h2 = load_four(branch_weight + column, inside, P)
    bias = tl.load(branch_bias)
    if EXITS:
        first = tl.load(offsets + step)  # `step` is the last one: exits come after all rows
        count = programs
    else:
        first = tl.load(offsets + step)
        count = tl.load(offsets + step + 1) - first
    for index in range(tl.program_id(0), count, tl.num_programs(0)):
        destination = first + index
        mass = 0.0
        s_c1 = tl.zeros((WIDTH,), tl.float32)
        s_h1 = tl.zeros((WIDTH,), tl.float32)
        s_c2 = tl.zeros((WIDTH,), tl.float32)
        s_h2 = tl.zeros((WIDTH,), tl.float32)
        for edge in range(tl.load(arrival_offsets + destination), tl.load(arrival_offsets + destination + 1)):
            code = tl.load(arrivals + edge)
            source = (code // 2).to(tl.int64)
            a_c1, a_h1, a_c2, a_h2 = load_state(h, c, 4 * plane + source * P + column, plane, inside)
            branching = tl.load(branches + source) != 0
            score = tl.sum(a_c1 * w_c1 + a_h1 * w_h1 + a_c2 * w_c2 + a_h2 * w_h2) + bias
            true = sigmoid(score)
            tl.store(decision + source, true)
            if HARD:
                true = tl.where(true >= 0.5, 1.0, 0.0)
            true = tl.where(branching, true, 1.0)
            weight = tl.load(pointer + source) * tl.where(code % 2 == 0, true, 1.0 - true)
            mass += weight
            s_c1 += weight * a_c1
            s_h1 += weight * a_h1
            s_c2 += weight * a_c2
            s_h2 += weight * a_h2
        scale = tl.where(mass > 0, 1.0 / (mass + eps), 1.0) if NORMALISE else 1.0
        if EXITS:
            at = final + index * (4 * P) + column
            tl.store(final_mass + index, mass)
            tl.store(at, s_c1 * scale, mask=inside)
            tl.store(at + P, s_h1 * scale, mask=inside)
            tl.store(at + 2 * P, s_c2 * scale, mask=inside)
            tl.store(at + 3 * P, s_h2 * scale, mask=inside)
        else:
            tl.store(pointer + destination, mass)
            at_row = destination * P + column
            store_state(h, c, at_row, plane, inside, s_c1 * scale, s_h1 * scale, s_c2 * scale, s_h2 * scale)


@triton.jit(do_not_specialize=PLAIN)
def begin(offsets, pointer, h, c, capacity, P: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Rows of step 0 start with all mass and state 0."""
    column = tl.arange(0, WIDTH)
    inside = column < P
    plane = capacity.to(tl.int64) * P
    zero = tl.zeros((WIDTH,), tl.float32)
    for row in range(tl.program_id(0), tl.load(offsets + 1), tl.num_programs(0)):
        tl.store(pointer + row, 1.0)
        store_state(h, c, row * P + column, plane, inside, zero, zero, zero, zero)
