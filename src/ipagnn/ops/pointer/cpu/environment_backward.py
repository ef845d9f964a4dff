"""The way back through `environment_forward`, by hand: gradients of all that is multiplied.

Gradients of weights are products over all rows, which are left to the caller.
"""

from ipagnn.ops.pointer.cpu.math import jit, multiply


@jit
def _write_backward(address, w, p, m, first_row, first, last, seen, viewed, view):  # type: ignore[no-untyped-def]
    """From the gradients of views and likelihoods to that of z; see `_write`."""
    unseen = first - seen
    count, rest = viewed, last - first - viewed
    zero = m.mass.dtype.type(0)
    if count:
        multiply(address, m.d_views[view : view + count], w.classes_t, m.d_logits[seen : seen + count], 0)
    for i in range(last - first):
        scale = m.scale[first + i]
        asked = range(p.query_offsets[first + i], p.query_offsets[first + i + 1])
        dot = zero
        for q in asked:
            dot += m.d_likelihood[q] * m.likelihood[q]
        if i < count:
            belief, gradient = m.seen[seen + i], m.d_logits[seen + i]
            total = zero
            for j in range(len(belief)):
                total += belief[j] * gradient[j]
            dot += total * scale
            for j in range(len(belief)):
                gradient[j] = belief[j] * scale * (gradient[j] - dot)
        else:
            gradient = m.unseen[unseen + i - count]
            factor = -scale * dot
            for j in range(len(gradient)):
                gradient[j] *= factor
        for q in asked:
            gradient[p.target[p.query_program[q]]] += m.d_likelihood[q] * m.likelihood[q]
    d_y = m.d_y[first_row : first_row + last - first]
    if count:
        multiply(address, m.d_logits[seen : seen + count], w.classes, d_y[:count], 0)
    if rest:
        multiply(address, m.unseen[unseen : unseen + rest], w.classes, d_y[count:], 0)
    multiply(address, d_y, w.project_t, m.d_z[first_row : first_row + last - first], 0)


@jit
def _upper_backward(address, w, m, first, last):  # type: ignore[no-untyped-def]
    """From the gradient of z to that of what goes into h's gelu."""
    for row in range(first, last):
        d_h, d_z, slope = m.d_h[row], m.d_z[row], m.z_slope[row]
        for j in range(len(d_z)):
            d_h[j] = d_z[j]
        for j in range(len(d_z)):
            d_z[j] *= slope[j]
    multiply(address, m.d_z[first:last], w.layer_t, m.d_h[first:last], 1)
    for row in range(first, last):
        d_h, slope = m.d_h[row], m.h_slope[row]
        for j in range(len(d_h)):
            d_h[j] *= slope[j]


@jit
def _hidden_backward(w, m, row, pair):  # type: ignore[no-untyped-def]
    """From the gradient of what goes into h's gelu to those of gate, offset and a."""
    d_h, a, gate, d_a, d_gate, d_offset = (
        m.d_h[row],
        m.a[row],
        w.gate[pair],
        m.d_a[row],
        m.d_gate[pair],
        m.d_offset[pair],
    )
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
def backward(address, w, p, m, d_result, epsilon):  # type: ignore[no-untyped-def]
    """The way back: gradients of what weights multiply, and of gates, offsets and views."""
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
        for i in range(last_condition - first_condition):
            c = first_condition + i
            slope = m.shares[c, 0] * m.shares[c, 1] * (m.d_shares[c, 0] - m.d_shares[c, 1])
            m.d_branch[stated + i, 0], m.d_branch[stated + i, 1] = slope, -slope
            d_z = m.d_z[stated + i]
            for j in range(len(d_z)):
                d_z[j] = slope * (w.branch[0, j] - w.branch[1, j])
            m.d_y[stated + i] = zero
        if last > first:
            view -= p.viewed[t]
            seen -= p.viewed[t]
            m.d_branch[row:stated] = zero
            _write_backward(address, w, p, m, row, p.literals + first, p.literals + last, seen, p.viewed[t], view)
        if end > row:
            _upper_backward(address, w, m, row, end)
            for i in range(last - first):
                _hidden_backward(w, m, row + i, p.statement_pair[first + i])
            for i in range(last_condition - first_condition):
                _hidden_backward(w, m, stated + i, p.condition_pair[first_condition + i])
            multiply(address, m.d_a[row:end], w.read_t, m.d_x[row:end], 0)
            for i in range(last - first):
                _add(m.d_views[p.statement_reads[first + i]], m.d_x[row + i])
            for i in range(last_condition - first_condition):
                _add(m.d_views[p.condition_reads[first_condition + i]], m.d_x[stated + i])
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
    m.d_branch[: p.literals] = zero
    if p.literals:
        _write_backward(address, w, p, m, 0, 0, p.literals, 0, p.viewed_literals, 1)
        _upper_backward(address, w, m, 0, p.literals)
    for i in range(p.literals):
        _add(m.d_offset[i], m.d_h[i])
