"""Message passing on a CUDA GPU, forwards: Triton kernels over the rows of a `MessagePlan`.

The arithmetic is that of `nn.message_passing`. As in `ops.pointer.triton.forward`: kernels read the number of rows from
device memory and loop over tiles, so that one CUDA graph serves all batches that fit its buffers; nothing is added up
in an order that could change (no atomics); H is padded with zeros to P > H, and the last padding column of what is
multiplied is 1, so that biases are the last rows of weights. Blocks that are multiplied are fetched through tensor
descriptors, and what follows a product is done in slices of its tile: see `statement_kernels`. Where blocks do not
divide a matrix, what they have beyond it is 0.

A state has PARTS parts of P numbers, and every product treats them alike: a *line* is one part of one row. What
belongs to the update at a row (its gates, what arrives for it) is kept at that row, from which the update starts.
"""

import triton
import triton.language as tl

from ipagnn.ops.messages._compiled import rows as message_kernels
from ipagnn.ops.messages.triton.statement_kernels import UNITS, halves, sigmoid, tanh
from ipagnn.ops.pointer.triton.forward import PLAIN, load_state
from ipagnn.ops.pointer.triton.forward import sigmoid as exact_sigmoid

DECIDES, EXIT = tl.constexpr(message_kernels.DECIDES), tl.constexpr(message_kernels.EXIT)


