"""The way back through `environment_forward`, by hand: gradients of all that is multiplied.

Gradients of weights are products over all rows, which are left to the caller.
"""

import math

from ipagnn.ops.pointer.cpu.math import jit, multiply


@jit
def _active_written(p, m, first_row, first, last, seen, viewed, view, done, longest, negligible):  # type: ignore[no-untyped-def]
    """List what is written whose gradient is not negligible, and return the new counts.

    Of a belief that is almost certain of one value, no gradient comes back: that of its logits is at most what is left
    for other values, times twice the largest change that any value would make.

    Args:
        first_row, first, last, seen, viewed, view: See `_write`.
        done: Numbers of active rows, of those seen and of those not, so far.
        longest: Length of the longest embedding.
        negligible: What is smaller is.
    """
    rows, with_view, without = done
    one = m.mass.dtype.type(1)
    for i in range(last - first):
        bound = m.mass.dtype.type(0)
        for q in range(p.query_offsets[first + i], p.query_offsets[first + i + 1]):
            bound += abs(m.d_likelihood[q]) * m.likelihood[q] * (one - m.likelihood[q])
        if i < viewed:
            square = m.mass.dtype.type(0)
            for x in m.d_views[view + i]:
                square += x * x
            bound += 2 * m.doubt[first + i] * longest * math.sqrt(square)
        if not bound <= negligible:  # also where it is not a number
            m.active[rows] = first_row + i
            rows += 1
            if i < viewed:
                m.active_seen[with_view, 0], m.active_seen[with_view, 1] = first + i, view + i
                m.active_place[with_view] = seen + i
                with_view += 1
            else:
                m.active_rest[without] = first + i
                m.active_rest_place[without] = first - seen + i - viewed
                without += 1
    return rows, with_view, without


@jit
def _ask(p, m, number, gradient):  # type: ignore[no-untyped-def]
    """Add to the gradient of logits what likelihoods ask of their targets."""
    for q in range(p.query_offsets[number], p.query_offsets[number + 1]):
        gradient[p.target[p.query_program[q]]] += m.d_likelihood[q] * m.likelihood[q]


@jit
def _asked(p, m, number):  # type: ignore[no-untyped-def]
    total = m.mass.dtype.type(0)
    for q in range(p.query_offsets[number], p.query_offsets[number + 1]):
        total += m.d_likelihood[q] * m.likelihood[q]
    return total


@jit
def _write_backward(address, w, p, m, before, after):  # type: ignore[no-untyped-def]
    """From the gradients of views and likelihoods to that of z, for the active rows between two counts."""
    row, first, rest = before
    last, last_rest = after[1], after[2]
    d_y = m.d_y[row : after[0]]
    if last > first:
        for k in range(first, last):
            m.d_x[k - first] = m.d_views[m.active_seen[k, 1]]
        multiply(address, m.d_x[: last - first], w.classes_t, m.d_logits[first:last], 0)
        for k in range(first, last):
            number, belief, gradient = m.active_seen[k, 0], m.seen[m.active_place[k]], m.d_logits[k]
            scale, total = m.scale[number], m.mass.dtype.type(0)
            for j in range(len(belief)):
                total += belief[j] * gradient[j]
            total = total * scale + _asked(p, m, number)
            for j in range(len(belief)):
                gradient[j] = belief[j] * scale * (gradient[j] - total)
            _ask(p, m, number, gradient)
        multiply(address, m.d_logits[first:last], w.classes, d_y[: last - first], 0)
    if last_rest > rest:
        for k in range(rest, last_rest):
            number, belief, gradient = m.active_rest[k], m.unseen[m.active_rest_place[k]], m.d_rest[k]
            factor = -m.scale[number] * _asked(p, m, number)
            for j in range(len(belief)):
                gradient[j] = belief[j] * factor
            _ask(p, m, number, gradient)
        multiply(address, m.d_rest[rest:last_rest], w.classes, d_y[last - first :], 0)
    if len(d_y):
        multiply(address, d_y, w.project_t, m.d_z[row : after[0]], 0)


@jit
def _upper_backward(address, w, m, first, last):  # type: ignore[no-untyped-def]
    """From the gradient of z to that of what goes into h's gelu, for some active rows."""
    for k in range(first, last):
        d_h, d_z, slope = m.d_h[k], m.d_z[k], m.z_slope[m.active[k]]
        for j in range(len(d_z)):
            d_h[j] = d_z[j]
        for j in range(len(d_z)):
            d_z[j] *= slope[j]
    multiply(address, m.d_z[first:last], w.layer_t, m.d_h[first:last], 1)
    for k in range(first, last):
        d_h, slope = m.d_h[k], m.h_slope[m.active[k]]
        for j in range(len(d_h)):
            d_h[j] *= slope[j]


@jit
def _hidden_backward(w, m, k, pair):  # type: ignore[no-untyped-def]
    """From the gradient of what goes into h's gelu to those of gate, offset and a, for an active row."""
    d_h, a, gate = m.d_h[k], m.a[m.active[k]], w.gate[pair]
    d_a, d_gate, d_offset = m.d_a[k], m.d_gate[pair], m.d_offset[pair]
    for j in range(len(d_h)):
        d_gate[j] += d_h[j] * a[j]
    for j in range(len(d_h)):
        d_offset[j] += d_h[j]
    for j in range(len(d_h)):
        d_a[j] = d_h[j] * gate[j]


@jit
def _add(total, values):  # type: ignore[no-untyped-def]
    for j in range(len(values)):
        total[j] += values[j]


