"""Compiled laying out of plans: the rows of a batch in groups that a GPU runs side by side, in one flat tensor."""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def build_arrivals(row_true, row_false, programs):  # type: ignore[no-untyped-def]
    """The same edges, by destination: offsets and `2 * row + branch`, in the order of the rows they come from."""
    rows = len(row_true)
    offsets = np.zeros(rows + programs + 1, np.int32)
    for r in range(rows):
        if row_true[r] >= 0:
            offsets[row_true[r] + 1] += 1
        if row_false[r] >= 0:
            offsets[row_false[r] + 1] += 1
    for d in range(rows + programs):
        offsets[d + 1] += offsets[d]
    cursor = offsets.copy()
    arrivals = np.empty(offsets[rows + programs], np.int32)
    for r in range(rows):
        if row_true[r] >= 0:
            arrivals[cursor[row_true[r]]] = 2 * r
            cursor[row_true[r]] += 1
        if row_false[r] >= 0:
            arrivals[cursor[row_false[r]]] = 2 * r + 1
            cursor[row_false[r]] += 1
    return offsets, arrivals


@njit(cache=True, nogil=True)
def _cut(counts, steps, order, chunk, limit, group_of):  # type: ignore[no-untyped-def]
    """Fill groups in `order`, each up to a cost of `limit` or one program; returns how many groups it takes."""
    group, cost = 0, 0
    rows = np.zeros(counts.shape[1], np.int32)
    for position, program in enumerate(order):
        more = 0
        for t in range(steps[program]):
            more += (rows[t] + counts[program, t] + chunk - 1) // chunk - (rows[t] + chunk - 1) // chunk
        if position and cost + more > limit:
            group, cost, more = group + 1, 0, 0
            rows[:] = 0
            for t in range(steps[program]):
                more += (counts[program, t] + chunk - 1) // chunk
        for t in range(steps[program]):
            rows[t] += counts[program, t]
        cost += more
        group_of[program] = group
    return group + 1


@njit(cache=True, nogil=True)
def group_programs(step_offsets, row_program, programs, groups, chunk):  # type: ignore[no-untyped-def]
    """The group of each program, int32: such that the one that takes longest takes as little time as may be.

    A group's time is counted in chunks of rows, of which each step has its own. Programs are put in order, those with
    the most steps first, so that neighbours share chunks from their first to their last step; then cut into groups.
    """
    group_of = np.zeros(programs, np.int32)
    if groups == 1:
        return group_of
    counts = np.zeros((programs, len(step_offsets) - 1), np.int32)
    steps, rows = np.zeros(programs, np.int64), np.zeros(programs, np.int64)
    for t in range(len(step_offsets) - 1):
        for row in range(step_offsets[t], step_offsets[t + 1]):
            program = row_program[row]
            counts[program, t] += 1
            steps[program] = t + 1
            rows[program] += 1
    order = np.argsort(-(steps * (len(row_program) + 1) + rows), kind="mergesort")
    low, high = 1, len(row_program)  # a chunk has at least one row
    while low < high:
        limit = (low + high) // 2
        if _cut(counts, steps, order, chunk, limit, group_of) <= groups:
            high = limit
        else:
            low = limit + 1
    _cut(counts, steps, order, chunk, low, group_of)
    return group_of


@njit(cache=True, nogil=True)
def group_rows(step_offsets, row_program, group_of, groups):  # type: ignore[no-untyped-def]
    """Rows in order of groups of programs, then of steps, where they are in order of steps, then programs.

    Args:
        step_offsets: First row of each step. [step + 1]
        row_program: The program of each row.
        group_of: The group of each program.
        groups: How many there are.

    Returns:
        offsets int32 [group, step + 1], the first row of each step of each group; place int32 [row], where each row
        goes.
    """
    steps = len(step_offsets) - 1
    counts = np.zeros((groups, steps), np.int32)
    for t in range(steps):
        for row in range(step_offsets[t], step_offsets[t + 1]):
            counts[group_of[row_program[row]], t] += 1
    offsets = np.empty((groups, steps + 1), np.int32)
    first = 0
    for g in range(groups):
        for t in range(steps):
            offsets[g, t] = first
            first += counts[g, t]
        offsets[g, steps] = first
    place = np.empty(len(row_program), np.int32)
    for t in range(steps):
        cursor = offsets[:, t].copy()
        for row in range(step_offsets[t], step_offsets[t + 1]):
            g = group_of[row_program[row]]
            place[row] = cursor[g]
            cursor[g] += 1
    return offsets, place


