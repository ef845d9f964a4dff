"""The packed step on a CUDA GPU, backwards: the mirror of `forward`, whose notes hold here too."""

import triton
import triton.language as tl

from ipagnn.ops.pointer.triton.forward import PLAIN, apart, load_four, load_state, tanh, together


@triton.jit
def gate_gradients(d_h, d_c, i, f, g, o, before, after):  # type: ignore[no-untyped-def]
    """Gradients of the four gates before their non-linearities, and of the cell state before the token."""
    shape = tanh(after)
    d_c += d_h * o * (1.0 - shape * shape)
    return (
        d_c * g * i * (1.0 - i),
        d_c * before * f * (1.0 - f),
        d_c * i * (1.0 - g * g),
        d_h * shape * o * (1.0 - o),
        d_c * f,
    )


@triton.jit(do_not_specialize=PLAIN)
def aggregate_backward(  # type: ignore[no-untyped-def]
    offsets, step, total_step, row_true, row_false, branches, branch_weight, pointer, decision, d_pointer, d_score,
    h, c, gates, d_state, final, final_mass, d_final, capacity, eps,
    NORMALISE: tl.constexpr, HARD: tl.constexpr, P: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The reverse of `aggregate` for the rows of `step`, from their successors' gradients, and of layer 2's last token.

    d_state [4, row, P] (c1, h1, c2, h2) holds the gradient of a row's state *before* its statement when this reads a
    successor's, and receives what flows into the state *after* it (the state proposal), for the waves to carry back.
    """
    column = tl.arange(0, WIDTH)
    inside = column < P
    plane = capacity.to(tl.int64) * P
    first = tl.load(offsets + step)
    last = tl.load(offsets + step + 1)
    total = tl.load(offsets + total_step)
    for row in range(first + tl.program_id(0), last, tl.num_programs(0)):
        at = row * P + column
        a_c1, a_h1, a_c2, a_h2 = load_state(h, c, 4 * plane + at, plane, inside)
        p = tl.load(pointer + row)
        branching = tl.load(branches + row)
        soft = tl.load(decision + row, mask=branching != 0, other=1.0)
        chosen = tl.where(soft >= 0.5, 1.0, 0.0) if HARD else soft
        o_c1 = tl.zeros((WIDTH,), tl.float32)
        o_h1 = tl.zeros((WIDTH,), tl.float32)
        o_c2 = tl.zeros((WIDTH,), tl.float32)
        o_h2 = tl.zeros((WIDTH,), tl.float32)
        d_true = p * 0.0
        d_false = p * 0.0
        for side in tl.static_range(2):
            target = tl.load((row_true if side == 0 else row_false) + row)
            if target >= 0:
                if target >= total:
                    program = (target - total).to(tl.int64)
                    mass = tl.load(final_mass + program)
                    e_at = program * (4 * P) + column
                    e_c1, e_h1, e_c2, e_h2 = load_four(final + e_at, inside, P)
                    g_c1, g_h1, g_c2, g_h2 = load_four(d_final + e_at, inside, P)
                    d_mass = mass * 0.0
                else:
                    mass = tl.load(pointer + target)
                    n_at = target.to(tl.int64) * P + column
                    e_c1, e_h1, e_c2, e_h2 = load_state(h, c, n_at, plane, inside)
                    g_c1, g_h1, g_c2, g_h2 = load_four(d_state + n_at, inside, plane)
                    d_mass = tl.load(d_pointer + target)
                if NORMALISE:
                    scale = tl.where(mass > 0, 1.0 / (mass + eps), 1.0)
                    d_mass -= scale * tl.sum(g_c1 * e_c1 + g_h1 * e_h1 + g_c2 * e_c2 + g_h2 * e_h2)
                else:
                    scale = 1.0
                share = chosen if side == 0 else 1.0 - chosen
                weight = scale * p * share
                o_c1 += weight * g_c1
                o_h1 += weight * g_h1
                o_c2 += weight * g_c2
                o_h2 += weight * g_h2
                d_weight = d_mass + scale * tl.sum(g_c1 * a_c1 + g_h1 * a_h1 + g_c2 * a_c2 + g_h2 * a_h2)
                if side == 0:
                    d_true = d_weight
                else:
                    d_false = d_weight
        tl.store(d_pointer + row, chosen * d_true + (1.0 - chosen) * d_false)
        slope = p * soft * (1.0 - soft) * (d_true - d_false)  # 0 where nothing is decided: there soft is 1
        b_c1, b_h1, b_c2, b_h2 = load_four(branch_weight + column, inside, P)
        o_c1 += slope * b_c1
        o_h1 += slope * b_h1
        o_c2 += slope * b_c2
        o_h2 += slope * b_h2
        tl.store(d_score + row, slope)
        tl.store(d_state + at, o_c1, mask=inside)
        tl.store(d_state + plane + at, o_h1, mask=inside)
        saved = gates + 7 * 4 * plane + row * (4 * P) + 4 * column  # layer 2, token 3
        i, f, g, o = load_four(saved, inside, 1)
        before = tl.load(c + 8 * plane + at, mask=inside, other=0.0)
        i, f, g, o, d_before = gate_gradients(o_h2, o_c2, i, f, g, o, before, a_c2)
        tl.store(d_state + 2 * plane + at, d_before, mask=inside)
        kind = h.dtype.element_ty
        tl.store(saved, i.to(kind), mask=inside)
        tl.store(saved + 1, f.to(kind), mask=inside)
        tl.store(saved + 2, g.to(kind), mask=inside)
        tl.store(saved + 3, o.to(kind), mask=inside)


@triton.jit
def _back_products(  # type: ignore[no-untyped-def]
    gradients, weights, first_plane, first_weight, second_plane, second_weight, rows, inside, columns,
    M: tl.constexpr, N: tl.constexpr, P: tl.constexpr, LENGTH: tl.constexpr, K: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Sum of gradients @ weights^T over one or two (plane, weight) pairs in a single loop; LENGTH is 4 P or 8 P."""
    precision: tl.constexpr = "ieee" if EXACT else "tf32"
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, LENGTH, K):
        plane = tl.where(start < 4 * P, first_plane, second_plane - 4 * P)
        weight = tl.where(start < 4 * P, first_weight, second_weight - 4 * P)
        inner = start + tl.arange(0, K)
        left = tl.load(gradients + plane + rows[:, None] * (4 * P) + inner[None, :], mask=inside[:, None], other=0.0)
        right = tl.load(weights + weight + inner[:, None] + columns[None, :] * (4 * P))
        total = tl.dot(left, right, total, input_precision=precision)
    return total


