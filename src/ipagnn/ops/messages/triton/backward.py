"""Message passing on a CUDA GPU, backwards: the mirror of `message_triton`, whose notes hold here too."""

import triton
import triton.language as tl

from ipagnn.ops.messages.triton.forward import DECIDES, EXIT
from ipagnn.ops.messages.triton.statement_kernels import UNITS, store_gates
from ipagnn.ops.pointer.triton.backward import gate_gradients
from ipagnn.ops.pointer.triton.forward import PLAIN, load_four


@triton.jit(do_not_specialize=PLAIN)
def state_products_backward(  # type: ignore[no-untyped-def]
    offsets, step, following, flags, gradients, d_sent, w_hidden, w_messages, d_h,
    SLOTS: tl.constexpr, PARTS: tl.constexpr, P: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """The gradient of the states of `step` by what they are multiplied with: d_h [line, P].

    Descriptors: `gradients` of gates and `d_sent` of the gradients of messages [line, SLOTS, P], in blocks [M, K];
    weights [P, 3 P] and [P, SLOTS * P] in blocks [N, K].
    """
    first = tl.load(offsets + step) * PARTS
    last = tl.load(offsets + step + 1) * PARTS
    across: tl.constexpr = (P + N - 1) // N
    half: tl.constexpr = SLOTS // 2
    early: tl.constexpr = (1 << half) - 1
    precision: tl.constexpr = "ieee" if EXACT else "tf32"
    for tile in range(tl.program_id(0), tl.cdiv(last - first, M) * across, tl.num_programs(0)):
        base = first + (tile // across) * M
        line = tl.arange(0, M)
        inside = line < last - base
        rows = (base + line) // PARTS
        begin = (tile % across) * N
        target = tl.load(following + rows, mask=inside, other=-1)
        flag = tl.load(flags + rows, mask=inside, other=0)
        sends_late = tl.max(flag & (early << half), 0) > 0
        length = tl.where(sends_late, SLOTS * P, tl.where(tl.max(flag & early, 0) > 0, half * P, 0))
        total = tl.zeros((M, N), tl.float32)
        for start in range(0, tl.where(tl.max(target, 0) >= 0, 3 * P, 0), K):
            right = tl.trans(w_hidden.load([begin, start]))
            total = tl.dot(gradients.load([base, P + start]), right, total, input_precision=precision)
        for start in range(0, length, K):
            right = tl.trans(w_messages.load([begin, start]))
            total = tl.dot(d_sent.load([base, start]), right, total, input_precision=precision)
        units = begin + tl.arange(0, N)
        at = d_h + base.to(tl.int64) * P + (line[:, None] * P + units[None, :])
        tl.store(at, total.to(d_h.dtype.element_ty), mask=inside[:, None] & (units < P)[None, :])


@triton.jit(do_not_specialize=PLAIN)
def update_backward(  # type: ignore[no-untyped-def]
    offsets, step, following, previous, flags, d_h, h, gates, d_state, branch_weight, d_score,
    FIRST: tl.constexpr, POINTER: tl.constexpr, PARTS: tl.constexpr, P: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The gradient of the states of `step`, and of the gates that made them.

    d_state [line, P] holds z times the gradient one step later, and at the last exits that of the loss; at step 0 it
    receives the gradient itself. gates [line, 4, P] holds n~, r, z, u of the update at a row until this replaces them
    by the gradients of n, r, z, u before their non-linearities.
    """
    units = tl.arange(0, WIDTH)
    fits = units < P
    first = tl.load(offsets + step)
    lines = (tl.load(offsets + step + 1) - first) * PARTS
    for index in range(tl.program_id(0), lines, tl.num_programs(0)):
        row = first.to(tl.int64) + index // PARTS
        part = index % PARTS
        carried = (tl.load(following + row) >= 0) | ((tl.load(flags + row) & EXIT) != 0)
        own = (row * PARTS + part) * P + units
        total = tl.load(d_h + own, mask=fits, other=0.0).to(tl.float32)
        total += tl.load(d_state + own, mask=fits & carried, other=0.0)
        if POINTER:
            total += tl.load(d_score + row) * tl.load(branch_weight + part * P + units, mask=fits, other=0.0)
        total = tl.where(units < P - 1, total, 0.0)
        if FIRST:
            tl.store(d_state + own, total, mask=fits)
        else:
            origin = tl.load(previous + row).to(tl.int64) * PARTS + part
            at = origin * P + units
            saved = gates + origin * (4 * P) + units
            n, r, z, u = load_four(saved, fits, P)
            old = tl.load(h + at, mask=fits, other=0.0).to(tl.float32)
            kind = gates.dtype.element_ty
            d_n = total * (1.0 - z) * (1.0 - n * n)
            tl.store(d_state + at, total * z, mask=fits)
            tl.store(saved, d_n.to(kind), mask=fits)
            tl.store(saved + P, (d_n * u * r * (1.0 - r)).to(kind), mask=fits)
            tl.store(saved + 2 * P, (total * (old - n) * z * (1.0 - z)).to(kind), mask=fits)
            tl.store(saved + 3 * P, (d_n * r).to(kind), mask=fits)


@triton.jit(do_not_specialize=PLAIN)
def arrive_backward(  # type: ignore[no-untyped-def]
    offsets, step, arrival_offsets, gradients, w_input, d_x, SKIP: tl.constexpr, PARTS: tl.constexpr, P: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """The gradient of h~ at the rows of `step`; with SKIP not for tiles where nothing arrived.

    Descriptors: `gradients` of gates in blocks [M, K], `w_input` [P, 3 P] in blocks [N, K].
    """
    first = tl.load(offsets + step) * PARTS
    last = tl.load(offsets + step + 1) * PARTS
    across: tl.constexpr = (P + N - 1) // N
    for tile in range(tl.program_id(0), tl.cdiv(last - first, M) * across, tl.num_programs(0)):
        base = first + (tile // across) * M
        line = tl.arange(0, M)
        inside = line < last - base
        begin = (tile % across) * N
        needed = True
        if SKIP:
            rows = (base + line) // PARTS
            start_edge = tl.load(arrival_offsets + rows, mask=inside, other=0)
            needed = tl.max(tl.load(arrival_offsets + rows + 1, mask=inside, other=0) - start_edge, 0) > 0
        if needed:
            total = tl.zeros((M, N), tl.float32)
            for start in range(0, 3 * P, K):
                right = tl.trans(w_input.load([begin, start]))
                total = tl.dot(gradients.load([base, start]), right, total, input_precision="ieee" if EXACT else "tf32")
            units = begin + tl.arange(0, N)
            at = d_x + base.to(tl.int64) * P + (line[:, None] * P + units[None, :])
            tl.store(at, total.to(d_x.dtype.element_ty), mask=inside[:, None] & (units < P)[None, :])


@triton.jit(do_not_specialize=PLAIN)
def gather_backward(  # type: ignore[no-untyped-def]
    offsets, step, following, flags, departure_offsets, departures, targets, messages, x, d_x, d_messages,
    pointer, decision, scales, d_pointer, d_score,
    POINTER: tl.constexpr, NORMALISE: tl.constexpr, SLOTS: tl.constexpr, PARTS: tl.constexpr,
    P: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The reverse of `gather`, by source: the gradients of the messages that rows of `step` sent.

    Exits that absorb what arrives, at whatever step it was sent, have no following row.
    """
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
                    later = tl.load(following + target)
                    d_weight = tl.load(d_pointer + later, mask=later >= 0, other=0.0)
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
    """Zero the rows from those of a step on: products for weight gradients run over all that there is room for.

    values: [plane, capacity, WIDE]; programs: [any number, plane].
    """
    inner = tl.arange(0, BLOCK)
    plane = values + tl.program_id(1) * (capacity.to(tl.int64) * WIDE)
    start = tl.load(offsets + step).to(tl.int64) * WIDE
    end = capacity.to(tl.int64) * WIDE
    for at in range(start + tl.program_id(0) * BLOCK, end, tl.num_programs(0) * BLOCK):
        zero = tl.zeros((BLOCK,), tl.float32).to(values.dtype.element_ty)
        tl.store(plane + at + inner, zero, mask=at + inner < end)


@triton.jit
def last_token_backward(o_c1, o_h1, o_c2, o_h2, h, c, gates, d_state, row, plane, column, inside, P: tl.constexpr):  # type: ignore[no-untyped-def]
    """From the gradients of a state after its statement to what `StatementWaves.backward` goes on from."""
    at = row * P + column
    tl.store(d_state + at, o_c1, mask=inside)
    tl.store(d_state + plane + at, o_h1, mask=inside)
    saved = gates + 7 * 4 * plane + row * (4 * P) + (column // UNITS) * (4 * UNITS) + column % UNITS  # layer 2, token 3
    i, f, g, o = load_four(saved, inside, UNITS)
    before = tl.load(c + 8 * plane + at, mask=inside, other=0.0)
    after = tl.load(c + 9 * plane + at, mask=inside, other=0.0)
    i, f, g, o, d_before = gate_gradients(o_h2, o_c2, i, f, g, o, before, after)
    tl.store(d_state + 2 * plane + at, d_before, mask=inside)
    store_gates(saved, inside, i, f, g, o)


@triton.jit(do_not_specialize=PLAIN)
def start_backward(  # type: ignore[no-untyped-def]
    waves, member_offsets, members, d_rows, h, c, gates, d_state, capacity,
    PARTS: tl.constexpr, P: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """The gradient of each distinct statement's state: the sum over the rows that start with it. d_rows [line, P].

    The columns of a statement are shared by P / 32 blocks: some statements, and the exit, begin a thousand rows.
    """
    column = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    inside = column < P
    plane = capacity.to(tl.int64) * P
    for statement in range(tl.program_id(0), tl.load(waves + 1), tl.num_programs(0)):
        s_c1 = tl.zeros((B, UNITS), tl.float32)
        s_h1 = tl.zeros((B, UNITS), tl.float32)
        s_c2 = tl.zeros((B, UNITS), tl.float32)
        s_h2 = tl.zeros((B, UNITS), tl.float32)
        last = tl.load(member_offsets + statement + 1)
        for first in range(tl.load(member_offsets + statement), last, B):
            index = first + tl.arange(0, B)
            row = tl.load(members + index, mask=index < last, other=0).to(tl.int64)
            at = d_rows + row[:, None] * (PARTS * P) + column[None, :]
            some = (index < last)[:, None] & inside[None, :]
            s_c1 += tl.load(at, mask=some, other=0.0)
            s_h1 += tl.load(at + P, mask=some, other=0.0)
            s_c2 += tl.load(at + 2 * P, mask=some, other=0.0)
            s_h2 += tl.load(at + 3 * P, mask=some, other=0.0)
        real = column < P - 1  # the last one is no part of the state
        o_c1 = tl.where(real, tl.sum(s_c1, 0), 0.0)
        o_h1 = tl.where(real, tl.sum(s_h1, 0), 0.0)
        o_c2 = tl.where(real, tl.sum(s_c2, 0), 0.0)
        o_h2 = tl.where(real, tl.sum(s_h2, 0), 0.0)
        last_token_backward(o_c1, o_h1, o_c2, o_h2, h, c, gates, d_state, statement, plane, column, inside, P)
