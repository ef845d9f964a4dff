"""Message passing on a CUDA GPU, backwards: the mirror of `message_triton`, whose notes hold here too."""

import triton
import triton.language as tl

from ipagnn.models.message_triton import DECIDES, EXIT, add_product
from ipagnn.models.packed_triton import PLAIN, load_four, tanh


@triton.jit(do_not_specialize=PLAIN)
def gated_backward(  # type: ignore[no-untyped-def]
    offsets, step, following, previous, flags, state, w_messages, w_hidden, gates, d_messages, d_state,
    branch_weight, d_score,
    FIRST: tl.constexpr, POINTER: tl.constexpr, SLOTS: tl.constexpr, PARTS: tl.constexpr, P: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """The gradient of the states of `step`, and of the gates that made them.

    d_state [line, P] holds z times the gradient one step later, and at the last exits that of the loss; at step 0 it
    receives the gradient itself. gates [line, 4, P] holds n~, r, z, u of the update at a row until this replaces them
    by the gradients of n, r, z, u before their non-linearities.
    """
    first = tl.load(offsets + step) * PARTS
    last = tl.load(offsets + step + 1) * PARTS
    across: tl.constexpr = (P + N - 1) // N
    wide: tl.constexpr = SLOTS * P
    half: tl.constexpr = SLOTS // 2
    early: tl.constexpr = (1 << half) - 1
    for tile in range(tl.program_id(0), tl.cdiv(last - first, M) * across, tl.num_programs(0)):
        base = first + (tile // across) * M
        wide_base = base.to(tl.int64)
        line = tl.arange(0, M)
        inside = line < last - base
        rows = (base + line) // PARTS
        units = (tile % across) * N + tl.arange(0, N)
        fits = units < P
        here = inside[:, None] & fits[None, :]
        target = tl.load(following + rows, mask=inside, other=-1)
        flag = tl.load(flags + rows, mask=inside, other=0)
        length = tl.where(
            tl.max(flag & (early << half), 0) > 0, wide, tl.where(tl.max(flag & early, 0) > 0, half * P, 0)
        )
        total = tl.zeros((M, N), tl.float32)
        on = tl.where(tl.max(target, 0) >= 0, 3 * P, 0)
        left = gates + wide_base * (4 * P) + P
        total = add_product(total, left, 4 * P, line, inside, w_hidden, 1, 3 * P, units, fits, on, K, EXACT)
        left = d_messages + wide_base * wide
        total = add_product(total, left, wide, line, inside, w_messages, 1, wide, units, fits, length, K, EXACT)
        at = wide_base * P + line[:, None] * P + units[None, :]
        carried = (target >= 0) | ((flag & EXIT) != 0)
        total += tl.load(d_state + at, mask=here & carried[:, None], other=0.0)
        if POINTER:
            slope = tl.load(d_score + rows, mask=inside, other=0.0)
            branch = tl.load(
                branch_weight + ((base + line) % PARTS)[:, None] * P + units[None, :], mask=here, other=0.0
            )
            total += slope[:, None] * branch
        total = tl.where(units[None, :] < P - 1, total, 0.0)
        if FIRST:
            tl.store(d_state + at, total, mask=here)
        else:
            before = tl.load(offsets + step - 1) * PARTS  # the first line of the step before
            wide_before = before.to(tl.int64) * P
            origin = tl.load(previous + rows, mask=inside, other=0) * PARTS + (base + line) % PARTS - before
            saved = gates + 4 * wide_before + origin[:, None] * (4 * P) + units[None, :]
            old_at = wide_before + origin[:, None] * P + units[None, :]
            n = tl.load(saved, mask=here, other=0.0).to(tl.float32)
            z = tl.load(saved + 2 * P, mask=here, other=0.0).to(tl.float32)
            old = tl.load(state + old_at, mask=here, other=0.0)
            kind = gates.dtype.element_ty
            tl.store(d_state + old_at, total * z, mask=here)
            tl.store(saved + 2 * P, (total * (old - n) * z * (1.0 - z)).to(kind), mask=here)
            d_n = total * (1.0 - z) * (1.0 - n * n)
            tl.store(saved, d_n.to(kind), mask=here)
            r = tl.load(saved + P, mask=here, other=0.0).to(tl.float32)
            u = tl.load(saved + 3 * P, mask=here, other=0.0).to(tl.float32)
            tl.store(saved + P, (d_n * u * r * (1.0 - r)).to(kind), mask=here)
            tl.store(saved + 3 * P, (d_n * r).to(kind), mask=here)


@triton.jit(do_not_specialize=PLAIN)
def arrive_backward(  # type: ignore[no-untyped-def]
    offsets, step, arrival_offsets, gates, w_input, d_x, SKIP: tl.constexpr, PARTS: tl.constexpr, P: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """The gradient of h~ at the rows of `step`; with SKIP not for tiles where nothing arrived."""
    first = tl.load(offsets + step) * PARTS
    last = tl.load(offsets + step + 1) * PARTS
    across: tl.constexpr = (P + N - 1) // N
    for tile in range(tl.program_id(0), tl.cdiv(last - first, M) * across, tl.num_programs(0)):
        base = first + (tile // across) * M
        wide_base = base.to(tl.int64)
        line = tl.arange(0, M)
        inside = line < last - base
        units = (tile % across) * N + tl.arange(0, N)
        fits = units < P
        length = 3 * P
        if SKIP:
            rows = (base + line) // PARTS
            start_edge = tl.load(arrival_offsets + rows, mask=inside, other=0)
            most = tl.max(tl.load(arrival_offsets + rows + 1, mask=inside, other=0) - start_edge, 0)
            length = tl.where(most > 0, 3 * P, 0)
        if length > 0:
            total = tl.zeros((M, N), tl.float32)
            left = gates + wide_base * (4 * P)
            total = add_product(total, left, 4 * P, line, inside, w_input, 1, 3 * P, units, fits, length, K, EXACT)
            at = d_x + wide_base * P + line[:, None] * P + units[None, :]
            tl.store(at, total.to(d_x.dtype.element_ty), mask=inside[:, None] & fits[None, :])


@triton.jit(do_not_specialize=PLAIN)
def gather_backward(  # type: ignore[no-untyped-def]
    offsets, step, following, flags, departure_offsets, departures, targets, messages, x, d_x, d_messages,
    pointer, decision, scales, d_pointer, d_score,
    POINTER: tl.constexpr, NORMALISE: tl.constexpr, SLOTS: tl.constexpr, PARTS: tl.constexpr,
    P: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The reverse of `gather`, by source: the gradients of the messages that rows of `step` sent."""
    part = tl.arange(0, PARTS).to(tl.int64)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    inside = (column < P) & (part >= 0)
    for row in range(tl.load(offsets + step) + tl.program_id(0), tl.load(offsets + step + 1), tl.num_programs(0)):
        line = row * PARTS + part
        if POINTER:
            p = tl.load(pointer + row)
            flag = tl.load(flags + row)  # only who sends has computed what it decides
            soft = tl.load(decision + row, mask=((flag & DECIDES) != 0) & ((flag & 3) != 0), other=1.0)
            d_true = p * 0.0
            d_false = p * 0.0
        for slot in tl.static_range(SLOTS):
            at = line * (SLOTS * P) + slot * P + column
            total = tl.zeros((PARTS, WIDTH), tl.float32)
            first = tl.load(departure_offsets + row * SLOTS + slot)
            for edge in range(first, tl.load(departure_offsets + row * SLOTS + slot + 1)):
                target = tl.load(targets + tl.load(departures + edge))
                to = (target.to(tl.int64) * PARTS + part) * P + column
                gradient = tl.load(d_x + to, mask=inside, other=0.0).to(tl.float32)
                scale = tl.load(scales + target)
                if POINTER:
                    d_weight = tl.load(d_pointer + tl.load(following + target))
                    message = tl.load(messages + at, mask=inside, other=0.0).to(tl.float32)
                    if NORMALISE:  # the last column of x is no part of the state
                        message -= tl.load(x + to, mask=inside & (column < P - 1), other=0.0).to(tl.float32)
                    d_weight += scale * tl.sum(tl.sum(gradient * message, 1), 0)
                    if slot == 0:
                        d_true = d_weight
                        scale *= p * soft
                    else:
                        d_false = d_weight
                        scale *= p * (1.0 - soft)
                total += scale * gradient
            tl.store(d_messages + at, total.to(d_messages.dtype.element_ty), mask=inside)
        if POINTER:
            tl.store(d_pointer + row, soft * d_true + (1.0 - soft) * d_false)
            tl.store(d_score + row, p * soft * (1.0 - soft) * (d_true - d_false))


@triton.jit(do_not_specialize=PLAIN)
def clear(offsets, step, values, capacity, WIDE: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Zero the rows from those of a step on: products for weight gradients run over all that there is room for."""
    inner = tl.arange(0, BLOCK)
    start = tl.load(offsets + step).to(tl.int64) * WIDE
    end = capacity.to(tl.int64) * WIDE
    for at in range(start + tl.program_id(0) * BLOCK, end, tl.num_programs(0) * BLOCK):
        zero = tl.zeros((BLOCK,), tl.float32).to(values.dtype.element_ty)
        tl.store(values + at + inner, zero, mask=at + inner < end)


@triton.jit
def _last_token_backward(o_c1, o_h1, o_c2, o_h2, h, c, gates, d_state, row, plane, column, inside, P: tl.constexpr):  # type: ignore[no-untyped-def]
    """From the gradients of a state after its statement to what `packed_triton_backward.wave_backward` goes on from."""
    at = row * P + column
    tl.store(d_state + at, o_c1, mask=inside)
    tl.store(d_state + plane + at, o_h1, mask=inside)
    saved = gates + 7 * 4 * plane + row * (4 * P) + 4 * column  # layer 2, token 3
    i, f, g, o = load_four(saved, inside, 1)
    before = tl.load(c + 8 * plane + at, mask=inside, other=0.0)
    shape = tanh(tl.load(c + 9 * plane + at, mask=inside, other=0.0))
    d_c = o_c2 + o_h2 * o * (1.0 - shape * shape)
    kind = gates.dtype.element_ty
    tl.store(d_state + 2 * plane + at, d_c * f, mask=inside)
    tl.store(saved, (d_c * g * i * (1.0 - i)).to(kind), mask=inside)
    tl.store(saved + 1, (d_c * before * f * (1.0 - f)).to(kind), mask=inside)
    tl.store(saved + 2, (d_c * i * (1.0 - g * g)).to(kind), mask=inside)
    tl.store(saved + 3, (o_h2 * shape * o * (1.0 - o)).to(kind), mask=inside)


@triton.jit(do_not_specialize=PLAIN)
def start_backward(  # type: ignore[no-untyped-def]
    waves, member_offsets, members, d_rows, h, c, gates, d_state, capacity,
    PARTS: tl.constexpr, P: tl.constexpr, WIDTH: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """The gradient of each distinct statement's state: the sum over the rows that start with it. d_rows [line, P]."""
    column = tl.arange(0, WIDTH)
    inside = column < P - 1
    plane = capacity.to(tl.int64) * P
    for statement in range(tl.program_id(0), tl.load(waves + 1), tl.num_programs(0)):
        o_c1 = tl.zeros((WIDTH,), tl.float32)
        o_h1 = tl.zeros((WIDTH,), tl.float32)
        o_c2 = tl.zeros((WIDTH,), tl.float32)
        o_h2 = tl.zeros((WIDTH,), tl.float32)
        last = tl.load(member_offsets + statement + 1)
        for first in range(tl.load(member_offsets + statement), last, B):
            index = first + tl.arange(0, B)
            row = tl.load(members + index, mask=index < last, other=0).to(tl.int64)
            at = d_rows + row[:, None] * (PARTS * P) + column[None, :]
            some = (index < last)[:, None] & inside[None, :]
            if PARTS == 4:
                o_c1 += tl.sum(tl.load(at, mask=some, other=0.0), 0)
                o_h1 += tl.sum(tl.load(at + P, mask=some, other=0.0), 0)
                o_c2 += tl.sum(tl.load(at + 2 * P, mask=some, other=0.0), 0)
            o_h2 += tl.sum(tl.load(at + (PARTS - 1) * P, mask=some, other=0.0), 0)
        _last_token_backward(o_c1, o_h1, o_c2, o_h2, h, c, gates, d_state, statement, plane, column, column < P, P)


@triton.jit(do_not_specialize=PLAIN)
def mix_backward(  # type: ignore[no-untyped-def]
    offsets, step, following, flags, departure_offsets, departures, targets, scales, h, c, gates, d_state, capacity,
    P: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The reverse of `mix`, by source: from the gradients of the states before the statements of the next step."""
    column = tl.arange(0, WIDTH)
    inside = column < P
    plane = capacity.to(tl.int64) * P
    zero = tl.zeros((WIDTH,), tl.float32)
    for row in range(tl.load(offsets + step) + tl.program_id(0), tl.load(offsets + step + 1), tl.num_programs(0)):
        is_exit = (tl.load(flags + row) & EXIT) != 0
        o_c1 = tl.zeros((WIDTH,), tl.float32)
        o_h1 = tl.zeros((WIDTH,), tl.float32)
        o_c2 = tl.zeros((WIDTH,), tl.float32)
        o_h2 = tl.zeros((WIDTH,), tl.float32)
        for edge in range(tl.load(departure_offsets + 4 * row), tl.load(departure_offsets + 4 * row + 4)):
            target = tl.load(targets + tl.load(departures + edge))
            scale = tl.load(scales + target)
            n_at = tl.load(following + target).to(tl.int64) * P + column
            g_c1, g_h1, g_c2, g_h2 = load_four(d_state + n_at, inside, plane)
            o_c1 += scale * g_c1
            o_h1 += scale * g_h1
            o_c2 += scale * g_c2
            o_h2 += scale * g_h2
        if is_exit:
            if tl.load(following + row) >= 0:  # the last exit has the gradient of the loss
                at = d_state + row * P + column
                tl.store(at, o_c1, mask=inside)
                tl.store(at + plane, o_h1, mask=inside)
                tl.store(at + 2 * plane, o_c2, mask=inside)
                tl.store(at + 3 * plane, o_h2, mask=inside)
            kind = h.dtype.element_ty
            for token in tl.static_range(8):  # exits execute nothing: no share in weight gradients
                saved = gates + token * 4 * plane + row * (4 * P) + column
                for quarter in tl.static_range(4):
                    tl.store(saved + quarter * P, zero.to(kind), mask=inside)
            for token in tl.static_range(10):
                tl.store(h + token * plane + row * P + column, zero.to(kind), mask=inside)
        else:
            _last_token_backward(o_c1, o_h1, o_c2, o_h2, h, c, gates, d_state, row, plane, column, inside, P)
