"""The packed execution of an environment with beliefs over classes, compiled.

One call runs all steps. Threads share the rows of a step (`team`). What a row comes to does not depend on how, so that
the number of threads changes no bit of any result.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic, overload

from ipagnn.ops.pointer.cpu.environment_layout import chunk_of, count_chunks
from ipagnn.ops.pointer.cpu.math import inlined, jit, tanh
from ipagnn.ops.pointer.cpu.team import done, take, wait
from ipagnn.ops.pointer.cpu.tiles import VECTOR, multiply_rows, pack

_F = np.float32


@intrinsic
def _as_float(context, whole):  # type: ignore[no-untyped-def]
    """The float32 with the bits of an int32."""

    def generate(context, builder, signature, values):  # type: ignore[no-untyped-def]
        return builder.bitcast(values[0], ir.FloatType())

    return types.float32(types.int32), generate


def exp(x: Any) -> Any:
    """The exponential of a number that is not above 0."""
    raise NotImplementedError("compiled code only")


@overload(exp, jit_options={"fastmath": {"contract"}})
def _exp_by_type(x):  # type: ignore[no-untyped-def]
    if x != types.float32:
        return lambda x: math.exp(x)
    least, log2, half = _F(-87.0), _F(1.44269504088896341), _F(0.5)
    high, low = _F(0.693359375), _F(-2.12194440e-4)  # log 2 in two parts
    c0, c1, c2, c3, c4, c5 = map(
        _F, (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
    )
    one = _F(1.0)

    def polynomial(x):  # type: ignore[no-untyped-def]
        """2 to a whole power, times a polynomial (as in Cephes); a call would not be a vector."""
        x = least if x < least else x
        n = np.int32(x * log2 - half)
        r = x - _F(n) * high
        r = r - _F(n) * low
        p = c0
        p = p * r + c1
        p = p * r + c2
        p = p * r + c3
        p = p * r + c4
        p = p * r + c5
        p = p * (r * r) + r + one
        return p * _as_float(np.int32((n + np.int32(127)) << np.int32(23)))  # type: ignore[call-arg]

    return polynomial


def _define_largest(context, address, count, kind):  # type: ignore[no-untyped-def]
    """The largest of some numbers, which are whole vectors; not numbers do not count."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        address, count, start = values
        number = context.get_value_type(signature.return_type)
        size = 4 if isinstance(number, ir.FloatType) else 8
        vector = ir.VectorType(number, VECTOR // size)
        before = builder.block
        loop, after = builder.append_basic_block("loop"), builder.append_basic_block("after")
        place = ir.IntType(32)
        first = builder.insert_element(ir.Constant(vector, ir.Undefined), start, ir.Constant(place, 0))
        everywhere = ir.Constant(ir.VectorType(place, vector.count), [0] * vector.count)
        first = builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), everywhere)
        builder.branch(loop)
        builder.position_at_end(loop)
        index, best = builder.phi(ir.IntType(64)), builder.phi(vector)
        at = builder.inttoptr(
            builder.add(address, builder.mul(index, ir.Constant(ir.IntType(64), size))), vector.as_pointer()
        )
        value = builder.load(at)
        value.align = size
        larger = builder.select(builder.fcmp_ordered(">", value, best), value, best)
        following = builder.add(index, ir.Constant(ir.IntType(64), vector.count))
        index.add_incoming(ir.Constant(ir.IntType(64), 0), before)
        index.add_incoming(following, loop)
        best.add_incoming(first, before)
        best.add_incoming(larger, loop)
        builder.cbranch(builder.icmp_signed("<", following, count), loop, after)
        builder.position_at_end(after)
        result = builder.extract_element(larger, ir.Constant(place, 0))
        for i in range(1, vector.count):
            each = builder.extract_element(larger, ir.Constant(place, i))
            result = builder.select(builder.fcmp_ordered(">", each, result), each, result)
        return result

    return kind(types.int64, types.int64, kind), generate


_largest: Any = intrinsic(_define_largest)


@inlined
def _gelu(x, out, slope, row, width):  # type: ignore[no-untyped-def]
    """The tanh form of gelu of a row, and its derivative."""
    kind = x.dtype.type
    root, cube, half, one = kind(0.7978845608028654), kind(0.044715), kind(0.5), kind(1)
    three = kind(3 * 0.044715)
    for j in range(width):
        v = x[row, j]
        square = v * v
        t = tanh(root * (v + cube * v * square))
        out[row, j] = half * v * (one + t)
        slope[row, j] = half * (one + t) + half * v * (one - t * t) * root * (one + three * square)