@njit(cache=True, nogil=True)
def token_order(tokens, vocabulary, chunk):  # type: ignore[no-untyped-def]
    """All token slots of the rows, sorted by token id and cut into chunks, for sums by token in a fixed order.

    Args:
        tokens: int32 [row, 4].
        vocabulary: Number of token ids.
        chunk: Most slots in a chunk; every chunk holds one token id.

    Returns:
        order int32 [4 * row] of `4 * row + slot`; chunk_offsets int32 [chunk + 1] into it; first_chunk int32
        [vocabulary + 1].
    """
    rows = len(tokens)
    count = np.zeros(vocabulary, np.int32)
    for r in range(rows):
        for slot in range(4):
            count[tokens[r, slot]] += 1
    first_chunk = np.empty(vocabulary + 1, np.int32)
    cursor = np.empty(vocabulary, np.int32)
    chunks, seen = 0, 0
    for token in range(vocabulary):
        first_chunk[token] = chunks
        cursor[token] = seen
        chunks += (count[token] + chunk - 1) // chunk
        seen += count[token]
    first_chunk[vocabulary] = chunks
    chunk_offsets = np.empty(chunks + 1, np.int32)
    for token in range(vocabulary):
        for k in range(first_chunk[token + 1] - first_chunk[token]):
            chunk_offsets[first_chunk[token] + k] = cursor[token] + k * chunk
    chunk_offsets[chunks] = 4 * rows
    order = np.empty(4 * rows, np.int32)
    for r in range(rows):
        for slot in range(4):
            token = tokens[r, slot]
            order[cursor[token]] = 4 * r + slot
            cursor[token] += 1
    return order, chunk_offsets, first_chunk


@njit(cache=True, nogil=True)
def fill_plan(  # type: ignore[no-untyped-def]
    step_offsets, program, node, edges, row_target, node_tokens, target, vocabulary, chunk, row_chunk,
    to_offsets, to_chunks, to_first_chunk, to_chunk_offsets, to_true, to_false,
    to_arrival_offsets, to_arrivals, to_order, to_tokens, to_branches, to_target,
):  # fmt: skip
    """Write all fields of a `Plan` of `ops.pointer.triton`: one call without a lock, so threads do not wait."""
    count, programs = len(program), len(target)
    groups, steps = to_offsets.shape[0], len(step_offsets) - 1
    group_of = group_programs(step_offsets, program, programs, groups, row_chunk)
    offsets, place = group_rows(step_offsets, program, group_of, groups)
    for g in range(groups):
        for t in range(to_offsets.shape[1]):
            to_offsets[g, t] = offsets[g, min(t, steps)]
    for row in range(count):
        at = place[row]
        true, false = row_target[row, 0], row_target[row, 1]
        to_true[at] = place[true] if 0 <= true < count else true
        to_false[at] = place[false] if 0 <= false < count else false
        to_branches[at] = edges[row, 1]
        for k in range(4):
            to_tokens[at, k] = node_tokens[node[row], k]
    arrival_offsets, arrivals = build_arrivals(to_true[:count], to_false[:count], programs)
    to_arrival_offsets[: len(arrival_offsets)] = arrival_offsets
    to_arrivals[: len(arrivals)] = arrivals
    order, chunk_offsets, first_chunk = token_order(to_tokens[:count], vocabulary, chunk)
    to_chunks[0] = len(chunk_offsets) - 1
    to_first_chunk[:] = first_chunk
    to_chunk_offsets[: len(chunk_offsets)] = chunk_offsets
    to_order[: len(order)] = order
    to_target[:] = target
