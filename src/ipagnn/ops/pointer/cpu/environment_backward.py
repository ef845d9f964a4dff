"""The way back through `environment_forward`, by hand: gradients of all that is multiplied.

Gradients of weights are products over all rows: see `environment_gradients`, whose chunks are the last phase here.
"""

from ipagnn.ops.pointer.cpu.environment_gradients import count_sums, sum_numbers, sum_up
from ipagnn.ops.pointer.cpu.environment_layout import chunk_of, count_chunks, rows_of
from ipagnn.ops.pointer.cpu.math import inlined, jit
from ipagnn.ops.pointer.cpu.team import done, take, wait
from ipagnn.ops.pointer.cpu.tiles import multiply_rows


@inlined
def _write_backward(w, p, lay, m, first, last):  # type: ignore[no-untyped-def]
    """From the gradients of views and likelihoods to that of z; see `_write`."""
    classes, width = len(w.output_bias), w.read.shape[0]
    seen = first < len(lay.place)
    if seen:
        multiply_rows(m.d_views, lay.place[first], lay.place[last - 1] + 1, w.to_logits, width, m.d_logits, first, 0)
    else:
        multiply_rows(m.belief, first, last, w.to_view, classes, m.d_y, first, 0)
    for row in range(first, last):
        scale, written = m.scale[row], lay.written[row]
        asked = range(p.query_offsets[written], p.query_offsets[written + 1])
        dot = scale - scale
        for q in asked:
            dot += m.d_likelihood[q] * m.likelihood[q]
        if seen:
            view = lay.place[row]
            for j in range(width):  # the sum over classes of belief times gradient
                dot += m.views[view, j] * m.d_views[view, j]
            for j in range(classes):
                m.d_logits[row, j] = m.belief[row, j] * scale * (m.d_logits[row, j] - dot)
            for q in asked:
                m.d_logits[row, p.target[p.query_program[q]]] += m.d_likelihood[q] * m.likelihood[q]
            for j in range(width):
                m.weighted[row, j] = m.d_views[view, j] * scale
            m.weighted[row, width] = 0
        else:
            factor = -scale * dot
            for j in range(width + 1):
                m.weighted[row, j] = m.y[row, j] * factor
            for j in range(width):
                m.d_y[row, j] *= factor
            for q in asked:
                target, gradient = p.target[p.query_program[q]], m.d_likelihood[q] * m.likelihood[q]
                for j in range(width):
                    m.d_y[row, j] += gradient * w.embedding[target, j]
    if seen:
        multiply_rows(m.d_logits, first, last, w.to_view, classes, m.d_y, first, 0)
    multiply_rows(m.d_y, first, last, w.project_back, width, m.d_z, first, 0)


@inlined
def _decide_backward(w, lay, m, first, last):  # type: ignore[no-untyped-def]
    """From the gradients of shares to that of z."""
    for row in range(first, last):
        c = row - len(lay.written)
        slope = m.shares[c, 0] * m.shares[c, 1] * (m.d_shares[c, 0] - m.d_shares[c, 1])
        m.d_branch[c] = slope
        for j in range(w.layer.shape[0]):
            m.d_z[row, j] = slope * (w.branch[0, j] - w.branch[1, j])


@inlined
def _network_backward(w, p, lay, m, first, last, literal):  # type: ignore[no-untyped-def]
    """From the gradient of z to that of the views that rows read; see `_network`."""
    hidden = w.layer.shape[0]
    for row in range(first, last):
        for j in range(hidden):
            d_z = m.d_z[row, j]
            m.d_h[row, j] = d_z
            m.d_z[row, j] = d_z * m.z_slope[row, j]
    multiply_rows(m.d_z, first, last, w.layer_back, hidden, m.d_h, first, 1)
    for row in range(first, last):
        for j in range(hidden):
            m.d_h[row, j] *= m.h_slope[row, j]
        if not literal:
            pair = lay.pair[row] - p.literals
            for j in range(hidden):
                m.d_a[row, j] = m.d_h[row, j] * m.gate[pair, j]
    if literal:
        multiply_rows(m.d_h, first, last, w.offset_back, hidden, m.d_x, first, 0)
    else:
        multiply_rows(m.d_a, first, last, w.read_back, hidden, m.d_x, first, 0)


@inlined
def _add_views(lay, m, first, last, width):  # type: ignore[no-untyped-def]
    """Add the gradients of what rows read to those of views."""
    for row in range(first, last):
        view = lay.reads[row]
        for j in range(width):
            m.d_views[view, j] += m.d_x[row, j]