@inlined
def _combine(w, p, m):  # type: ignore[no-untyped-def]
    """Gates and offsets of all pairs that are no literals."""
    hidden, width, pairs = w.layer.shape[0], w.read.shape[0], len(m.number)
    for i in range(pairs):
        for j in range(width):
            m.number[i, j] = w.embedding[p.pair_operand[p.literals + i], j]
        m.number[i, width] = 1
    multiply_rows(m.number, 0, pairs, w.gate_panels, width, m.gate, 0, 0)
    multiply_rows(m.number, 0, pairs, w.offset_panels, width + 1, m.offset, 0, 0)
    for i in range(pairs):
        operation = p.pair_operation[p.literals + i]
        for j in range(hidden):
            m.gate[i, j] += 1 + w.gate_operation[operation, j]
            m.offset[i, j] += w.offset_operation[operation, j]


@inlined
def _network(w, p, lay, m, first, last, literal):  # type: ignore[no-untyped-def]
    """Z of some rows, which are literals or not."""
    hidden, width = w.layer.shape[0], w.read.shape[0]
    if literal:
        for row in range(first, last):
            number = p.pair_operand[lay.pair[row]]
            for j in range(width):
                m.x[row, j] = w.embedding[number, j]
            m.x[row, width] = 1
        multiply_rows(m.x, first, last, w.offset_panels, width + 1, m.a, first, 0)
    else:
        for row in range(first, last):
            view = lay.reads[row]
            for j in range(width):
                m.x[row, j] = m.views[view, j]
        multiply_rows(m.x, first, last, w.read_panels, width, m.a, first, 0)
    for row in range(first, last):
        pair = lay.pair[row]
        if literal:
            operation = p.pair_operation[pair]
            for j in range(hidden):
                m.h[row, j] = m.a[row, j] + w.offset_operation[operation, j]
        else:
            pair -= p.literals
            for j in range(hidden):
                m.h[row, j] = m.a[row, j] * m.gate[pair, j] + m.offset[pair, j]
        _gelu(m.h, m.h, m.h_slope, row, hidden)
        m.h[row, hidden] = 1
    multiply_rows(m.h, first, last, w.layer_panels, hidden + 1, m.z, first, 0)
    for row in range(first, last):
        _gelu(m.z, m.z, m.z_slope, row, hidden)
        for j in range(hidden):
            m.z[row, j] += m.h[row, j]
        m.z[row, hidden] = 1


@inlined
def _exponentials(logits, row, count):  # type: ignore[no-untyped-def]
    """exp(logit - largest) in place of the logits of a row; returns 1 / sum."""
    largest = _largest(logits.ctypes.data + row * logits.strides[0], count, logits[row, 0])
    total = logits.dtype.type(0)
    for j in range(count):
        value = exp(logits[row, j] - largest)
        logits[row, j] = value
        total += value
    return logits.dtype.type(1) / total


@inlined
def _write(w, p, lay, m, first, last):  # type: ignore[no-untyped-def]
    """Beliefs and likelihoods of what rows write, and views of those that are seen."""
    hidden, width = w.project.shape
    multiply_rows(m.z, first, last, w.project_panels, hidden + 1, m.y, first, 0)
    for row in range(first, last):
        m.y[row, width] = 1
    multiply_rows(m.y, first, last, w.to_logits, width + 1, m.belief, first, 0)
    for row in range(first, last):
        scale = _exponentials(m.belief, row, w.to_logits.shape[0] * w.to_logits.shape[2])
        m.scale[row] = scale
        written = lay.written[row]
        for q in range(p.query_offsets[written], p.query_offsets[written + 1]):
            m.likelihood[q] = m.belief[row, p.target[p.query_program[q]]] * scale
    if first < len(lay.place):
        multiply_rows(m.belief, first, last, w.to_view, len(w.output_bias), m.views, lay.place[first], 0)
        for row in range(first, last):
            for j in range(width):
                m.views[lay.place[row], j] *= m.scale[row]


@inlined
def _decide(w, lay, m, first, last):  # type: ignore[no-untyped-def]
    """Shares of conditions."""
    for row in range(first, last):
        true, false = w.branch_bias[0], w.branch_bias[1]
        for j in range(w.layer.shape[0]):
            true += m.z[row, j] * w.branch[0, j]
            false += m.z[row, j] * w.branch[1, j]
        c = row - len(lay.written)
        m.shares[c, 0] = 1 / (1 + math.exp(false - true))
        m.shares[c, 1] = 1 / (1 + math.exp(true - false))


PACKS = 8
"""Chunks in which weights are copied to panels."""


@jit
def _pack_all(matrix, bias, forwards, backwards, chunk):  # type: ignore[no-untyped-def]
    """Some panels of a matrix, with its bias as a last row if it has one, and of its transpose."""
    inner, width = forwards.shape[1] - (1 if len(bias) else 0), forwards.shape[2]
    for p in range(chunk, forwards.shape[0], PACKS):
        pack(matrix, False, forwards[:, :inner], p)
        for j in range(p * width, min(len(bias), (p + 1) * width)):
            forwards[p, inner, j - p * width] = bias[j]
    for p in range(chunk, backwards.shape[0], PACKS):
        pack(matrix, True, backwards, p)


