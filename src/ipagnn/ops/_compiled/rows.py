"""Compiled search for the node-steps that can matter to the final state of an exit.

One call plans one batch on one thread and holds no lock, so plans can be made in as many threads as there are cores.
"""

import numpy as np
from numba import njit

FAR = 2**30
"""More edges than any graph has."""


@njit(cache=True, nogil=True)
def _steps_to_exit(successors, start, stop, end, distance):  # type: ignore[no-untyped-def]
    """Fewest edges from each node of one graph to its exit: a few sweeps, since most edges lead forwards."""
    for n in range(start, stop):
        distance[n] = FAR
    distance[end] = 0
    changed = True
    while changed:
        changed = False
        for n in range(stop - 1, start - 1, -1):
            shortest = distance[n]
            for side in range(successors.shape[1]):
                shortest = min(shortest, 1 + distance[successors[n, side]])
            if shortest < distance[n]:
                distance[n] = shortest
                changed = True


@njit(cache=True, nogil=True)
def _is_edge(successors, n, side):  # type: ignore[no-untyped-def]
    for earlier in range(side):  # noqa: SIM110 - all() of a generator is nothing that numba compiles
        if successors[n, earlier] == successors[n, side]:
            return False
    return True


@njit(cache=True, nogil=True)
def build_rows(successors, offsets, starts, exits, steps):  # type: ignore[no-untyped-def]
    """The node-steps that can matter: t edges lead there from the start, at most T - t from there to the exit.

    docs/specification.md, section 6.1.

    Both passes walk each graph's frontier step by step, so the work is proportional to rows, not to nodes x steps.

    Returns:
        step_offsets int64 [step + 1]; node and graph int32 [row]; edges bool [row, side], which successors are edges;
        target int32 [row, side], a row of the next step, rows + i for the exit of graph i, -1 for no edge or one from
        which the exit is out of reach.
    """
    graphs, sides = len(starts), successors.shape[1]
    longest = 0
    for b in range(graphs):
        longest = max(longest, steps[b])
    distance = np.empty(len(successors), np.int32)
    stamp = np.full(len(successors), -1, np.int64)  # the last (pass, step) at which a node entered the frontier
    frontier = np.empty(len(successors) + 1, np.int32)
    upcoming = np.empty(len(successors) + 1, np.int32)
    step_offsets = np.zeros(longest + 2, np.int64)
    for b in range(graphs):  # first pass: count
        _steps_to_exit(successors, offsets[b], offsets[b + 1], exits[b], distance)
        frontier[0] = starts[b]
        size = int(distance[starts[b]] <= steps[b] and starts[b] != exits[b])
        t = 0
        while size:
            step_offsets[t + 1] += size
            grown = 0
            for i in range(size):
                for side in range(sides):
                    m = successors[frontier[i], side]
                    if m != exits[b] and distance[m] <= steps[b] - t - 1 and stamp[m] != t:
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
    row_graph = np.empty(rows, np.int32)
    edges = np.zeros((rows, sides), np.bool_)
    target = np.full((rows, sides), -1, np.int32)
    row_of = np.empty(len(successors), np.int64)
    cursor = step_offsets.copy()  # the next free row of each step; graphs come in order, so rows are sorted by graph
    for b in range(graphs):  # second pass: fill
        frontier[0] = starts[b]
        size = int(distance[starts[b]] <= steps[b] and starts[b] != exits[b])
        t = 0
        while size:
            here = cursor[t]
            cursor[t] += size
            beyond = cursor[t + 1]
            grown = 0
            for i in range(size):
                n = frontier[i]
                row_node[here + i] = n
                row_graph[here + i] = b
                for side in range(sides):
                    if not _is_edge(successors, n, side):
                        continue
                    edges[here + i, side] = True
                    m = successors[n, side]
                    if m == exits[b]:
                        target[here + i, side] = rows + b
                    elif distance[m] <= steps[b] - t - 1:
                        if stamp[m] != FAR + t:
                            stamp[m] = FAR + t
                            row_of[m] = beyond + grown
                            upcoming[grown] = m
                            grown += 1
                        target[here + i, side] = row_of[m]
            frontier, upcoming = upcoming, frontier
            size = grown
            t += 1
    return step_offsets[: last + 1], row_node, row_graph, edges, target
