"""Gradients of the weights of an environment with beliefs over classes: sums over all rows.

They are cut by columns, so that each number is added up by one thread, in the order of the rows.
"""

from typing import Any, NamedTuple

import numpy as np

from ipagnn.ops.pointer.cpu.math import inlined, jit
from ipagnn.ops.pointer.cpu.tiles import BLOCK, GROUP, add_columns, multiply_rows

Array = Any


class Gradients(NamedTuple):
    """Of the weights, as `NetworkWeights` has them."""

    embedding: Array
    read: Array
    gate_operation: Array
    gate_operand: Array
    offset_operation: Array
    offset_operand: Array
    offset_bias: Array
    layer: Array
    layer_bias: Array
    project: Array
    project_bias: Array
    output_bias: Array
    branch: Array
    branch_bias: Array


@jit
def _counts(w):  # type: ignore[no-untyped-def]
    """Groups of panels of classes, of H and of D."""
    classes, hidden, width = w.to_logits.shape[0], w.layer_panels.shape[0], w.to_view.shape[0]
    return (classes + GROUP - 1) // GROUP, (hidden + GROUP - 1) // GROUP, (width + GROUP - 1) // GROUP


@jit
def count_sums(w):  # type: ignore[no-untyped-def]
    """How many chunks there are."""
    classes, hidden, width = _counts(w)
    return classes + 3 * hidden + width + 1