@triton.jit
def _finish_token_backward(d_h, d_cell, c, gates, at, gate_at, plane, fits, M: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    """The gates' arithmetic backwards: replaces the gates by their gradients, d_cell by that before the token."""
    i, f, g, o = apart(tl.load(gates + gate_at, mask=fits, other=0.0).to(tl.float32), M, N)
    before = tl.load(c + at, mask=fits, other=0.0)
    after = tl.load(c + plane + at, mask=fits, other=0.0)
    d_c = tl.load(d_cell + at, mask=fits, other=0.0)
    i, f, g, o, d_c = gate_gradients(d_h, d_c, i, f, g, o, before, after)
    tl.store(d_cell + at, d_c, mask=fits)
    tl.store(gates + gate_at, together(i, f, g, o, M, N).to(gates.dtype.element_ty), mask=fits)


@triton.jit(do_not_specialize=PLAIN)
def wave_backward(  # type: ignore[no-untyped-def]
    offsets, step, weights, c, gates, d_state, capacity,
    WAVE: tl.constexpr, P: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Token WAVE of layer 1 and token WAVE - 1 of layer 2, backwards; -1 stands for the state before token 0.

    gates [layer, 4, row, P, 4] holds gates on entry and the gradients of their pre-activations on return.
    """
    first = tl.load(offsets + step)
    last = tl.load(offsets + step + 1)
    across: tl.constexpr = P // N
    both: tl.constexpr = WAVE >= 0
    tiles = tl.cdiv(last - first, M) * across
    plane = capacity.to(tl.int64) * P
    total = tiles * 2 if both else tiles
    for tile in range(tl.program_id(0), total, tl.num_programs(0)):
        local = tile % tiles if both else tile
        rows = (first + (local // across) * M + tl.arange(0, M)).to(tl.int64)
        inside = rows < last
        fits = inside[:, None]
        columns = (local % across) * N + tl.arange(0, N)
        at = rows[:, None] * P + columns[None, :]
        gate_at = rows[:, None] * (4 * P) + ((local % across) * (4 * N) + tl.arange(0, 4 * N))[None, :]
        gate_plane = 4 * plane
        square = 4 * P * P
        if (tile < tiles) if both else True:  # layer 1, the longer one, goes first
            upper = (4 + WAVE) * gate_plane  # layer 2, token WAVE
            later = (WAVE + 1) * gate_plane  # layer 1, token WAVE + 1
            if WAVE == 3:
                d_h = _back_products(
                    gates, weights, upper, square, upper, square, rows, inside, columns, M, N, P, 4 * P, K, EXACT
                )
                d_h += tl.load(d_state + plane + at, mask=fits, other=0.0)
            elif WAVE >= 0:
                d_h = _back_products(
                    gates, weights, upper, square, later, 0, rows, inside, columns, M, N, P, 8 * P, K, EXACT
                )
            else:
                d_h = _back_products(
                    gates, weights, later, 0, later, 0, rows, inside, columns, M, N, P, 4 * P, K, EXACT
                )
            if WAVE >= 0:
                old = WAVE * plane
                _finish_token_backward(d_h, d_state, c + old, gates + 4 * old, at, gate_at, plane, fits, M, N)
            else:
                tl.store(d_state + plane + at, d_h, mask=fits)
        else:
            upper = (4 + WAVE) * gate_plane
            d_h = _back_products(
                gates, weights, upper, 2 * square, upper, 2 * square, rows, inside, columns, M, N, P, 4 * P, K, EXACT
            )
            if WAVE >= 1:
                old = (WAVE - 1) * plane
                saved = gates + 4 * (4 * plane + old)
                _finish_token_backward(
                    d_h, d_state + 2 * plane, c + 5 * plane + old, saved, at, gate_at, plane, fits, M, N
                )
            else:
                tl.store(d_state + 3 * plane + at, d_h, mask=fits)


@triton.jit(do_not_specialize=PLAIN)
def token_partials(  # type: ignore[no-untyped-def]
    chunk_offsets, chunks, order, g1, partials, capacity, P4: tl.constexpr, N: tl.constexpr, M: tl.constexpr
):
    """Sums of layer 1's gate gradients over chunks of at most M equal tokens; `order` is that of the plan."""
    plane = capacity.to(tl.int64) * P4
    columns = tl.program_id(1) * N + tl.arange(0, N)
    fits = columns < P4
    for chunk in range(tl.program_id(0), tl.load(chunks), tl.num_programs(0)):
        start = tl.load(chunk_offsets + chunk)
        index = start + tl.arange(0, M)
        inside = index < tl.load(chunk_offsets + chunk + 1)
        place = tl.load(order + index, mask=inside, other=0).to(tl.int64)
        at = (place % 4)[:, None] * plane + (place // 4)[:, None] * P4 + columns[None, :]
        values = tl.load(g1 + at, mask=inside[:, None] & fits[None, :], other=0.0).to(tl.float32)
        tl.store(partials + chunk * P4 + columns, tl.sum(values, axis=0), mask=fits)