@triton.jit(do_not_specialize=PLAIN)
def start(  # type: ignore[no-untyped-def]
    offsets, statement, statement_h, statement_c, state, h, capacity,
    H: tl.constexpr, PARTS: tl.constexpr, P: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Hand the states after their statements to the rows of step 0.

    statement_h, statement_c are the h and c of `statement_kernels`; `state` and h have what the others have.
    """
    column = tl.arange(0, WIDTH)
    plane = capacity.to(tl.int64) * P
    for row in range(tl.program_id(0), tl.load(offsets + 1), tl.num_programs(0)):
        at = 4 * plane + tl.load(statement + row).to(tl.int64) * P + column
        c1, h1, c2, h2 = load_state(statement_h, statement_c, at, plane, column < H)
        for part in tl.static_range(PARTS):
            value = c1 if part == 0 else h1 if part == 1 else c2 if part == 2 else h2
            value = tl.where(column == P - 1, 1.0, value)
            to = (row * PARTS + part) * P + column
            tl.store(state + to, value, mask=column < P)
            if h.dtype.element_ty != tl.float32:
                tl.store(h + to, value.to(h.dtype.element_ty), mask=column < P)


@triton.jit(do_not_specialize=PLAIN)
def send(  # type: ignore[no-untyped-def]
    offsets, step, flags, states, weights, messages,
    ALWAYS: tl.constexpr, SLOTS: tl.constexpr, PARTS: tl.constexpr, P: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Dense layers of all slots side by side: messages [line, SLOTS, P].

    Tiles none of whose rows sends in their slots are left out, unless ALWAYS. Descriptors: `states` [line, P] in blocks
    [M, K]; `weights` [P, SLOTS * P] in blocks [K, N].
    """
    first = tl.load(offsets + step) * PARTS
    last = tl.load(offsets + step + 1) * PARTS
    wide: tl.constexpr = SLOTS * P
    across: tl.constexpr = (wide + N - 1) // N
    early: tl.constexpr = (1 << (SLOTS // 2)) - 1
    for tile in range(tl.program_id(0), tl.cdiv(last - first, M) * across, tl.num_programs(0)):
        base = first + (tile // across) * M
        line = tl.arange(0, M)
        inside = line < last - base
        begin = (tile % across) * N
        needed = True
        if not ALWAYS:
            sends = tl.load(flags + (base + line) // PARTS, mask=inside, other=0)
            wants_early = (tl.max(sends & early, 0) > 0) & (begin < wide // 2)
            wants_late = (tl.max(sends & (early << (SLOTS // 2)), 0) > 0) & (begin + N > wide // 2)
            needed = wants_early | wants_late
        if needed:
            total = tl.zeros((M, N), tl.float32)
            for start in range(0, P, K):
                right = weights.load([start, begin])
                total = tl.dot(states.load([base, start]), right, total, input_precision="ieee" if EXACT else "tf32")
            columns = begin + tl.arange(0, N)
            fits = inside[:, None] & (columns < wide)[None, :]
            at = messages + base.to(tl.int64) * wide + (line[:, None] * wide + columns[None, :])
            tl.store(at, total.to(messages.dtype.element_ty), mask=fits)


@triton.jit(do_not_specialize=PLAIN)
def gather(  # type: ignore[no-untyped-def]
    offsets, step, following, flags, arrival_offsets, arrivals, messages, h, branch_weight, branch_bias,
    pointer, decision, scales, x, eps,
    POINTER: tl.constexpr, NORMALISE: tl.constexpr, SLOTS: tl.constexpr, PARTS: tl.constexpr,
    P: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """h~: what arrives for each update. Without a POINTER the sum over sqrt(2 + in-degree), with one equations 4 to 6.

    `scales` keeps what sums are multiplied by; `branch_weight` [PARTS, P] and `branch_bias` [1] are differences, true
    minus false.
    """
    part = tl.arange(0, PARTS).to(tl.int64)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    inside = (column < P) & (part >= 0)
    if POINTER:
        branch = tl.load(branch_weight + part * P + column, mask=inside, other=0.0)
        bias = tl.load(branch_bias)
    for row in range(tl.load(offsets + step) + tl.program_id(0), tl.load(offsets + step + 1), tl.num_programs(0)):
        at = (row * PARTS + part) * P + column
        target = tl.load(following + row)
        total = tl.zeros((PARTS, WIDTH), tl.float32)
        mass = 0.0
        for edge in range(tl.load(arrival_offsets + row), tl.load(arrival_offsets + row + 1)):
            code = tl.load(arrivals + edge)
            source, slot = code // SLOTS, code % SLOTS
            line = source.to(tl.int64) * PARTS + part
            message = tl.load(messages + line * (SLOTS * P) + slot * P + column, mask=inside, other=0.0).to(tl.float32)
            if POINTER:
                a = tl.load(h + line * P + column, mask=inside, other=0.0).to(tl.float32)
                true = exact_sigmoid(tl.sum(tl.sum(a * branch, 1), 0) + bias)
                tl.store(decision + source, true)
                true = tl.where((tl.load(flags + source) & DECIDES) != 0, true, 1.0)
                weight = tl.load(pointer + source) * tl.where(slot == 0, true, 1.0 - true)
                mass += weight
                total += weight * message
            else:
                mass += tl.where(slot % 2 == 0, 1.0, 0.0)  # even slots lead forwards
                total += message
        if POINTER:
            scale = tl.where(mass > 0, 1.0 / (mass + eps), 1.0) if NORMALISE else 1.0
            tl.store(pointer + target, mass, mask=target >= 0)
        else:
            scale = 1.0 / tl.sqrt(2.0 + mass)
        tl.store(scales + row, scale)
        value = tl.where(column == P - 1, tl.where(target >= 0, 1.0, 0.0), total * scale)
        tl.store(x + at, value.to(x.dtype.element_ty), mask=inside)


@triton.jit
def _update(n, r, z, u, base, last, inside, target, to, begin, state, h, gates, P: tl.constexpr):  # type: ignore[no-untyped-def]
    """The end of a GRU for 32 units: the new state, where there is one, and the gates, for the backward pass."""
    line = tl.arange(0, n.shape[0])
    units = begin + tl.arange(0, UNITS)
    some = (units < P)[None, :]
    goes_on = (target >= 0)[:, None] & some
    kind = h.dtype.element_ty
    exact: tl.constexpr = kind == tl.float32
    r, z = sigmoid(r, exact), sigmoid(z, exact)
    n = tanh(n + r * u, exact)
    wide_base = base.to(tl.int64) * P
    old = tl.load(state + wide_base + (line[:, None] * P + units[None, :]), mask=goes_on, other=0.0)
    new = tl.where(units[None, :] == P - 1, 1.0, z * old + (1.0 - z) * n)
    after = last.to(tl.int64) * P  # the next step's first line
    at = to[:, None] * P + units[None, :]
    tl.store(state + after + at, new, mask=goes_on)
    if kind != tl.float32:
        tl.store(h + after + at, new.to(kind), mask=goes_on)
    keep = gates + 4 * wide_base
    at = line[:, None] * (4 * P) + units[None, :]
    whole = inside[:, None] & some
    tl.store(keep + at, tl.where(goes_on, n, 0.0).to(kind), mask=whole)
    tl.store(keep + P + at, tl.where(goes_on, r, 0.0).to(kind), mask=whole)
    tl.store(keep + 2 * P + at, tl.where(goes_on, z, 0.0).to(kind), mask=whole)
    tl.store(keep + 3 * P + at, tl.where(goes_on, u, 0.0).to(kind), mask=whole)


@triton.jit
def _update_slices(  # type: ignore[no-untyped-def]
    n, r, z, u, base, last, inside, target, to, begin, state, h, gates,
    P: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """`_update` for N units."""
    if N == UNITS:
        _update(n, r, z, u, base, last, inside, target, to, begin, state, h, gates, P)
    else:
        n, n_right = halves(n, M, N)
        r, r_right = halves(r, M, N)
        z, z_right = halves(z, M, N)
        u, u_right = halves(u, M, N)
        _update_slices(n, r, z, u, base, last, inside, target, to, begin, state, h, gates, P, M, N // 2)
        _update_slices(
            n_right, r_right, z_right, u_right, base, last, inside, target, to, begin + N // 2, state, h, gates,
            P, M, N // 2,
        )  # fmt: skip


@triton.jit(do_not_specialize=PLAIN)
def gated_forward(  # type: ignore[no-untyped-def]
    offsets, step, following, arrival_offsets, arrived, states, w_input, w_hidden, bias, state, h, gates,
    SKIP: tl.constexpr, PARTS: tl.constexpr, P: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """GRU(h, h~) of all rows that go on.

    w_input [P, 3 P] makes n, r, z of h~; w_hidden [P, 3 P] makes r, z, u of h, where n~ = tanh(n + r u). gates
    [line, 4, P] keeps n~, r, z, u. `state` is h in full precision. With SKIP tiles where nothing arrives take `bias`,
    the last row of w_input. Descriptors: `arrived` and `states` of h~ and h [line, P] in blocks [M, K]; weights in
    blocks [K, N].
    """
    first = tl.load(offsets + step) * PARTS
    last = tl.load(offsets + step + 1) * PARTS
    across: tl.constexpr = (P + N - 1) // N
    precision: tl.constexpr = "ieee" if EXACT else "tf32"
    for tile in range(tl.program_id(0), tl.cdiv(last - first, M) * across, tl.num_programs(0)):
        base = first + (tile // across) * M
        line = tl.arange(0, M)
        inside = line < last - base
        rows = (base + line) // PARTS
        begin = (tile % across) * N
        n = tl.zeros((M, N), tl.float32)
        r = tl.zeros((M, N), tl.float32)
        z = tl.zeros((M, N), tl.float32)
        u = tl.zeros((M, N), tl.float32)
        if SKIP:
            start_edge = tl.load(arrival_offsets + rows, mask=inside, other=0)
            receives = tl.max(tl.load(arrival_offsets + rows + 1, mask=inside, other=0) - start_edge, 0) > 0
            for start in range(0, tl.where(receives, P, 0), K):
                a = arrived.load([base, start])
                n = tl.dot(a, w_input.load([start, begin]), n, input_precision=precision)
                r = tl.dot(a, w_input.load([start, P + begin]), r, input_precision=precision)
                z = tl.dot(a, w_input.load([start, 2 * P + begin]), z, input_precision=precision)
            for start in range(0, P, K):
                a = states.load([base, start])
                r = tl.dot(a, w_hidden.load([start, begin]), r, input_precision=precision)
                z = tl.dot(a, w_hidden.load([start, P + begin]), z, input_precision=precision)
                u = tl.dot(a, w_hidden.load([start, 2 * P + begin]), u, input_precision=precision)
            units = begin + tl.arange(0, N)
            alone = (units < P) & (receives == 0)
            n += tl.load(bias + units, mask=alone, other=0.0).to(tl.float32)[None, :]
            r += tl.load(bias + P + units, mask=alone, other=0.0).to(tl.float32)[None, :]
            z += tl.load(bias + 2 * P + units, mask=alone, other=0.0).to(tl.float32)[None, :]
        else:  # both products in one loop: it has twice the work between its barriers
            for start in range(0, P, K):
                a = arrived.load([base, start])
                n = tl.dot(a, w_input.load([start, begin]), n, input_precision=precision)
                r = tl.dot(a, w_input.load([start, P + begin]), r, input_precision=precision)
                z = tl.dot(a, w_input.load([start, 2 * P + begin]), z, input_precision=precision)
                a = states.load([base, start])
                r = tl.dot(a, w_hidden.load([start, begin]), r, input_precision=precision)
                z = tl.dot(a, w_hidden.load([start, P + begin]), z, input_precision=precision)
                u = tl.dot(a, w_hidden.load([start, 2 * P + begin]), u, input_precision=precision)
        target = tl.load(following + rows, mask=inside, other=-1)
        to = target * PARTS + (base + line) % PARTS - last
        _update_slices(n, r, z, u, base, last, inside, target, to, begin, state, h, gates, P, M, N)