@jit
def _room(rows, columns, group, w):  # type: ignore[no-untyped-def]
    """First and last column of a group of panels of a matrix; memory for sums over rows, and to work in."""
    width, kind = w.to_logits.shape[2], w.read.dtype
    start = group * GROUP * width
    stop = min(columns, start + GROUP * width)
    sums = np.zeros(((stop - start + width - 1) // width, rows, width), kind)
    return start, stop, sums, np.empty((GROUP, BLOCK, width), kind)


@inlined
def _take_sums(sums, rows, start, stop, total, bias):  # type: ignore[no-untyped-def]
    """Copy sums to columns of a matrix, and those of a last row to its bias, if it has one."""
    width = sums.shape[2]
    for i in range(rows):
        for j in range(start, stop):
            total[i, j] = sums[(j - start) // width, i, (j - start) % width]
    if len(bias):
        for j in range(start, stop):
            bias[j] = sums[(j - start) // width, rows, (j - start) % width]


@inlined
def _sum_classes(w, p, lay, m, g, group):  # type: ignore[no-untyped-def]
    """Gradients of some rows of E, as classes alone, and of numbers of c."""
    width, classes = w.read.shape[0], len(w.output_bias)
    seen, written = len(lay.place), len(lay.written)
    start, stop, sums, copied = _room(width + 1, classes, group, w)
    add_columns(m.y, m.d_logits, 0, seen, width + 1, start, copied, sums)
    add_columns(m.weighted, m.belief, 0, written, width + 1, start, copied, sums)
    _take_sums(sums, width, start, stop, g.embedding.T, g.output_bias)
    if group == 0:
        for d in range(width):
            g.embedding[0, d] += m.d_views[0, d]
        g.embedding[classes:] = 0
    for row in range(seen, written):  # what likelihoods add to the gradients of logits
        number = lay.written[row]
        for q in range(p.query_offsets[number], p.query_offsets[number + 1]):
            target = p.target[p.query_program[q]]
            if start <= target < stop:
                gradient = m.d_likelihood[q] * m.likelihood[q]
                g.output_bias[target] += gradient
                for d in range(width):
                    g.embedding[target, d] += gradient * m.y[row, d]


@inlined
def _sum_matrix(w, lay, m, g, which, group):  # type: ignore[no-untyped-def]
    """Gradients of some columns of L, P or W, and of its bias if it has one."""
    rows, seen, written = len(lay.pair), len(lay.place), len(lay.written)
    x, y = (m.h, m.z, m.x)[which], (m.d_z, m.d_y, m.d_a)[which]
    total = (g.layer, g.project, g.read)[which]
    bias = (g.layer_bias, g.project_bias, g.layer_bias[:0])[which]
    first, last = (0, 0, lay.seen[1])[which], (rows, written, seen)[which]  # literals read nothing
    inner = total.shape[0] + (1 if len(bias) else 0)
    start, stop, sums, copied = _room(inner, total.shape[1], group, w)
    add_columns(x, y, first, last, inner, start, copied, sums)
    if which == 2:
        add_columns(x, y, lay.unseen[1], rows, inner, start, copied, sums)
    _take_sums(sums, total.shape[0], start, stop, total, bias)


@inlined
def _sum_pairs(w, p, lay, m, g, group):  # type: ignore[no-untyped-def]
    """Gradients of some columns of all that gates and offsets are made of."""
    (width, hidden), pairs = w.read.shape, len(m.number)
    start, stop, sums, copied = _room(width + 1, hidden, group, w)
    for wide in (m.d_gate, m.d_offset, g.gate_operation, g.offset_operation):
        wide[:, start:stop] = 0
    for row in range(len(lay.pair)):
        pair = lay.pair[row]
        operation = p.pair_operation[pair]
        for j in range(start, stop):
            g.offset_operation[operation, j] += m.d_h[row, j]
        if pair >= p.literals:
            pair -= p.literals
            for j in range(start, stop):
                m.d_offset[pair, j] += m.d_h[row, j]
            for j in range(start, stop):
                m.d_gate[pair, j] += m.d_h[row, j] * m.a[row, j]
    for pair in range(pairs):
        operation = p.pair_operation[p.literals + pair]
        for j in range(start, stop):
            g.gate_operation[operation, j] += m.d_gate[pair, j]
    add_columns(m.x, m.d_h, 0, lay.seen[1], width + 1, start, copied, sums)  # literals
    add_columns(m.x, m.d_h, len(lay.place), lay.unseen[1], width + 1, start, copied, sums)
    add_columns(m.number, m.d_offset, 0, pairs, width + 1, start, copied, sums)
    _take_sums(sums, width, start, stop, g.offset_operand, g.offset_bias)
    sums[:] = 0
    add_columns(m.number, m.d_gate, 0, pairs, width + 1, start, copied, sums)
    _take_sums(sums, width, start, stop, g.gate_operand, g.offset_bias[:0])


@inlined
def _sum_branch(lay, m, g):  # type: ignore[no-untyped-def]
    """Gradients of the layer of decisions."""
    g.branch[:] = 0
    g.branch_bias[:] = 0
    written = len(lay.written)
    for c in range(len(m.d_branch)):
        slope = m.d_branch[c]
        g.branch_bias[0] += slope
        for j in range(g.branch.shape[0]):
            g.branch[j, 0] += slope * m.z[written + c, j]
    g.branch_bias[1] = -g.branch_bias[0]
    for j in range(g.branch.shape[0]):
        g.branch[j, 1] = -g.branch[j, 0]


@inlined
def sum_up(w, p, lay, m, g, chunk):  # type: ignore[no-untyped-def]
    """One chunk of the gradients that are sums over rows."""
    classes, hidden, width = _counts(w)
    layer, project, read = classes, classes + hidden, classes + hidden + width
    pairs, branch = read + hidden, read + 2 * hidden
    if chunk < classes:
        _sum_classes(w, p, lay, m, g, chunk)
    elif chunk < pairs:
        which = 0 if chunk < project else 1 if chunk < read else 2
        _sum_matrix(w, lay, m, g, which, chunk - (layer, project, read)[which])
    elif chunk < branch:
        _sum_pairs(w, p, lay, m, g, chunk - pairs)
    else:
        _sum_branch(lay, m, g)


@inlined
def sum_numbers(w, p, lay, m, g):  # type: ignore[no-untyped-def]
    """Add to the gradients of E what operands have, after all other chunks."""
    hidden, width = w.layer.shape[0], w.read.shape[0]
    pairs = len(m.number)
    multiply_rows(m.d_gate, 0, pairs, w.gate_back, hidden, m.d_number, 0, 0)
    multiply_rows(m.d_offset, 0, pairs, w.offset_back, hidden, m.d_number, 0, 1)
    for i in range(pairs):
        number = p.pair_operand[p.literals + i]
        for d in range(width):
            g.embedding[number, d] += m.d_number[i, d]
    for first, last in ((lay.seen[0], lay.seen[1]), (lay.unseen[0], lay.unseen[1])):
        for row in range(first, last):
            number = p.pair_operand[lay.pair[row]]
            for d in range(width):
                g.embedding[number, d] += m.d_x[row, d]
