"""Compiled code that turns a table of programs into a batch; `batch.py` is its plain interface.

One call builds one batch on one thread and holds no lock, so batches can be made in as many threads as there are cores.
"""

import numpy as np
from numba import njit

from ipagnn.languages.arithmetic._compiled.graph import GRAPH_SCRATCH, control_flow, paper_steps, static_steps

_FAR = 2**30


@njit(cache=True, nogil=True)
def build_graphs(line_offsets, line_tokens, static):  # type: ignore[no-untyped-def]
    """Graphs and step counts of all programs, as one large graph.

    Returns:
        node_offsets, node_tokens, node_program, node_line, true, false (as in the contract) and int64 steps: T(x), or
        the bound read off the loop counts if `static`.
    """
    programs = len(line_offsets) - 1
    most = len(line_tokens) + programs
    longest = 0
    for b in range(programs):
        longest = max(longest, line_offsets[b + 1] - line_offsets[b])
    node_offsets = np.zeros(programs + 1, np.int32)
    node_tokens = np.zeros((most, line_tokens.shape[1]), np.int32)
    node_program = np.empty(most, np.int32)
    node_line = np.empty(most, np.int32)
    true = np.empty(most, np.int32)
    false = np.empty(most, np.int32)
    steps = np.empty(programs, np.int64)
    scratch = np.empty((GRAPH_SCRATCH, longest + 1), np.int32)
    weights = np.empty(longest + 1, np.int64)
    first = 0
    for b in range(programs):
        tokens = line_tokens[line_offsets[b] : line_offsets[b + 1]]
        nodes = control_flow(tokens, node_line[first:], true[first:], false[first:], scratch)
        for n in range(first, first + nodes):
            true[n] += first
            false[n] += first
            node_program[n] = b
            if n < first + nodes - 1:
                for k in range(line_tokens.shape[1]):
                    node_tokens[n, k] = tokens[node_line[n], k]
        node_line[first + nodes - 1] = -1
        steps[b] = static_steps(tokens, weights) if static else paper_steps(tokens, weights)
        first += nodes
        node_offsets[b + 1] = first
    return (
        node_offsets,
        node_tokens[:first],
        node_program[:first],
        node_line[:first],
        true[:first],
        false[:first],
        steps,
    )


@njit(cache=True, nogil=True)
def _steps_to_exit(true, false, start, stop, distance):  # type: ignore[no-untyped-def]
    """Fewest edges from each node of one program to its exit: a few sweeps, since most edges lead forwards."""
    for n in range(start, stop - 1):
        distance[n] = _FAR
    distance[stop - 1] = 0
    changed = True
    while changed:
        changed = False
        for n in range(stop - 2, start - 1, -1):
            shortest = 1 + min(distance[true[n]], distance[false[n]])
            if shortest < distance[n]:
                distance[n] = shortest
                changed = True