@jit
def _pack(w, m, chunk):  # type: ignore[no-untyped-def]
    """Panels of the weights, some by each of `PACKS` chunks."""
    classes, width = len(w.output_bias), w.read.shape[0]
    for p in range(chunk, w.to_logits.shape[0], PACKS):
        pack(w.embedding[:classes], True, w.to_logits[:, :width], p)
        for j in range(w.to_logits.shape[2]):
            c = p * w.to_logits.shape[2] + j
            w.to_logits[p, width, j] = w.output_bias[c] if c < classes else -np.inf  # so that exp is 0
    for p in range(chunk, w.to_view.shape[0], PACKS):
        pack(w.embedding[:classes], False, w.to_view, p)
    _pack_all(w.read, w.layer_bias[:0], w.read_panels, w.read_back, chunk)
    _pack_all(w.gate_operand, w.layer_bias[:0], w.gate_panels, w.gate_back, chunk)
    _pack_all(w.offset_operand, w.offset_bias, w.offset_panels, w.offset_back, chunk)
    _pack_all(w.layer, w.layer_bias, w.layer_panels, w.layer_back, chunk)
    _pack_all(w.project, w.project_bias, w.project_panels, w.project_back, chunk)
    if chunk == 0:
        for j in range(width):
            m.views[0, j] = w.embedding[0, j]


@inlined
def _arrive(p, lay, m, t, width, epsilon):  # type: ignore[no-untyped-def]
    """What rows of the step before wrote, and mass and mixtures that arrive at a step."""
    one, zero = m.mass.dtype.type(1), m.mass.dtype.type(0)
    if t:
        for r in range(p.steps[t - 1], p.steps[t]):
            q = p.row_query[r]
            m.after[r] = m.mass[r] * m.likelihood[q] if q >= 0 else (zero if p.row_writes[r] else m.joint[r])
    if t == len(p.steps) - 1:
        rows = p.steps[t]
        for i in range(len(m.result)):
            total = zero
            for e in range(p.arrival_offsets[rows + i], p.arrival_offsets[rows + i + 1]):
                source, side = p.arrivals[e] // 2, p.arrivals[e] % 2
                c = p.row_condition[source]
                total += m.after[source] * (m.shares[c, side] if c >= 0 else one)
            m.result[i] = total
        return
    for r in range(p.steps[t], p.steps[t + 1]):
        mass, joint = zero, zero
        for e in range(p.arrival_offsets[r], p.arrival_offsets[r + 1]):
            source, side = p.arrivals[e] // 2, p.arrivals[e] % 2
            c = p.row_condition[source]
            b = m.shares[c, side] if c >= 0 else one
            mass += m.mass[source] * b
            joint += m.after[source] * b
        if t == 0:
            mass, joint = one, one if p.target[p.row_program[r]] == 0 else zero
        m.mass[r], m.joint[r] = mass, joint
    for i in range(p.mixtures[t], p.mixtures[t + 1]):
        view = lay.mixtures[t] + i - p.mixtures[t]
        mass = m.mass[p.mixture_row[i]]
        for j in range(width):
            m.views[view, j] = zero
        for k in range(p.mixture_offsets[i], p.mixture_offsets[i + 1]):
            source, side = p.arrivals[p.argument_edge[k]] // 2, p.arrivals[p.argument_edge[k]] % 2
            c = p.row_condition[source]
            weight = m.mass[source] * (m.shares[c, side] if c >= 0 else one)
            weight = weight / (mass + epsilon) if mass > 0 else zero
            brought = p.argument_view[k]
            for j in range(width):
                m.views[view, j] += weight * m.views[brought, j]


@jit
def forward(counters, give_way, w, p, lay, m, epsilon):  # type: ignore[no-untyped-def]
    """Run all steps; `m.result` is P(target) of each program. Every thread of a team calls it."""
    steps = len(p.steps) - 1
    for phase in range(2 * steps + 3):
        t = phase // 2 - 1
        packs, literals, arrives = phase == 0, phase == 1, phase % 2 == 0
        count = PACKS if packs else 1 if arrives else count_chunks(lay, t) + literals
        while True:
            chunk = take(counters, phase, count)
            if chunk < 0:
                break
            if packs:
                _pack(w, m, chunk)
            elif arrives:
                _arrive(p, lay, m, t, w.read.shape[0], epsilon)
            elif literals and chunk == 0:
                _combine(w, p, m)
            else:
                group, first, last = chunk_of(lay, t, chunk - literals)
                _network(w, p, lay, m, first, last, literals)
                if group == 2:
                    _decide(w, lay, m, first, last)
                else:
                    _write(w, p, lay, m, first, last)
            done(counters, phase)
        wait(counters, phase, count, give_way)
