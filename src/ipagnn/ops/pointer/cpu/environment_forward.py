"""The packed execution of an environment with beliefs over classes, compiled.

One call runs all steps, with the matrix product that torch brings. Rows of the network are literals, and then for each
step its statements and conditions. Work row by row stays in the nearest cache, in short loops that become vectors.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic, overload

from ipagnn.ops.pointer.cpu.math import jit, multiply, tanh

Array = Any


class Weights(NamedTuple):
    """Of the network; kernels as `nn.values.classes` has them, and transposed for the way back."""

    classes: Array  # E, of the classes alone
    classes_t: Array
    read: Array
    read_t: Array
    gate: Array  # 1 + g + G E_k of each pair
    offset: Array  # o + O E_k of each pair
    layer: Array
    layer_t: Array
    layer_bias: Array
    project: Array  # times sqrt(D), as is its bias
    project_t: Array
    project_bias: Array
    output_bias: Array
    branch: Array
    branch_bias: Array


class Plan(NamedTuple):
    """As `EnvironmentPlan` has it."""

    literals: int
    viewed_literals: int
    steps: Array
    statements: Array
    conditions: Array
    mixtures: Array
    viewed: Array
    statement_pair: Array
    statement_reads: Array
    condition_pair: Array
    condition_reads: Array
    mixture_row: Array
    mixture_offsets: Array
    argument_edge: Array
    argument_view: Array
    query_offsets: Array
    query_program: Array
    row_program: Array
    row_query: Array
    row_condition: Array
    row_writes: Array
    arrival_offsets: Array
    arrivals: Array
    target: Array


class Memory(NamedTuple):
    """What the pass computes and the way back reads; `d_` are gradients. Written: literals and statements.

    Written rows with a view stand in `seen`, those without in `unseen`; `place` says where.
    """

    x: Array  # the view that a row reads [row, D]
    a: Array  # x W [row, H]
    h: Array  # [row, H]
    h_slope: Array  # gelu' before h [row, H]
    z: Array  # [row, H]
    z_slope: Array  # gelu' before the second gelu [row, H]
    y: Array  # [written, D]
    seen: Array  # exp(logit - largest) [seen, class]
    unseen: Array
    scale: Array  # 1 / sum of these [written]
    views: Array  # [view, D]
    likelihood: Array  # [query]
    shares: Array  # [condition, 2]
    mass: Array  # p of each row [row of the plan]
    joint: Array  # p, and v0 has its target, before the row [row of the plan]
    after: Array  # and after it
    result: Array  # [program]
    d_logits: Array  # of what is seen; that of the rest replaces `unseen` [seen, class]
    d_y: Array  # [row, D], 0 for conditions
    d_z: Array  # [row, H]; becomes the gradient before the second gelu
    d_h: Array  # [row, H]; becomes the gradient before the first
    d_a: Array  # [row, H]
    d_x: Array  # [row, D]
    d_branch: Array  # [row, 2], 0 for statements
    d_views: Array
    d_likelihood: Array
    d_shares: Array
    d_mass: Array
    d_joint: Array
    d_after: Array
    d_gate: Array
    d_offset: Array


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


@jit
def _gelu(x, out, slope):  # type: ignore[no-untyped-def]
    """The tanh form of gelu, and its derivative."""
    kind = x.dtype.type
    root, cube, half, one = kind(0.7978845608028654), kind(0.044715), kind(0.5), kind(1)
    three = kind(3 * 0.044715)
    for j in range(len(x)):
        v = x[j]
        square = v * v
        t = tanh(root * (v + cube * v * square))
        out[j] = half * v * (one + t)
        slope[j] = half * (one + t) + half * v * (one - t * t) * root * (one + three * square)


@jit
def _hidden(w, m, row, pair, literal):  # type: ignore[no-untyped-def]
    """H of a row, from a."""
    h, offset = m.h[row], w.offset[pair]
    if literal:
        for j in range(len(h)):
            h[j] = offset[j]
    else:
        a, gate = m.a[row], w.gate[pair]
        for j in range(len(h)):
            h[j] = a[j] * gate[j] + offset[j]
    _gelu(h, h, m.h_slope[row])


@jit
def _upper(address, w, m, first, last):  # type: ignore[no-untyped-def]
    """Z of some rows, from h."""
    multiply(address, m.h[first:last], w.layer, m.z[first:last], 0)
    for row in range(first, last):
        z, h = m.z[row], m.h[row]
        for j in range(len(z)):
            z[j] += w.layer_bias[j]
        _gelu(z, z, m.z_slope[row])
        for j in range(len(z)):
            z[j] += h[j]


@jit
def _exponentials(logits, bias):  # type: ignore[no-untyped-def]
    """exp(logit - largest) in place of logits without their bias; returns 1 / sum."""
    largest = logits[0] + bias[0]
    for j in range(len(logits)):
        logits[j] += bias[j]
    for j in range(len(logits)):
        largest = max(largest, logits[j])
    for j in range(len(logits)):
        logits[j] = exp(logits[j] - largest)
    total = logits.dtype.type(0)
    for j in range(len(logits)):
        total += logits[j]
    return logits.dtype.type(1) / total


@jit
def _write(address, w, p, m, first_row, first, last, seen, viewed, view):  # type: ignore[no-untyped-def]
    """Beliefs, views and likelihoods of what is written: `first : last`, of which the first `viewed` have a view.

    Args:
        first_row: Its first row of the network.
        seen: How many with a view came before.
        view: Place of the first view.
    """
    unseen = first - seen
    count, rest = viewed, last - first - viewed
    y = m.y[first:last]
    multiply(address, m.z[first_row : first_row + last - first], w.project, y, 0)
    for i in range(len(y)):
        for j in range(y.shape[1]):
            y[i, j] += w.project_bias[j]
    if count:
        multiply(address, y[:count], w.classes_t, m.seen[seen : seen + count], 0)
    if rest:
        multiply(address, y[count:], w.classes_t, m.unseen[unseen : unseen + rest], 0)
    for i in range(last - first):
        belief = m.seen[seen + i] if i < count else m.unseen[unseen + i - count]
        scale = _exponentials(belief, w.output_bias)
        m.scale[first + i] = scale
        for q in range(p.query_offsets[first + i], p.query_offsets[first + i + 1]):
            m.likelihood[q] = belief[p.target[p.query_program[q]]] * scale
    if count:
        views = m.views[view : view + count]
        multiply(address, m.seen[seen : seen + count], w.classes, views, 0)
        for i in range(count):
            scale = m.scale[first + i]
            for j in range(views.shape[1]):
                views[i, j] *= scale


@jit
def forward(address, w, p, m, epsilon):  # type: ignore[no-untyped-def]
    """Run all steps; `m.result` is P(target) of each program."""
    rows = p.steps[-1]
    one, zero = m.mass.dtype.type(1), m.mass.dtype.type(0)
    m.views[0] = w.classes[0]
    if p.literals:
        for i in range(p.literals):
            _hidden(w, m, i, i, True)
        _upper(address, w, m, 0, p.literals)
        _write(address, w, p, m, 0, 0, p.literals, 0, p.viewed_literals, 1)
    row, view, seen = p.literals, 1 + p.viewed_literals, p.viewed_literals
    for t in range(len(p.steps) - 1):
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
            mixed = m.views[view + i - p.mixtures[t]]
            mixed[:] = zero
            mass = m.mass[p.mixture_row[i]]
            for k in range(p.mixture_offsets[i], p.mixture_offsets[i + 1]):
                source, side = p.arrivals[p.argument_edge[k]] // 2, p.arrivals[p.argument_edge[k]] % 2
                c = p.row_condition[source]
                weight = m.mass[source] * (m.shares[c, side] if c >= 0 else one)
                weight = weight / (mass + epsilon) if mass > 0 else zero
                brought = m.views[p.argument_view[k]]
                for j in range(len(mixed)):
                    mixed[j] += weight * brought[j]
        view += p.mixtures[t + 1] - p.mixtures[t]
        first, last = p.statements[t], p.statements[t + 1]
        first_condition, last_condition = p.conditions[t], p.conditions[t + 1]
        stated, end = row + last - first, row + last - first + last_condition - first_condition
        for i in range(last - first):
            m.x[row + i] = m.views[p.statement_reads[first + i]]
        for i in range(last_condition - first_condition):
            m.x[stated + i] = m.views[p.condition_reads[first_condition + i]]
        if end > row:
            multiply(address, m.x[row:end], w.read, m.a[row:end], 0)
            for i in range(last - first):
                _hidden(w, m, row + i, p.statement_pair[first + i], False)
            for i in range(last_condition - first_condition):
                _hidden(w, m, stated + i, p.condition_pair[first_condition + i], False)
            _upper(address, w, m, row, end)
        if last > first:
            _write(address, w, p, m, row, p.literals + first, p.literals + last, seen, p.viewed[t], view)
            view += p.viewed[t]
            seen += p.viewed[t]
        for i in range(last_condition - first_condition):
            z = m.z[stated + i]
            true, false = w.branch_bias[0], w.branch_bias[1]
            for j in range(len(z)):
                true += z[j] * w.branch[0, j]
                false += z[j] * w.branch[1, j]
            m.shares[first_condition + i, 0] = 1 / (1 + math.exp(false - true))
            m.shares[first_condition + i, 1] = 1 / (1 + math.exp(true - false))
        row = end
        for r in range(p.steps[t], p.steps[t + 1]):
            q = p.row_query[r]
            m.after[r] = m.mass[r] * m.likelihood[q] if q >= 0 else (zero if p.row_writes[r] else m.joint[r])
    for i in range(len(m.result)):
        total = zero
        for e in range(p.arrival_offsets[rows + i], p.arrival_offsets[rows + i + 1]):
            source, side = p.arrivals[e] // 2, p.arrivals[e] % 2
            c = p.row_condition[source]
            total += m.after[source] * (m.shares[c, side] if c >= 0 else one)
        m.result[i] = total
