"""R-GAT on a CUDA GPU: Triton kernels for its attention, forwards and backwards. See `message_triton`.

A state is one part of H numbers, which HEADS heads divide among them; blocks are [HEADS, SLICE], both powers of 2.
"""

import triton
import triton.language as tl

from ipagnn.models import r_gat
from ipagnn.ops.messages.triton.forward import EXIT
from ipagnn.ops.pointer.triton.forward import PLAIN

LEAK = tl.constexpr(r_gat.LEAK)
NORM_EPSILON = tl.constexpr(1e-5)


@triton.jit
def _clear_padding(at, H: tl.constexpr, P: tl.constexpr):  # type: ignore[no-untyped-def]
    """Zero the columns from H to P of a line: there are at most 32."""
    padding = H + tl.arange(0, 32)
    tl.store(at + padding, tl.zeros((32,), at.dtype.element_ty), mask=padding < P)


@triton.jit(do_not_specialize=PLAIN)
def attend(  # type: ignore[no-untyped-def]
    offsets, step, following, arrival_offsets, arrivals, messages, state, h, query, key, bias, logits, sizes, out, rstd,
    H: tl.constexpr, P: tl.constexpr, COUNT: tl.constexpr, HEADS: tl.constexpr, SLICE: tl.constexpr,
):  # fmt: skip
    """LayerNorm(h + ELU(h~)), where h~ is a softmax over what arrives.

    messages [row, 4, P] are g; query, key [4, H]. Keeps logits [edge, COUNT], the logarithms of their sizes
    [row, COUNT], h~ [row, P] and the inverse deviation [row].
    """
    head = tl.arange(0, HEADS)
    inner = tl.arange(0, SLICE)[None, :]
    width: tl.constexpr = H // COUNT
    column = head[:, None] * width + inner
    inside = (head[:, None] < COUNT) & (inner < width)
    shift = tl.load(bias + column, mask=inside, other=0.0)
    for row in range(tl.load(offsets + step) + tl.program_id(0), tl.load(offsets + step + 1), tl.num_programs(0)):
        target = tl.load(following + row)
        if target >= 0:
            total = tl.zeros((HEADS, SLICE), tl.float32)
            most = tl.full((HEADS,), -1e30, tl.float32)
            size = tl.zeros((HEADS,), tl.float32)
            for edge in range(tl.load(arrival_offsets + row), tl.load(arrival_offsets + row + 1)):
                code = tl.load(arrivals + edge)
                slot = code % 4
                own = tl.load(messages + (row * 4 + slot) * P + column, mask=inside, other=0.0).to(tl.float32)
                other = tl.load(messages + code * P + column, mask=inside, other=0.0).to(tl.float32)
                q = tl.load(query + slot * H + column, mask=inside, other=0.0)
                k = tl.load(key + slot * H + column, mask=inside, other=0.0)
                logit = tl.sum(own * q + other * k, 1)
                tl.store(logits + edge * COUNT + head, logit, mask=head < COUNT)
                logit = tl.where(logit > 0, logit, LEAK * logit)
                largest = tl.maximum(most, logit)
                shrink = tl.exp(most - largest)
                weight = tl.exp(logit - largest)
                total = total * shrink[:, None] + weight[:, None] * other
                size = size * shrink + weight
                most = largest
            tl.store(sizes + row * COUNT + head, most + tl.log(size), mask=head < COUNT)
            value = total / size[:, None] + shift
            tl.store(out + row * P + column, value, mask=inside)
            old = tl.load(state + row * P + column, mask=inside, other=0.0)
            value = tl.where(inside, old + tl.where(value > 0, value, tl.exp(value) - 1.0), 0.0)
            mean = tl.sum(tl.sum(value, 1), 0) / H
            value = tl.where(inside, value - mean, 0.0)
            scale = 1.0 / tl.sqrt(tl.sum(tl.sum(value * value, 1), 0) / H + NORM_EPSILON)
            tl.store(rstd + row, scale)
            tl.store(state + target * P + column, value * scale, mask=inside)
            if h.dtype.element_ty != tl.float32:
                tl.store(h + target * P + column, (value * scale).to(h.dtype.element_ty), mask=inside)
            _clear_padding(h + target * P, H, P)


