"""What a pass over an environment with beliefs over classes reads and computes, and where its rows are.

Rows of the network are in three groups, so that each is one matrix for the gradients of the weights: what is written
and viewed later (`seen`), what is written and asked only for its likelihood, and conditions. Each group has its rows in
the order of the steps; literals come first.
"""

from typing import Any, NamedTuple

import numpy as np

from ipagnn.ops.pointer.cpu.math import jit
from ipagnn.ops.pointer.cpu.tiles import HEIGHT

Array = Any


class NetworkWeights(NamedTuple):
    """Of the network, as `nn.values.classes` has them; then those that rows are multiplied with, in panels."""

    embedding: Array  # E, also of numbers that are no class
    read: Array  # W
    gate_operation: Array  # g
    gate_operand: Array  # G
    offset_operation: Array  # o
    offset_operand: Array  # O
    offset_bias: Array
    layer: Array  # L
    layer_bias: Array
    project: Array  # P times sqrt(D), as is its bias
    project_bias: Array
    output_bias: Array  # c
    branch: Array
    branch_bias: Array
    to_logits: Array  # E transposed, and c as a last row: as all biases, which meet a 1 [panel, D + 1, column]
    to_view: Array  # E of the classes
    read_panels: Array
    read_back: Array  # those with `back` are transposed
    gate_panels: Array
    gate_back: Array
    offset_panels: Array
    offset_back: Array
    layer_panels: Array
    layer_back: Array
    project_panels: Array
    project_back: Array


class PlanArrays(NamedTuple):
    """As `EnvironmentPlan` has it."""

    literals: int
    viewed_literals: int
    steps: Array
    statements: Array
    conditions: Array
    mixtures: Array
    viewed: Array
    pair_operation: Array
    pair_operand: Array
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


class Layout(NamedTuple):
    """Where the rows of the network are. Written: seen rows, then unseen ones."""

    seen: Array  # rows of literals, and of each step [step + 2]
    unseen: Array
    conditions: Array
    pair: Array  # of each row
    reads: Array  # the view that a row reads; -1 for literals
    place: Array  # the view of each seen row [seen]
    written: Array  # number in `EnvironmentPlan` of what a row writes [written]
    mixtures: Array  # view of the first mixture of each step [step]


class Memory(NamedTuple):
    """What the pass computes and the way back reads; `d_` are gradients. Rows are `padded` numbers apart."""

    number: Array  # E of the operands of pairs that are no literals, and a 1 [pair, D + 1]
    gate: Array  # 1 + g + G E_k of these [pair, H]
    offset: Array  # o + O E_k [pair, H]
    x: Array  # the view that a row reads, and E_k of a literal; and a 1 [row, D + 1]
    a: Array  # x W, and of a literal x O [row, H]
    h: Array  # and a 1 [row, H + 1]
    h_slope: Array  # gelu' before h [row, H]
    z: Array  # and a 1 [row, H + 1]
    z_slope: Array  # gelu' before the second gelu [row, H]
    y: Array  # and a 1 [written, D + 1]
    belief: Array  # exp(logit - largest) [written, class]
    scale: Array  # 1 / sum of these [written]
    views: Array  # [view, D]
    likelihood: Array  # [query]
    shares: Array  # [condition, 2]
    mass: Array  # p of each row [row of the plan]
    joint: Array  # p, and v0 has its target, before the row [row of the plan]
    after: Array  # and after it
    result: Array  # [program]
    d_logits: Array  # of what is seen [seen, class]
    weighted: Array  # what `belief` is multiplied with for the gradients of E and c [written, D + 1]
    d_y: Array  # [written, D]
    d_z: Array  # [row, H]; becomes the gradient before the second gelu
    d_h: Array  # [row, H]; becomes the gradient before the first
    d_a: Array  # [row, H]
    d_x: Array  # [row, D]
    d_branch: Array  # [condition]
    d_views: Array
    d_likelihood: Array
    d_shares: Array
    d_mass: Array
    d_joint: Array
    d_after: Array
    d_gate: Array
    d_offset: Array
    d_number: Array


@jit
def chunks(rows):  # type: ignore[no-untyped-def]
    """Into how many chunks rows of a kind are cut: each as large as can be, but for two threads if possible."""
    tiles = (rows + HEIGHT - 1) // HEIGHT
    return min(tiles, max(2, (tiles + 3) // 4))


@jit
def rows_of(lay, t, group):  # type: ignore[no-untyped-def]
    """First and last row of a group at a step: seen, unseen or conditions. Literals are before step 0, at -1."""
    bounds = (lay.seen, lay.unseen, lay.conditions)[group]
    return bounds[t + 1], bounds[t + 2]


@jit
def chunk_of(lay, t, chunk):  # type: ignore[no-untyped-def]
    """Group, first and last row of a chunk of a step."""
    group, (first, last) = 0, rows_of(lay, t, 0)
    while chunk >= chunks(last - first):
        chunk -= chunks(last - first)
        group += 1
        first, last = rows_of(lay, t, group)
    rows, count = last - first, chunks(last - first)
    return group, first + rows * chunk // count, first + rows * (chunk + 1) // count


@jit
def count_chunks(lay, t):  # type: ignore[no-untyped-def]
    """How many chunks a step has."""
    count = 0
    for group in range(3):
        first, last = rows_of(lay, t, group)
        count += chunks(last - first)
    return count


@jit
def lay_out(p):  # type: ignore[no-untyped-def]
    """The layout of a plan."""
    steps = len(p.steps) - 1
    seen = np.empty(steps + 2, np.int64)
    unseen, conditions, mixtures = np.empty_like(seen), np.empty_like(seen), np.empty(steps, np.int64)
    total = p.viewed_literals + p.viewed.sum()
    written = p.literals + len(p.statement_pair)
    rows = written + len(p.condition_pair)
    pair, reads = np.empty(rows, np.int64), np.full(rows, -1)
    view, number = np.empty(total, np.int64), np.empty(written, np.int64)
    seen[0], unseen[0], conditions[0] = 0, total, written
    seen[1], unseen[1], conditions[1] = p.viewed_literals, total + p.literals - p.viewed_literals, written
    for i in range(p.literals):
        row = i if i < p.viewed_literals else total + i - p.viewed_literals
        pair[row] = number[row] = i
        if i < p.viewed_literals:
            view[row] = 1 + i
    views = 1 + p.viewed_literals
    for t in range(steps):
        mixtures[t] = views
        views += p.mixtures[t + 1] - p.mixtures[t]
        first, last = p.statements[t], p.statements[t + 1]
        seen[t + 2] = seen[t + 1] + p.viewed[t]
        unseen[t + 2] = unseen[t + 1] + last - first - p.viewed[t]
        conditions[t + 2] = written + p.conditions[t + 1]
        for i in range(last - first):
            row = seen[t + 1] + i if i < p.viewed[t] else unseen[t + 1] + i - p.viewed[t]
            pair[row], reads[row] = p.statement_pair[first + i], p.statement_reads[first + i]
            number[row] = p.literals + first + i
            if i < p.viewed[t]:
                view[row] = views + i
        views += p.viewed[t]
        for c in range(p.conditions[t], p.conditions[t + 1]):
            pair[written + c], reads[written + c] = p.condition_pair[c], p.condition_reads[c]
    return seen, unseen, conditions, pair, reads, view, number, mixtures