@njit(cache=True, nogil=True)
def build_graph_rows(node_offsets, true, false, steps):  # type: ignore[no-untyped-def]
    """The node-steps that can matter: t edges lead there from the start, at most T - t from there to the exit.

    docs/specification.md, section 6.1.

    Both passes walk each program's frontier step by step, so the work is proportional to rows, not to nodes x steps.

    Returns:
        step_offsets int64, and the row fields node, program, true, false of the contract.
    """
    programs = len(node_offsets) - 1
    longest = 0
    for b in range(programs):
        longest = max(longest, steps[b])
    distance = np.empty(len(true), np.int32)
    stamp = np.full(len(true), -1, np.int64)  # the last (pass, step) at which a node entered the frontier
    frontier = np.empty(len(true) + 1, np.int32)
    upcoming = np.empty(len(true) + 1, np.int32)
    step_offsets = np.zeros(longest + 2, np.int64)
    for b in range(programs):  # first pass: count
        start, stop = node_offsets[b], node_offsets[b + 1]
        _steps_to_exit(true, false, start, stop, distance)
        size = 0
        if distance[start] <= steps[b]:
            frontier[0] = start
            size = 1
        t = 0
        while size:
            step_offsets[t + 1] += size
            grown = 0
            for i in range(size):
                n = frontier[i]
                for side in range(2):
                    m = true[n] if side == 0 else false[n]
                    if m != stop - 1 and distance[m] <= steps[b] - t - 1 and stamp[m] != t:
                        stamp[m] = t
                        upcoming[grown] = m
                        grown += 1
            frontier, upcoming = upcoming, frontier
            size = grown
            t += 1
    last = 0
    for t in range(longest + 1):
        if step_offsets[t + 1]:
            last = t + 1
        step_offsets[t + 1] += step_offsets[t]
    rows = step_offsets[last]
    row_node = np.empty(rows, np.int32)
    row_program = np.empty(rows, np.int32)
    row_true = np.full(rows, -1, np.int32)
    row_false = np.full(rows, -1, np.int32)
    row_of = np.empty(len(true), np.int64)
    cursor = (
        step_offsets.copy()
    )  # the next free row of each step; programs come in order, so rows are sorted by program
    for b in range(programs):  # second pass: fill
        start, stop = node_offsets[b], node_offsets[b + 1]
        size = 0
        if distance[start] <= steps[b]:
            frontier[0] = start
            size = 1
        t = 0
        while size:
            here = cursor[t]
            cursor[t] += size
            beyond = cursor[t + 1]
            grown = 0
            for i in range(size):
                n = frontier[i]
                row_node[here + i] = n
                row_program[here + i] = b
                for side in range(2):
                    m = true[n] if side == 0 else false[n]
                    if side == 1 and m == true[n]:
                        break  # nothing is decided: one successor, reached by the true edge
                    arrival = np.int64(-1)
                    if m == stop - 1:
                        arrival = rows + b
                    elif distance[m] <= steps[b] - t - 1:
                        if stamp[m] != _FAR + t:
                            stamp[m] = _FAR + t
                            row_of[m] = beyond + grown
                            upcoming[grown] = m
                            grown += 1
                        arrival = row_of[m]
                    if side == 0:
                        row_true[here + i] = arrival
                    else:
                        row_false[here + i] = arrival
            frontier, upcoming = upcoming, frontier
            size = grown
            t += 1
    return step_offsets[: last + 1], row_node, row_program, row_true, row_false


@njit(cache=True, nogil=True)
def follow_traces(  # type: ignore[no-untyped-def]
    node_offsets, true, false, trace_offsets, trace, first_rows, row_node, row_program, row_true, row_false
):
    """The branch that each program's true trace takes at the rows that it passes: int8, 0 true, 1 false, -1 elsewhere.

    A trace is followed until it arrives at the exit, or leaves the rows because the steps do not suffice for it.

    Args:
        node_offsets, true, false: The graphs.
        trace_offsets, trace: Their true traces, none cut off while there are rows.
        first_rows: How many rows the first step has: one for each program that has any.
        row_node, row_program, row_true, row_false: The rows.
    """
    rows = len(row_node)
    taken = np.full(rows, -1, np.int8)
    for start in range(first_rows):
        program = row_program[start]
        row, at = start, trace_offsets[program]
        while 0 <= row < rows:
            node, at = row_node[row], at + 1
            following = trace[at] if at < trace_offsets[program + 1] else node_offsets[program + 1] - 1
            side = 0 if true[node] == following else 1
            if true[node] != false[node]:
                taken[row] = side
            row = row_true[row] if side == 0 else row_false[row]
    return taken


@njit(cache=True, nogil=True)
def build_chain_rows(offsets):  # type: ignore[no-untyped-def]
    """Rows that walk one sequence per program: item `offsets[b] + t` at step t, then the exit.

    Returns:
        step_offsets int64, item int64, program int32, true int32.
    """
    programs = len(offsets) - 1
    longest = np.int64(0)
    for b in range(programs):
        longest = max(longest, np.int64(offsets[b + 1] - offsets[b]))
    step_offsets = np.zeros(longest + 1, np.int64)
    for b in range(programs):
        for t in range(offsets[b + 1] - offsets[b]):
            step_offsets[t + 1] += 1
    for t in range(longest):
        step_offsets[t + 1] += step_offsets[t]
    rows = step_offsets[longest]
    cursor = step_offsets.copy()
    row_item = np.empty(rows, np.int64)
    row_program = np.empty(rows, np.int32)
    row_true = np.empty(rows, np.int32)
    for b in range(programs):
        count = offsets[b + 1] - offsets[b]
        for t in range(count):
            row = cursor[t]
            cursor[t] += 1
            row_item[row] = offsets[b] + t
            row_program[row] = b
            row_true[row] = cursor[t + 1] if t + 1 < count else rows + b
    return step_offsets, row_item, row_program, row_true


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