@triton.jit(do_not_specialize=PLAIN)
def attend_backward(  # type: ignore[no-untyped-def]
    offsets, step, following, flags, arrival_offsets, arrivals, messages, state, bias, logits, sizes, out, rstd,
    d_logits, d_out, d_state,
    H: tl.constexpr, P: tl.constexpr, COUNT: tl.constexpr, HEADS: tl.constexpr, SLICE: tl.constexpr,
):  # fmt: skip
    """The reverse of `attend` at the rows of `step`, from the gradients of the next step's states.

    Replaces logits by the weights of the messages.
    """
    head = tl.arange(0, HEADS)
    inner = tl.arange(0, SLICE)[None, :]
    width: tl.constexpr = H // COUNT
    column = head[:, None] * width + inner
    inside = (head[:, None] < COUNT) & (inner < width)
    shift = tl.load(bias + column, mask=inside, other=0.0)
    for row in range(tl.load(offsets + step) + tl.program_id(0), tl.load(offsets + step + 1), tl.num_programs(0)):
        target = tl.load(following + row)
        at = row * P + column
        if target >= 0:
            gradient = tl.load(d_state + target * P + column, mask=inside, other=0.0)
            normal = tl.load(state + target * P + column, mask=inside, other=0.0)
            mean = tl.sum(tl.sum(gradient, 1), 0) / H
            slope = tl.sum(tl.sum(gradient * normal, 1), 0) / H
            gradient = tl.load(rstd + row) * tl.where(inside, gradient - mean - normal * slope, 0.0)
            tl.store(d_state + at, gradient, mask=inside)
            _clear_padding(d_state + row * P, H, P)
            value = tl.load(out + at, mask=inside, other=0.0)
            gradient = gradient * tl.where(value > 0, 1.0, tl.exp(value))
            tl.store(d_out + at, gradient.to(d_out.dtype.element_ty), mask=inside)
            expected = tl.sum(gradient * (value - shift), 1)
            size = tl.load(sizes + row * COUNT + head, mask=head < COUNT, other=0.0)
            for edge in range(tl.load(arrival_offsets + row), tl.load(arrival_offsets + row + 1)):
                other = tl.load(messages + tl.load(arrivals + edge) * P + column, mask=inside, other=0.0)
                logit = tl.load(logits + edge * COUNT + head, mask=head < COUNT, other=0.0)
                rate = tl.where(logit > 0, 1.0, LEAK)
                weight = tl.exp(logit * rate - size)
                change = rate * weight * (tl.sum(gradient * other.to(tl.float32), 1) - expected)
                tl.store(logits + edge * COUNT + head, weight, mask=head < COUNT)
                tl.store(d_logits + edge * COUNT + head, change, mask=head < COUNT)
        else:
            zero = tl.zeros((HEADS, SLICE), tl.float32)
            tl.store(d_out + at, zero.to(d_out.dtype.element_ty), mask=inside)
            if (tl.load(flags + row) & EXIT) == 0:  # the last exit has the gradient of the loss
                tl.store(d_state + at, zero, mask=inside)
                _clear_padding(d_state + row * P, H, P)


@triton.jit(do_not_specialize=PLAIN)
def messages_backward(  # type: ignore[no-untyped-def]
    offsets, step, arrival_offsets, arrivals, departure_offsets, departures, targets, query, key, weights, d_logits,
    d_out, d_messages, s_query, s_key,
    H: tl.constexpr, P: tl.constexpr, COUNT: tl.constexpr, HEADS: tl.constexpr, SLICE: tl.constexpr,
):  # fmt: skip
    """The gradients of g [row, 4, P], as what was asked and as what was told; and the sums of both kinds' logits."""
    head = tl.arange(0, HEADS)
    inner = tl.arange(0, SLICE)[None, :]
    width: tl.constexpr = H // COUNT
    column = head[:, None] * width + inner
    inside = (head[:, None] < COUNT) & (inner < width)
    for row in range(tl.load(offsets + step) + tl.program_id(0), tl.load(offsets + step + 1), tl.num_programs(0)):
        for slot in tl.static_range(4):
            place = row * 4 + slot
            total = tl.zeros((HEADS, SLICE), tl.float32)
            asked = tl.zeros((HEADS,), tl.float32)
            told = tl.zeros((HEADS,), tl.float32)
            for edge in range(tl.load(arrival_offsets + row), tl.load(arrival_offsets + row + 1)):
                change = tl.load(d_logits + edge * COUNT + head, mask=head < COUNT, other=0.0)
                asked += tl.where(tl.load(arrivals + edge) % 4 == slot, change, 0.0)
            for index in range(tl.load(departure_offsets + place), tl.load(departure_offsets + place + 1)):
                edge_out = tl.load(departures + index)
                told += tl.load(d_logits + edge_out * COUNT + head, mask=head < COUNT, other=0.0)
                weight = tl.load(weights + edge_out * COUNT + head, mask=head < COUNT, other=0.0)
                to = tl.load(targets + edge_out)
                gradient = tl.load(d_out + to * P + column, mask=inside, other=0.0).to(tl.float32)
                total += weight[:, None] * gradient
            total += asked[:, None] * tl.load(query + slot * H + column, mask=inside, other=0.0)
            total += told[:, None] * tl.load(key + slot * H + column, mask=inside, other=0.0)
            tl.store(d_messages + place * P + column, total.to(d_messages.dtype.element_ty), mask=inside)
            _clear_padding(d_messages + place * P, H, P)
            kind = s_query.dtype.element_ty
            tl.store(s_query + place * COUNT + head, asked.to(kind), mask=head < COUNT)
            tl.store(s_key + place * COUNT + head, told.to(kind), mask=head < COUNT)


@triton.jit(do_not_specialize=PLAIN)
def send_backward(  # type: ignore[no-untyped-def]
    offsets, step, d_sent, weights, d_state,
    P: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Add what comes back through the messages to the gradients of the states of `step`.

    Descriptors: `d_sent` of the gradients of messages [row, 4 P] in blocks [M, K]; `weights` [P, 4 P] in blocks [N, K].
    """
    first = tl.load(offsets + step)
    last = tl.load(offsets + step + 1)
    across: tl.constexpr = (P + N - 1) // N
    for tile in range(tl.program_id(0), tl.cdiv(last - first, M) * across, tl.num_programs(0)):
        base = first + (tile // across) * M
        line = tl.arange(0, M)
        begin = (tile % across) * N
        total = tl.zeros((M, N), tl.float32)
        for start in range(0, 4 * P, K):
            right = tl.trans(weights.load([begin, start]))
            total = tl.dot(d_sent.load([base, start]), right, total, input_precision="ieee" if EXACT else "tf32")
        units = begin + tl.arange(0, N)
        here = (line < last - base)[:, None] & (units < P)[None, :]
        at = d_state + base.to(tl.int64) * P + (line[:, None] * P + units[None, :])
        tl.store(at, total + tl.load(at, mask=here, other=0.0), mask=here)
