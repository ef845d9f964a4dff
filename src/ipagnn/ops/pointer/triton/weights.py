"""The packed step on a CUDA GPU: weights into the layout of its kernels, gradients back out of it."""

import triton
import triton.language as tl

from ipagnn.ops.pointer.triton.forward import PLAIN


@triton.jit
def load_weights(  # type: ignore[no-untyped-def]
    table, hidden_1, input_2, hidden_2, bias_2, branch, branch_bias,
    to_table, to_weights, to_branch, to_branch_bias,
    H: tl.constexpr, P: tl.constexpr, WIDTH: tl.constexpr, UNITS: tl.constexpr = 1,
):  # fmt: skip
    """A row of a kernel, of the token table, or the branch layer: see `buffers.KernelWeights` for where it goes.

    Programs: 3 H rows of kernels, layer 2's bias, the branch layer, the rows of the table. What pads stays 0. Columns
    become [P / UNITS, 4, UNITS].
    """
    row = tl.program_id(0)
    if row == 3 * H + 1:
        unit = tl.arange(0, WIDTH)
        for part in tl.static_range(4):
            at = branch + 2 * (part * H + unit)
            difference = tl.load(at, mask=unit < H) - tl.load(at + 1, mask=unit < H)
            tl.store(to_branch + part * P + unit, difference, mask=unit < H)
        tl.store(to_branch_bias, tl.load(branch_bias) - tl.load(branch_bias + 1))
    else:
        if row < H:
            source = hidden_1 + row * (4 * H)
            to = to_weights + row * (4 * P)
        elif row < 2 * H:
            source = input_2 + (row - H) * (4 * H)
            to = to_weights + (row - H + P) * (4 * P)
        elif row < 3 * H:
            source = hidden_2 + (row - 2 * H) * (4 * H)
            to = to_weights + (row - 2 * H + 2 * P) * (4 * P)
        elif row == 3 * H:
            source = bias_2
            to = to_weights + (2 * P - 1) * (4 * P)
        else:
            source = table + (row - 3 * H - 2) * (4 * H)
            to = to_table + (row - 3 * H - 2) * (4 * P)
        column = tl.arange(0, 4 * WIDTH)
        owner = column // (4 * UNITS) * UNITS + column % UNITS
        four = tl.load(source + column // UNITS % 4 * H + owner, mask=owner < H)
        tl.store(to + column, four.to(to_weights.dtype.element_ty), mask=owner < H)


@triton.jit
def store_gradients(  # type: ignore[no-untyped-def]
    d_weights, to_hidden_1, to_input_2, to_hidden_2, to_bias_2,
    H: tl.constexpr, P: tl.constexpr, WIDTH: tl.constexpr, UNITS: tl.constexpr = 1,
):  # fmt: skip
    """The reverse of `load_weights` for the gradients of kernels and of layer 2's bias; as many programs."""
    row = tl.program_id(0)
    if row < H:
        source = d_weights + row * (4 * P)
        to = to_hidden_1 + row * (4 * H)
    elif row < 2 * H:
        source = d_weights + (row - H + P) * (4 * P)
        to = to_input_2 + (row - H) * (4 * H)
    elif row < 3 * H:
        source = d_weights + (row - 2 * H + 2 * P) * (4 * P)
        to = to_hidden_2 + (row - 2 * H) * (4 * H)
    else:
        source = d_weights + (2 * P - 1) * (4 * P)
        to = to_bias_2
    column = tl.arange(0, 4 * WIDTH)
    unit = column // (4 * UNITS) * UNITS + column % UNITS
    four = tl.load(source + column, mask=unit < H)
    tl.store(to + column // UNITS % 4 * H + unit, four, mask=unit < H)


@triton.jit
def store_table(  # type: ignore[no-untyped-def]
    first_chunk, partials, to,
    H: tl.constexpr, P: tl.constexpr, N: tl.constexpr, M: tl.constexpr, UNITS: tl.constexpr = 1,
):  # fmt: skip
    """Sums of layer 1's gate gradients over chunks of equal tokens (`token_partials`), added up by token in order."""
    token = tl.program_id(0)
    column = tl.program_id(1) * N + tl.arange(0, N)
    unit = column // (4 * UNITS) * UNITS + column % UNITS
    last = tl.load(first_chunk + token + 1)
    total = tl.zeros((M, N), tl.float32)
    for start in range(tl.load(first_chunk + token), last, M):
        chunk = start + tl.arange(0, M)
        at = partials + chunk[:, None] * (4 * P) + column[None, :]
        total += tl.load(at, mask=(chunk < last)[:, None] & (unit < H)[None, :], other=0.0)
    tl.store(to + token * (4 * H) + column // UNITS % 4 * H + unit, tl.sum(total, axis=0), mask=unit < H)


@triton.jit(do_not_specialize=PLAIN)
def branch_shares(  # type: ignore[no-untyped-def]
    offsets, total_step, h, c, d_score, shares, bias_shares, capacity, P: tl.constexpr, N: tl.constexpr, M: tl.constexpr
):
    """Gradients of the branch layer by a share of the rows: state proposals, weighed by the slopes of their scores.

    Programs: [share, part c1 h1 c2 h2].
    """
    share, part = tl.program_id(0), tl.program_id(1)
    total = tl.load(offsets + total_step)
    count = tl.cdiv(total, tl.num_programs(0))
    last = tl.minimum((share + 1) * count, total)
    column = tl.arange(0, N)
    plane = (4 + 5 * (part // 2)) * capacity.to(tl.int64) * P
    sums = tl.zeros((M, N), tl.float32)
    slopes = tl.zeros((M,), tl.float32)
    for start in range(share * count, last, M):
        rows = start + tl.arange(0, M)
        slope = tl.load(d_score + rows, mask=rows < last, other=0.0)
        at = plane + rows.to(tl.int64)[:, None] * P + column[None, :]
        inside = (rows < last)[:, None] & (column < P)[None, :]
        if part % 2 == 0:
            state = tl.load(c + at, mask=inside, other=0.0)
        else:
            state = tl.load(h + at, mask=inside, other=0.0).to(tl.float32)
        sums += slope[:, None] * state
        slopes += slope
    tl.store(shares + (share * 4 + part) * P + column, tl.sum(sums, axis=0), mask=column < P)
    if part == 0:
        tl.store(bias_shares + share, tl.sum(slopes, axis=0))


@triton.jit
def store_branch(  # type: ignore[no-untyped-def]
    shares, bias_shares, to, to_bias, H: tl.constexpr, P: tl.constexpr, N: tl.constexpr, SHARES: tl.constexpr
):
    """Add up what `branch_shares` found; the two columns of the branch layer have opposite gradients.

    Programs: [part, units].
    """
    part = tl.program_id(0)
    unit = tl.program_id(1) * N + tl.arange(0, N)
    share = tl.arange(0, SHARES)
    at = shares + (share[:, None] * 4 + part) * P + unit[None, :]
    total = tl.sum(tl.load(at, mask=(unit < H)[None, :], other=0.0), axis=0)
    tl.store(to + 2 * (part * H + unit), total, mask=unit < H)
    tl.store(to + 2 * (part * H + unit) + 1, -total, mask=unit < H)
    if part + tl.program_id(1) == 0:
        bias = tl.sum(tl.load(bias_shares + share), axis=0)
        tl.store(to_bias, bias)
        tl.store(to_bias + 1, -bias)


@triton.jit(do_not_specialize=PLAIN)
def clear_tail(offsets, total_step, h, gates, capacity, P: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Zero rows beyond the batch's: the products for the weight gradients run over all rows that there is room for.

    Programs: [rows, plane of h or gates].
    """
    column = tl.arange(0, 4 * WIDTH)
    plane = tl.program_id(1)
    first = tl.load(offsets + total_step)
    for row in range(first + tl.program_id(0), capacity, tl.num_programs(0)):
        if plane < 8:
            to = gates + (plane * capacity.to(tl.int64) + row) * (4 * P) + column
            tl.store(to, tl.zeros((4 * WIDTH,), gates.dtype.element_ty), mask=column < 4 * P)
        else:
            to = h + ((plane - 8) * capacity.to(tl.int64) + row) * P + column
            tl.store(to, tl.zeros((4 * WIDTH,), h.dtype.element_ty), mask=column < P)


@triton.jit
def begin_backward(final, gradient, d_final, along, H: tl.constexpr, P: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """A program's final state: its gradient [4, H] into [4, P], and the product of the two."""
    program = tl.program_id(0).to(tl.int64)
    unit = tl.arange(0, WIDTH)
    inside = unit < H
    total = tl.zeros((WIDTH,), tl.float32)
    for part in tl.static_range(4):
        slope = tl.load(gradient + (program * 4 + part) * H + unit, mask=inside, other=0.0).to(tl.float32)
        at = (program * 4 + part) * P + unit
        tl.store(d_final + at, slope, mask=inside)
        total += slope * tl.load(final + at, mask=inside, other=0.0)
    tl.store(along + program, tl.sum(total, axis=0))