@jit
def backward(address, w, p, m, d_result, epsilon, longest, negligible):  # type: ignore[no-untyped-def]
    """The way back: gradients of what weights multiply, and of gates, offsets and views.

    Returns:
        Numbers of active rows, of those seen and of those not.
    """
    rows = p.steps[-1]
    one, zero = m.mass.dtype.type(1), m.mass.dtype.type(0)
    for array in (m.d_likelihood, m.d_mass, m.d_joint, m.d_after):
        array[:] = zero
    for wide in (m.d_shares, m.d_views, m.d_gate, m.d_offset):
        wide[:] = zero
    for i in range(len(m.result)):
        for e in range(p.arrival_offsets[rows + i], p.arrival_offsets[rows + i + 1]):
            source, side = p.arrivals[e] // 2, p.arrivals[e] % 2
            c = p.row_condition[source]
            m.d_after[source] += d_result[i] * (m.shares[c, side] if c >= 0 else one)
            if c >= 0:
                m.d_shares[c, side] += d_result[i] * m.after[source]
    row, view, seen = len(m.z), len(m.views), len(m.seen)
    done = 0, 0, 0
    for t in range(len(p.steps) - 2, -1, -1):
        for r in range(p.steps[t], p.steps[t + 1]):
            q = p.row_query[r]
            if q >= 0:
                m.d_mass[r] += m.d_after[r] * m.likelihood[q]
                m.d_likelihood[q] += m.d_after[r] * m.mass[r]
            elif not p.row_writes[r]:
                m.d_joint[r] = m.d_after[r]
        first, last = p.statements[t], p.statements[t + 1]
        first_condition, last_condition = p.conditions[t], p.conditions[t + 1]
        end = row
        stated = end - (last_condition - first_condition)
        row = stated - (last - first)
        view -= p.viewed[t]
        seen -= p.viewed[t]
        written = p.literals + first, p.literals + last
        before = done
        done = _active_written(p, m, row, *written, seen, p.viewed[t], view, done, longest, negligible)
        _write_backward(address, w, p, m, before, done)
        m.d_branch[before[0] : done[0]] = zero
        active = done[0]
        for i in range(last_condition - first_condition):
            c = first_condition + i
            slope = m.shares[c, 0] * m.shares[c, 1] * (m.d_shares[c, 0] - m.d_shares[c, 1])
            if abs(slope) <= negligible:
                continue
            m.active[active] = stated + i
            m.d_branch[active, 0], m.d_branch[active, 1] = slope, -slope
            d_z = m.d_z[active]
            for j in range(len(d_z)):
                d_z[j] = slope * (w.branch[0, j] - w.branch[1, j])
            m.d_y[active] = zero
            active += 1
        if active > before[0]:
            _upper_backward(address, w, m, before[0], active)
            for k in range(before[0], active):
                i = m.active[k] - row
                condition = first_condition + m.active[k] - stated
                _hidden_backward(w, m, k, p.statement_pair[first + i] if k < done[0] else p.condition_pair[condition])
            multiply(address, m.d_a[before[0] : active], w.read_t, m.d_x[before[0] : active], 0)
            for k in range(before[0], active):
                i = m.active[k] - row
                condition = first_condition + m.active[k] - stated
                reads = p.statement_reads[first + i] if k < done[0] else p.condition_reads[condition]
                _add(m.d_views[reads], m.d_x[k])
        done = active, done[1], done[2]
        view -= p.mixtures[t + 1] - p.mixtures[t]
        for i in range(p.mixtures[t], p.mixtures[t + 1]):
            mass = m.mass[p.mixture_row[i]]
            if mass <= 0:
                continue
            mixed, d_mixed = m.views[view + i - p.mixtures[t]], m.d_views[view + i - p.mixtures[t]]
            total = zero
            for j in range(len(mixed)):
                total += mixed[j] * d_mixed[j]
            m.d_mass[p.mixture_row[i]] -= total / (mass + epsilon)
            for k in range(p.mixture_offsets[i], p.mixture_offsets[i + 1]):
                source, side = p.arrivals[p.argument_edge[k]] // 2, p.arrivals[p.argument_edge[k]] % 2
                c = p.row_condition[source]
                b = m.shares[c, side] if c >= 0 else one
                weight = m.mass[source] * b / (mass + epsilon)
                brought, d_brought = m.views[p.argument_view[k]], m.d_views[p.argument_view[k]]
                total = zero
                for j in range(len(mixed)):
                    total += brought[j] * d_mixed[j]
                for j in range(len(mixed)):
                    d_brought[j] += weight * d_mixed[j]
                total /= mass + epsilon
                m.d_mass[source] += total * b
                if c >= 0:
                    m.d_shares[c, side] += total * m.mass[source]
        for r in range(p.steps[t], p.steps[t + 1]):
            for e in range(p.arrival_offsets[r], p.arrival_offsets[r + 1]):
                source, side = p.arrivals[e] // 2, p.arrivals[e] % 2
                c = p.row_condition[source]
                b = m.shares[c, side] if c >= 0 else one
                m.d_mass[source] += m.d_mass[r] * b
                m.d_after[source] += m.d_joint[r] * b
                if c >= 0:
                    m.d_shares[c, side] += m.d_mass[r] * m.mass[source] + m.d_joint[r] * m.after[source]
    before = done
    done = _active_written(p, m, 0, 0, p.literals, 0, p.viewed_literals, 1, done, longest, negligible)
    _write_backward(address, w, p, m, before, done)
    m.d_branch[before[0] : done[0]] = zero
    if done[0] > before[0]:
        _upper_backward(address, w, m, before[0], done[0])
        for k in range(before[0], done[0]):
            m.d_a[k] = zero
            m.x[m.active[k]] = zero
            _add(m.d_offset[m.active[k]], m.d_h[k])
    return done