@inlined
def _mix_backward(p, lay, m, t, width, epsilon):  # type: ignore[no-untyped-def]
    """From the gradients of a step's mixtures to those of what they mix."""
    one, zero = m.mass.dtype.type(1), m.mass.dtype.type(0)
    for i in range(p.mixtures[t], p.mixtures[t + 1]):
        mass = m.mass[p.mixture_row[i]]
        if mass <= 0:
            continue
        mixed = lay.mixtures[t] + i - p.mixtures[t]
        total = zero
        for j in range(width):
            total += m.views[mixed, j] * m.d_views[mixed, j]
        m.d_mass[p.mixture_row[i]] -= total / (mass + epsilon)
        for k in range(p.mixture_offsets[i], p.mixture_offsets[i + 1]):
            source, side = p.arrivals[p.argument_edge[k]] // 2, p.arrivals[p.argument_edge[k]] % 2
            c = p.row_condition[source]
            b = m.shares[c, side] if c >= 0 else one
            weight = m.mass[source] * b / (mass + epsilon)
            brought = p.argument_view[k]
            total = zero
            for j in range(width):
                total += m.views[brought, j] * m.d_views[mixed, j]
            for j in range(width):
                m.d_views[brought, j] += weight * m.d_views[mixed, j]
            total /= mass + epsilon
            m.d_mass[source] += total * b
            if c >= 0:
                m.d_shares[c, side] += total * m.mass[source]


@inlined
def _arrive_backward(p, lay, m, t, width, epsilon):  # type: ignore[no-untyped-def]
    """Back through what arrives at step `t + 1`, and what the rows of step t wrote; see `_arrive`."""
    steps = len(p.steps) - 1
    if t + 1 < steps:
        for group in range(3):
            first, last = rows_of(lay, t + 1, group)
            _add_views(lay, m, first, last, width)
        _mix_backward(p, lay, m, t + 1, width, epsilon)
        for r in range(p.steps[t + 1], p.steps[t + 2]):
            for e in range(p.arrival_offsets[r], p.arrival_offsets[r + 1]):
                source, side = p.arrivals[e] // 2, p.arrivals[e] % 2
                c = p.row_condition[source]
                b = m.shares[c, side] if c >= 0 else m.mass.dtype.type(1)
                m.d_mass[source] += m.d_mass[r] * b
                m.d_after[source] += m.d_joint[r] * b
                if c >= 0:
                    m.d_shares[c, side] += m.d_mass[r] * m.mass[source] + m.d_joint[r] * m.after[source]
    if t < 0:
        return
    for r in range(p.steps[t], p.steps[t + 1]):
        q = p.row_query[r]
        if q >= 0:
            m.d_mass[r] += m.d_after[r] * m.likelihood[q]
            m.d_likelihood[q] += m.d_after[r] * m.mass[r]
        elif not p.row_writes[r]:
            m.d_joint[r] = m.d_after[r]


@inlined
def _exit_backward(p, m, d_result):  # type: ignore[no-untyped-def]
    """Begin with the gradients of what arrives at exits."""
    rows = p.steps[-1]
    for array in (m.d_likelihood, m.d_mass, m.d_joint, m.d_after):
        array[:] = 0
    for wide in (m.d_shares, m.d_views):
        wide[:] = 0
    for i in range(len(m.result)):
        for e in range(p.arrival_offsets[rows + i], p.arrival_offsets[rows + i + 1]):
            source, side = p.arrivals[e] // 2, p.arrivals[e] % 2
            c = p.row_condition[source]
            m.d_after[source] += d_result[i] * (m.shares[c, side] if c >= 0 else m.mass.dtype.type(1))
            if c >= 0:
                m.d_shares[c, side] += d_result[i] * m.after[source]


@jit
def backward(counters, give_way, w, p, lay, m, g, d_result, epsilon):  # type: ignore[no-untyped-def]
    """The way back, and the gradients of all weights. Every thread of a team calls it."""
    steps, width = len(p.steps) - 1, w.read.shape[0]
    rows = 2 * steps + 2  # phases; one for the sums over rows and one for what is left follow
    for phase in range(rows + 2):
        t = steps - 1 - phase // 2  # down to -1, the literals
        count = count_sums(w) if phase == rows else 1 if phase % 2 == 0 or phase > rows else count_chunks(lay, t)
        while True:
            chunk = take(counters, phase, count)
            if chunk < 0:
                break
            if phase == rows:
                sum_up(w, p, lay, m, g, chunk)
            elif phase > rows:
                sum_numbers(w, p, lay, m, g)
            elif phase % 2 == 0:
                if phase == 0:
                    _exit_backward(p, m, d_result)
                _arrive_backward(p, lay, m, t, width, epsilon)
            else:
                group, first, last = chunk_of(lay, t, chunk)
                if group == 2:
                    _decide_backward(w, lay, m, first, last)
                else:
                    _write_backward(w, p, lay, m, first, last)
                _network_backward(w, p, lay, m, first, last, t < 0)
            done(counters, phase)
        wait(counters, phase, count, give_way)
