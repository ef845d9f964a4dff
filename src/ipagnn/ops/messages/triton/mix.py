"""NoControl on a CUDA GPU: Triton kernels that exchange states with all neighbours, over a `StatementPlan`.

h, c [layer, 5, row, P] and gates are those of `message_statements_triton`: states before token 0 and after each token.
Those of exits are in full precision: [c1 h1 c2 h2, exit, P]. Gradients of states have the type of h. See
`message_triton` for what kernels have in common.

With edge types there are several SLOTS, and a Dense for each. It is linear, so states are summed by slot first, x
[c1 h1 c2 h2, row, SLOTS, P], and multiplied where they arrive: once for each reader, however many it reads. The last
column of x is the number of messages, so that the last row of the weights [SLOTS, P, P] is the bias. Both are divided
by the number of messages in all slots.
"""

import triton
import triton.language as tl

from ipagnn.ops.messages.triton.backward import last_token_backward
from ipagnn.ops.pointer.triton.forward import PLAIN, load_four, load_state, store_state


@triton.jit(do_not_specialize=PLAIN)
def begin(offsets, h, c, x, capacity, SLOTS: tl.constexpr, P: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """States of step 0 are 0, and nothing has arrived for them."""
    column = tl.arange(0, WIDTH)
    plane = capacity.to(tl.int64) * P
    zero = tl.zeros((WIDTH,), tl.float32)
    for row in range(tl.program_id(0), tl.load(offsets + 1), tl.num_programs(0)):
        store_state(h, c, row * P + column, plane, column < P, zero, zero, zero, zero)
        if SLOTS > 1:
            for slot in tl.static_range(SLOTS):
                at = (row * SLOTS + slot) * P + column
                _store_four(x + at, column < P, SLOTS * plane, zero, zero, zero, zero)


@triton.jit
def _bounds(offsets, exit_offsets, step, total_step):  # type: ignore[no-untyped-def]
    """Of a step: first row, number of rows, first exit, number of both; then the number of all rows."""
    first = tl.load(offsets + step)
    count = tl.load(offsets + step + 1) - first
    first_exit = tl.load(exit_offsets + step)
    both = count + tl.load(exit_offsets + step + 1) - first_exit
    return first, count, first_exit, both, tl.load(offsets + total_step)


@triton.jit
def _scale(counts, place, eps, NORMALISE: tl.constexpr, SLOTS: tl.constexpr):  # type: ignore[no-untyped-def]
    """What sums at readers are multiplied by: one over the number of messages if NORMALISE."""
    scale = 1.0
    if NORMALISE:
        total = tl.load(counts + place * SLOTS)
        for slot in tl.static_range(1, SLOTS):
            total += tl.load(counts + place * SLOTS + slot)
        scale = 1.0 / (total.to(tl.float32) + eps)
    return scale


@triton.jit(do_not_specialize=PLAIN)
def mix(  # type: ignore[no-untyped-def]
    offsets, exit_offsets, step, total_step, counts, arrival_offsets, arrivals, h, c, exits, x, x_exits,
    capacity, programs, eps,
    NORMALISE: tl.constexpr, SLOTS: tl.constexpr, P: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The states of `step`: sums over N_all of what statements made a step earlier, by their number if NORMALISE.

    With several SLOTS they go to x and x_exits, for `multiply` to make states of. offsets[total_step] rows are all;
    `programs` is the room for exits. Messages, of which two or three arrive, are taken one at a time: threads have
    their columns to themselves.
    """
    column = tl.arange(0, WIDTH)
    inside = column < P
    plane = capacity.to(tl.int64) * P
    exit_plane = programs.to(tl.int64) * P
    first, count, first_exit, both, rows = _bounds(offsets, exit_offsets, step, total_step)
    for index in range(tl.program_id(0), both, tl.num_programs(0)):
        is_row = index < count
        number = tl.where(is_row, first + index, first_exit + index - count)
        place = tl.where(is_row, number, rows + number)
        scale = _scale(counts, place, eps, NORMALISE, SLOTS)
        for slot in tl.static_range(SLOTS):
            s_c1 = tl.zeros((WIDTH,), tl.float32)
            s_h1 = tl.zeros((WIDTH,), tl.float32)
            s_c2 = tl.zeros((WIDTH,), tl.float32)
            s_h2 = tl.zeros((WIDTH,), tl.float32)
            begins = arrival_offsets + place * SLOTS + slot
            for edge in range(tl.load(begins), tl.load(begins + 1)):
                source = tl.load(arrivals + edge)
                if source >= 0:
                    at = 4 * plane + source.to(tl.int64) * P + column
                    c1, h1, c2, h2 = load_state(h, c, at, plane, inside)
                else:
                    at = (-1 - source).to(tl.int64) * P + column
                    c1, h1, c2, h2 = load_four(exits + at, inside, exit_plane)
                s_c1 += c1
                s_h1 += h1
                s_c2 += c2
                s_h2 += h2
            s_c1, s_h1, s_c2, s_h2 = s_c1 * scale, s_h1 * scale, s_c2 * scale, s_h2 * scale
            at = (number.to(tl.int64) * SLOTS + slot) * P + column
            if SLOTS > 1:
                bias = tl.load(counts + place * SLOTS + slot).to(tl.float32) * scale
                real = column < P - 1
                s_c1, s_h1 = tl.where(real, s_c1, bias), tl.where(real, s_h1, bias)
                s_c2, s_h2 = tl.where(real, s_c2, bias), tl.where(real, s_h2, bias)
                if is_row:
                    _store_four(x + at, inside, SLOTS * plane, s_c1, s_h1, s_c2, s_h2)
                else:
                    _store_four(x_exits + at, inside, SLOTS * exit_plane, s_c1, s_h1, s_c2, s_h2)
            elif is_row:
                store_state(h, c, at, plane, inside, s_c1, s_h1, s_c2, s_h2)
            else:
                _store_four(exits + at, inside, exit_plane, s_c1, s_h1, s_c2, s_h2)


@triton.jit
def _store_four(at, inside, stride, c1, h1, c2, h2):  # type: ignore[no-untyped-def]
    """The reverse of `load_four`."""
    kind = at.dtype.element_ty
    tl.store(at, c1.to(kind), mask=inside)
    tl.store(at + stride, h1.to(kind), mask=inside)
    tl.store(at + 2 * stride, c2.to(kind), mask=inside)
    tl.store(at + 3 * stride, h2.to(kind), mask=inside)


@triton.jit(do_not_specialize=PLAIN)
def multiply(  # type: ignore[no-untyped-def]
    offsets, step, x, weights, c, h, capacity,
    LAYER: tl.constexpr, SLOTS: tl.constexpr, P: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """The states of `step` with edge types, of rows or of exits: x, by slots, times the weights.

    c and h begin with those of layer 1, and LAYER planes on come those of layer 2. Descriptors: `x` [part and row,
    SLOTS * P] in blocks [M, K], `weights` [SLOTS * P, P] in blocks [K, N].
    """
    first = tl.load(offsets + step)
    last = tl.load(offsets + step + 1)
    across: tl.constexpr = (P + N - 1) // N
    tiles = tl.cdiv(last - first, M) * across
    for tile in range(tl.program_id(0), 4 * tiles, tl.num_programs(0)):
        part = tile // tiles
        base = first + (tile % tiles // across) * M
        begin = (tile % across) * N
        total = tl.zeros((M, N), tl.float32)
        for start in range(0, SLOTS * P, K):
            left = x.load([part * capacity + base, start])
            right = weights.load([start, begin])
            total = tl.dot(left, right, total, input_precision="ieee" if EXACT else "tf32")
        line = tl.arange(0, M)
        units = begin + tl.arange(0, N)
        fits = (line < last - base)[:, None] & (units < P)[None, :]
        place = (part // 2 * LAYER * capacity.to(tl.int64) + base) * P
        at = line[:, None] * P + units[None, :]
        if part % 2 == 0:
            tl.store(c + place + at, total, mask=fits)
        else:
            tl.store(h + place + at, total.to(h.dtype.element_ty), mask=fits)


@triton.jit(do_not_specialize=PLAIN)
def multiply_backward(  # type: ignore[no-untyped-def]
    offsets, step, gradients, weights, d_x, capacity,
    SLOTS: tl.constexpr, P: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """The gradient of x by those of the states of `step`, of rows or of exits: d_x, laid out like x.

    Descriptors: `gradients` [part and row, P] in blocks [M, K], `weights` in blocks [N, K].
    """
    first = tl.load(offsets + step)
    last = tl.load(offsets + step + 1)
    wide: tl.constexpr = SLOTS * P
    across: tl.constexpr = (wide + N - 1) // N
    tiles = tl.cdiv(last - first, M) * across
    for tile in range(tl.program_id(0), 4 * tiles, tl.num_programs(0)):
        row = tile // tiles * capacity + first + (tile % tiles // across) * M
        begin = (tile % across) * N
        total = tl.zeros((M, N), tl.float32)
        for start in range(0, P, K):
            right = tl.trans(weights.load([begin, start]))
            total = tl.dot(gradients.load([row, start]), right, total, input_precision="ieee" if EXACT else "tf32")
        line = tl.arange(0, M)
        columns = begin + tl.arange(0, N)
        fits = (line < last - first - (tile % tiles // across) * M)[:, None] & (columns < wide)[None, :]
        at = d_x + row.to(tl.int64) * wide + (line[:, None] * wide + columns[None, :])
        tl.store(at, total.to(d_x.dtype.element_ty), mask=fits)


@triton.jit(do_not_specialize=PLAIN)
def mix_backward(  # type: ignore[no-untyped-def]
    offsets, exit_offsets, step, total_step, counts, departure_offsets, departures, h, c, gates, d_state, d_exits,
    d_x, d_x_exits, capacity, programs, eps,
    NORMALISE: tl.constexpr, SLOTS: tl.constexpr, P: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The reverse of `mix`, by source: from the gradients of the next step's sums to those of what `step` made.

    Those of sums are d_x and d_x_exits, which with one slot are d_state and d_exits. The last state of an exit keeps
    the gradient of the loss. For step 0 there is `begin_backward`.
    """
    column = tl.arange(0, WIDTH)
    inside = column < P
    plane = capacity.to(tl.int64) * P
    exit_plane = programs.to(tl.int64) * P
    first_row, count, first_exit, both, rows = _bounds(offsets, exit_offsets, step, total_step)
    for index in range(tl.program_id(0), both, tl.num_programs(0)):
        is_row = index < count
        number = tl.where(is_row, first_row + index, first_exit + index - count)
        place = tl.where(is_row, number, rows + number)
        o_c1 = tl.zeros((WIDTH,), tl.float32)
        o_h1 = tl.zeros((WIDTH,), tl.float32)
        o_c2 = tl.zeros((WIDTH,), tl.float32)
        o_h2 = tl.zeros((WIDTH,), tl.float32)
        begins = departure_offsets + place * SLOTS
        for slot in tl.static_range(SLOTS):
            for edge in range(tl.load(begins + slot), tl.load(begins + slot + 1)):
                target = tl.load(departures + edge)
                going = target >= 0
                scale = _scale(counts, tl.where(going, target, rows - 1 - target), eps, NORMALISE, SLOTS)
                at = (tl.where(going, target, -1 - target).to(tl.int64) * SLOTS + slot) * P + column
                if going:
                    c1, h1, c2, h2 = load_four(d_x + at, inside, SLOTS * plane)
                else:
                    c1, h1, c2, h2 = load_four(d_x_exits + at, inside, SLOTS * exit_plane)
                o_c1 += scale * c1
                o_h1 += scale * h1
                o_c2 += scale * c2
                o_h2 += scale * h2
        if is_row:
            last_token_backward(o_c1, o_h1, o_c2, o_h2, h, c, gates, d_state, number, plane, column, inside, P)
        elif tl.load(begins) < tl.load(begins + SLOTS):
            _store_four(d_exits + number.to(tl.int64) * P + column, inside, exit_plane, o_c1, o_h1, o_c2, o_h2)


@triton.jit(do_not_specialize=PLAIN)
def begin_backward(  # type: ignore[no-untyped-def]
    offsets, total_step, counts, departure_offsets, departures, h, c, gates, d_state, d_x, d_x_exits,
    capacity, programs, eps,
    NORMALISE: tl.constexpr, SLOTS: tl.constexpr, P: tl.constexpr, WIDTH: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """`mix_backward` for step 0, whose statements may begin hundreds of nodes: B messages at a time.

    Programs: [any number, columns / WIDTH].
    """
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = column < P
    plane = capacity.to(tl.int64) * P
    exit_plane = programs.to(tl.int64) * P
    rows = tl.load(offsets + total_step)
    for row in range(tl.program_id(0), tl.load(offsets + 1), tl.num_programs(0)):
        o_c1 = tl.zeros((B, WIDTH), tl.float32)
        o_h1 = tl.zeros((B, WIDTH), tl.float32)
        o_c2 = tl.zeros((B, WIDTH), tl.float32)
        o_h2 = tl.zeros((B, WIDTH), tl.float32)
        for slot in tl.static_range(SLOTS):
            begins = departure_offsets + row * SLOTS + slot
            last = tl.load(begins + 1)
            for start in range(tl.load(begins), last, B):
                edge = start + tl.arange(0, B)
                some = edge < last
                target = tl.load(departures + edge, mask=some, other=0)
                going = target >= 0
                scale = _scale(counts, tl.where(going, target, rows - 1 - target), eps, NORMALISE, SLOTS)
                scale = tl.where(some, scale, 0.0)[:, None]
                at = (tl.where(going, target, -1 - target).to(tl.int64) * SLOTS + slot)[:, None] * P + column[None, :]
                at = tl.where(going[:, None], d_x + at, d_x_exits + at)
                stride = tl.where(going, SLOTS * plane, SLOTS * exit_plane)[:, None]
                c1, h1, c2, h2 = load_four(at, some[:, None] & inside[None, :], stride)
                o_c1 += scale * c1
                o_h1 += scale * h1
                o_c2 += scale * c2
                o_h2 += scale * h2
        last_token_backward(
            tl.sum(o_c1, 0), tl.sum(o_h1, 0), tl.sum(o_c2, 0), tl.sum(o_h2, 0), h, c, gates, d_state, row, plane,
            column, inside, P,
        )  # fmt: skip
