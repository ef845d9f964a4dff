"""NoControl on a CUDA GPU: Triton kernels that exchange states with all neighbours, over a `StatementPlan`.

h, c [layer, 5, row, P] and gates are those of `message_statements_triton`: states before token 0 and after each token.
Those of exits are in full precision: [c1 h1 c2 h2, exit, P]. Gradients of states have the type of h. See
`message_triton` for what kernels have in common.
"""

import triton
import triton.language as tl

from ipagnn.models.message_triton_backward import last_token_backward
from ipagnn.models.packed_triton import PLAIN, load_four, load_state, store_state


@triton.jit(do_not_specialize=PLAIN)
def begin(offsets, h, c, capacity, P: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """States of step 0 are 0."""
    column = tl.arange(0, WIDTH)
    plane = capacity.to(tl.int64) * P
    zero = tl.zeros((WIDTH,), tl.float32)
    for row in range(tl.program_id(0), tl.load(offsets + 1), tl.num_programs(0)):
        store_state(h, c, row * P + column, plane, column < P, zero, zero, zero, zero)


@triton.jit
def _bounds(offsets, exit_offsets, step, total_step):  # type: ignore[no-untyped-def]
    """Of a step: first row, number of rows, first exit, number of both; then the number of all rows."""
    first = tl.load(offsets + step)
    count = tl.load(offsets + step + 1) - first
    first_exit = tl.load(exit_offsets + step)
    both = count + tl.load(exit_offsets + step + 1) - first_exit
    return first, count, first_exit, both, tl.load(offsets + total_step)


@triton.jit(do_not_specialize=PLAIN)
def mix(  # type: ignore[no-untyped-def]
    offsets, exit_offsets, step, total_step, counts, arrival_offsets, arrivals, h, c, exits, capacity, programs, eps,
    NORMALISE: tl.constexpr, P: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The states of `step`: sums over N_all of what statements made a step earlier, by their number if NORMALISE.

    offsets[total_step] rows are all; `programs` is the room for exits. Messages, of which two or three arrive, are
    taken one at a time: threads have their columns to themselves.
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
        s_c1 = tl.zeros((WIDTH,), tl.float32)
        s_h1 = tl.zeros((WIDTH,), tl.float32)
        s_c2 = tl.zeros((WIDTH,), tl.float32)
        s_h2 = tl.zeros((WIDTH,), tl.float32)
        for edge in range(tl.load(arrival_offsets + place), tl.load(arrival_offsets + place + 1)):
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
        scale = 1.0 / (tl.load(counts + place).to(tl.float32) + eps) if NORMALISE else 1.0
        at = number.to(tl.int64) * P + column
        if is_row:
            store_state(h, c, at, plane, inside, s_c1 * scale, s_h1 * scale, s_c2 * scale, s_h2 * scale)
        else:
            _store_four(exits + at, inside, exit_plane, s_c1 * scale, s_h1 * scale, s_c2 * scale, s_h2 * scale)


@triton.jit
def _store_four(at, inside, stride, c1, h1, c2, h2):  # type: ignore[no-untyped-def]
    """The reverse of `load_four`."""
    tl.store(at, c1, mask=inside)
    tl.store(at + stride, h1, mask=inside)
    tl.store(at + 2 * stride, c2, mask=inside)
    tl.store(at + 3 * stride, h2, mask=inside)


@triton.jit(do_not_specialize=PLAIN)
def mix_backward(  # type: ignore[no-untyped-def]
    offsets, exit_offsets, step, total_step, counts, departure_offsets, departures, h, c, gates, d_state, d_exits,
    capacity, programs, eps,
    NORMALISE: tl.constexpr, P: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The reverse of `mix`, by source: from the gradients of the next step's states to those of what `step` made.

    The last state of an exit keeps the gradient of the loss. For step 0 there is `begin_backward`.
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
        first = tl.load(departure_offsets + place)
        last = tl.load(departure_offsets + place + 1)
        for edge in range(first, last):
            target = tl.load(departures + edge)
            going = target >= 0
            scale = 1.0
            if NORMALISE:
                scale = 1.0 / (tl.load(counts + tl.where(going, target, rows - 1 - target)).to(tl.float32) + eps)
            at = tl.where(going, target, -1 - target).to(tl.int64) * P + column
            if going:
                c1, h1, c2, h2 = load_four(d_state + at, inside, plane)
            else:
                c1, h1, c2, h2 = load_four(d_exits + at, inside, exit_plane)
            o_c1 += scale * c1
            o_h1 += scale * h1
            o_c2 += scale * c2
            o_h2 += scale * h2
        if is_row:
            last_token_backward(o_c1, o_h1, o_c2, o_h2, h, c, gates, d_state, number, plane, column, inside, P)
        elif first < last:
            _store_four(d_exits + number.to(tl.int64) * P + column, inside, exit_plane, o_c1, o_h1, o_c2, o_h2)


@triton.jit(do_not_specialize=PLAIN)
def begin_backward(  # type: ignore[no-untyped-def]
    offsets, total_step, counts, departure_offsets, departures, h, c, gates, d_state, d_exits, capacity, programs, eps,
    NORMALISE: tl.constexpr, P: tl.constexpr, WIDTH: tl.constexpr, B: tl.constexpr,
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
        last = tl.load(departure_offsets + row + 1)
        for start in range(tl.load(departure_offsets + row), last, B):
            edge = start + tl.arange(0, B)
            target = tl.load(departures + edge, mask=edge < last, other=0)
            going = target >= 0
            scale = tl.full((B,), 1.0, tl.float32)
            if NORMALISE:
                count = tl.load(counts + tl.where(going, target, rows - 1 - target), mask=edge < last, other=1)
                scale = 1.0 / (count.to(tl.float32) + eps)
            at = tl.where(going, target, -1 - target).to(tl.int64)[:, None] * P + column[None, :]
            at = tl.where(going[:, None], d_state + at, d_exits + at)
            stride = tl.where(going, plane, exit_plane)[:, None]
            c1, h1, c2, h2 = load_four(at, (edge < last)[:, None] & inside[None, :], stride)
            o_c1 += scale[:, None] * c1
            o_h1 += scale[:, None] * h1
            o_c2 += scale[:, None] * c2
            o_h2 += scale[:, None] * h2
        last_token_backward(
            tl.sum(o_c1, 0), tl.sum(o_h1, 0), tl.sum(o_c2, 0), tl.sum(o_h2, 0), h, c, gates, d_state, row, plane,
            column, inside, P,
        )  # fmt: skip
