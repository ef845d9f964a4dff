"""NoControl on a CUDA GPU: Triton kernels that exchange states with all neighbours, over a `StatementPlan`.

h, c [layer, 5, row, P] and gates are those of `message_statements_triton`: states before token 0 and after each token.
Those of exits are in full precision: [c1 h1 c2 h2, exit, P]. See `message_triton` for what kernels have in common.
"""

import triton
import triton.language as tl

from ipagnn.models.message_triton_backward import last_token_backward
from ipagnn.models.packed_triton import PLAIN, store_state


@triton.jit(do_not_specialize=PLAIN)
def begin(offsets, h, c, capacity, P: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """States of step 0 are 0."""
    column = tl.arange(0, WIDTH)
    plane = capacity.to(tl.int64) * P
    zero = tl.zeros((WIDTH,), tl.float32)
    for row in range(tl.program_id(0), tl.load(offsets + 1), tl.num_programs(0)):
        store_state(h, c, row * P + column, plane, column < P, zero, zero, zero, zero)


@triton.jit
def _reader(offsets, exit_offsets, step, rows, index):  # type: ignore[no-untyped-def]
    """Of a step's rows and exits the one at `index`: whether it is a row, its number, its place in arrays by both."""
    first = tl.load(offsets + step)
    count = tl.load(offsets + step + 1) - first
    is_row = index < count
    number = tl.where(is_row, first + index, tl.load(exit_offsets + step) + index - count)
    return is_row, number, tl.where(is_row, number, rows + number)


@triton.jit
def _count(offsets, exit_offsets, step):  # type: ignore[no-untyped-def]
    """Rows and exits of a step."""
    rows = tl.load(offsets + step + 1) - tl.load(offsets + step)
    return rows + tl.load(exit_offsets + step + 1) - tl.load(exit_offsets + step)


@triton.jit(do_not_specialize=PLAIN)
def mix(  # type: ignore[no-untyped-def]
    offsets, exit_offsets, step, total_step, counts, arrival_offsets, arrivals, h, c, exits, capacity, programs, eps,
    NORMALISE: tl.constexpr, P: tl.constexpr, WIDTH: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """The states of `step`: sums over N_all of what statements made a step earlier, by their number if NORMALISE.

    Takes B messages at a time. offsets[total_step] rows are all; `programs` is the room for exits.
    """
    column = tl.arange(0, WIDTH)
    inside = column < P
    plane = capacity.to(tl.int64) * P
    exit_plane = programs.to(tl.int64) * P
    rows = tl.load(offsets + total_step)
    for index in range(tl.program_id(0), _count(offsets, exit_offsets, step), tl.num_programs(0)):
        is_row, number, place = _reader(offsets, exit_offsets, step, rows, index)
        s_c1 = tl.zeros((WIDTH,), tl.float32)
        s_h1 = tl.zeros((WIDTH,), tl.float32)
        s_c2 = tl.zeros((WIDTH,), tl.float32)
        s_h2 = tl.zeros((WIDTH,), tl.float32)
        last = tl.load(arrival_offsets + place + 1)
        for start in range(tl.load(arrival_offsets + place), last, B):
            edge = start + tl.arange(0, B)
            source = tl.load(arrivals + edge, mask=edge < last, other=0)
            made = ((edge < last) & (source >= 0))[:, None] & inside[None, :]
            kept = (source < 0)[:, None] & inside[None, :]
            at = 4 * plane + source.to(tl.int64)[:, None] * P + column[None, :]
            exit_at = exits + (-1 - source.to(tl.int64))[:, None] * P + column[None, :]
            s_c1 += tl.sum(tl.load(c + at, mask=made, other=0.0) + tl.load(exit_at, mask=kept, other=0.0), 0)
            a = tl.load(h + at, mask=made, other=0.0).to(tl.float32)
            s_h1 += tl.sum(a + tl.load(exit_at + exit_plane, mask=kept, other=0.0), 0)
            at += 5 * plane
            exit_at += 2 * exit_plane
            s_c2 += tl.sum(tl.load(c + at, mask=made, other=0.0) + tl.load(exit_at, mask=kept, other=0.0), 0)
            a = tl.load(h + at, mask=made, other=0.0).to(tl.float32)
            s_h2 += tl.sum(a + tl.load(exit_at + exit_plane, mask=kept, other=0.0), 0)
        scale = 1.0 / (tl.load(counts + place).to(tl.float32) + eps) if NORMALISE else 1.0
        at = number.to(tl.int64) * P + column
        if is_row:
            store_state(h, c, at, plane, inside, s_c1 * scale, s_h1 * scale, s_c2 * scale, s_h2 * scale)
        else:
            tl.store(exits + at, s_c1 * scale, mask=inside)
            tl.store(exits + exit_plane + at, s_h1 * scale, mask=inside)
            tl.store(exits + 2 * exit_plane + at, s_c2 * scale, mask=inside)
            tl.store(exits + 3 * exit_plane + at, s_h2 * scale, mask=inside)


@triton.jit(do_not_specialize=PLAIN)
def mix_backward(  # type: ignore[no-untyped-def]
    offsets, exit_offsets, step, total_step, counts, departure_offsets, departures, h, c, gates, d_state, d_exits,
    capacity, programs, eps,
    NORMALISE: tl.constexpr, P: tl.constexpr, WIDTH: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """The reverse of `mix`, by source: from the gradients of the next step's states to those of what `step` made.

    Programs: [any number, columns / WIDTH]. The last state of an exit keeps the gradient of the loss.
    """
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = column < P
    plane = capacity.to(tl.int64) * P
    exit_plane = programs.to(tl.int64) * P
    rows = tl.load(offsets + total_step)
    for index in range(tl.program_id(0), _count(offsets, exit_offsets, step), tl.num_programs(0)):
        is_row, number, place = _reader(offsets, exit_offsets, step, rows, index)
        o_c1 = tl.zeros((WIDTH,), tl.float32)
        o_h1 = tl.zeros((WIDTH,), tl.float32)
        o_c2 = tl.zeros((WIDTH,), tl.float32)
        o_h2 = tl.zeros((WIDTH,), tl.float32)
        first = tl.load(departure_offsets + place)
        last = tl.load(departure_offsets + place + 1)
        for start in range(first, last, B):
            edge = start + tl.arange(0, B)
            target = tl.load(departures + edge, mask=edge < last, other=0)
            going = ((edge < last) & (target >= 0))[:, None] & inside[None, :]
            kept = (target < 0)[:, None] & inside[None, :]
            scale = tl.full((B,), 1.0, tl.float32)
            if NORMALISE:
                count = tl.load(counts + tl.where(target >= 0, target, rows - 1 - target), mask=edge < last, other=1)
                scale = 1.0 / (count.to(tl.float32) + eps)
            at = d_state + target.to(tl.int64)[:, None] * P + column[None, :]
            exit_at = d_exits + (-1 - target.to(tl.int64))[:, None] * P + column[None, :]
            g = tl.load(at, mask=going, other=0.0) + tl.load(exit_at, mask=kept, other=0.0)
            o_c1 += tl.sum(scale[:, None] * g, 0)
            g = tl.load(at + plane, mask=going, other=0.0) + tl.load(exit_at + exit_plane, mask=kept, other=0.0)
            o_h1 += tl.sum(scale[:, None] * g, 0)
            at += 2 * plane
            exit_at += 2 * exit_plane
            g = tl.load(at, mask=going, other=0.0) + tl.load(exit_at, mask=kept, other=0.0)
            o_c2 += tl.sum(scale[:, None] * g, 0)
            g = tl.load(at + plane, mask=going, other=0.0) + tl.load(exit_at + exit_plane, mask=kept, other=0.0)
            o_h2 += tl.sum(scale[:, None] * g, 0)
        if is_row:
            last_token_backward(o_c1, o_h1, o_c2, o_h2, h, c, gates, d_state, number, plane, column, inside, P)
        elif first < last:
            at = d_exits + number.to(tl.int64) * P + column
            tl.store(at, o_c1, mask=inside)
            tl.store(at + exit_plane, o_h1, mask=inside)
            tl.store(at + 2 * exit_plane, o_c2, mask=inside)
            tl.store(at + 3 * exit_plane, o_h2, mask=inside)
