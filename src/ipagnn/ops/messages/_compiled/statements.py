"""Compiled code that lays out the executions of NoControl; `message_statement_plan.py` is its plain interface."""

import numpy as np
from numba import njit

from ipagnn.ops.messages._compiled.rows import distinct_statements, exit_distances


@njit(cache=True, nogil=True)
def build_statement_rows(node_offsets, true, false, steps, tokens, bidirectional, slots):  # type: ignore[no-untyped-def]
    """Executions (t, n) of statements that can matter to the exit's last state, and who reads what of whom.

    At t = 0 all states are 0, so equal statements are executed once. An exit executes nothing; its state at t > 0 is a
    row of its own kind, and at t = 0 it sends zeros, which only count.

    A *reader* is a state at t > 0: that of row r, or -1 - k for the k-th of the exits'. Arrays by reader have all rows
    first, then all exits. Sources are given in the same way. If `bidirectional`, successors are read, too.

    Messages come in as many slots as there are edge types to tell apart: true, false, true in reverse, false in
    reverse; 1 tells none apart.

    Returns:
        int64 offsets, exit_offsets [step + 2] and int32 rows' tokens [row, 4]; by reader and slot: counts (messages
        that arrive, with those that are zeros) and arrival_offsets [slots * reader + 1], arrivals [edge] (sources); by
        source and slot: departure_offsets [slots * reader + 1], departures [edge] (readers); final [program] (of exits,
        counted from 0).
    """
    programs, nodes = len(node_offsets) - 1, len(true)
    longest = 0
    distance, last = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    base = np.zeros(nodes + 1, np.int64)  # (t, n) is entry base[n] + t
    is_exit = np.zeros(nodes, np.bool_)
    executed = np.empty(nodes, np.int64)
    statements = 0
    for b in range(programs):
        start, stop = node_offsets[b], node_offsets[b + 1]
        longest = max(longest, steps[b])
        exit_distances(true, false, start, stop, bidirectional, distance)
        is_exit[stop - 1] = True
        for n in range(start, stop):
            last[n] = max(steps[b] - distance[n], -1)
            base[n + 1] = base[n] + last[n] + 1
            if last[n] >= 0 and not is_exit[n]:
                executed[statements] = n
                statements += 1
    own = np.empty((statements, 4), np.int32)
    for i in range(statements):
        own[i] = tokens[executed[i]]
    kinds, _, _, distinct = distinct_statements(own)

    offsets, exit_offsets = np.zeros(longest + 2, np.int64), np.zeros(longest + 2, np.int64)
    offsets[1] = len(distinct)
    for n in range(nodes):
        for t in range(1, last[n] + 1):
            if is_exit[n]:
                exit_offsets[t + 1] += 1
            else:
                offsets[t + 1] += 1
    for t in range(1, longest + 2):
        offsets[t] += offsets[t - 1]
        exit_offsets[t] += exit_offsets[t - 1]
    rows, exits = offsets[longest + 1], exit_offsets[longest + 1]
    row_tokens = np.empty((rows, 4), np.int32)
    row_tokens[: len(distinct)] = distinct
    place, exit_place = offsets.copy(), exit_offsets.copy()
    row_of = np.zeros(base[nodes], np.int32)
    for i in range(statements):
        row_of[base[executed[i]]] = kinds[i]
    for n in range(nodes):
        for t in range(1, last[n] + 1):
            if is_exit[n]:
                row_of[base[n] + t] = -1 - exit_place[t]
                exit_place[t] += 1
            else:
                row_of[base[n] + t] = place[t]
                row_tokens[place[t]] = tokens[n]
                place[t] += 1
    final = np.empty(programs, np.int32)
    for b in range(programs):
        final[b] = -1 - row_of[base[node_offsets[b + 1] - 1] + steps[b]]

    neighbour_offsets = np.zeros(nodes + 1, np.int64)  # those that a node reads, as often as there are edges
    for n in range(nodes):
        for side in range(1 + (true[n] != false[n])):
            neighbour_offsets[n + 1] += bidirectional
            neighbour_offsets[(false[n] if side else true[n]) + 1] += 1
    for n in range(nodes):
        neighbour_offsets[n + 1] += neighbour_offsets[n]
    cursor = neighbour_offsets.copy()
    neighbours, slot_of = np.empty(neighbour_offsets[nodes], np.int64), np.empty(neighbour_offsets[nodes], np.int64)
    for n in range(nodes):
        for side in range(1 + (true[n] != false[n])):
            m = false[n] if side else true[n]
            if bidirectional:
                neighbours[cursor[n]], slot_of[cursor[n]] = m, (2 + side) % slots
                cursor[n] += 1  # an exit is its own neighbour, so one after the other
            neighbours[cursor[m]], slot_of[cursor[m]] = n, side % slots
            cursor[m] += 1

    counts = np.zeros(slots * (rows + exits), np.int32)
    arrival_offsets, departure_offsets = np.zeros(len(counts) + 1, np.int32), np.zeros(len(counts) + 1, np.int32)
    for n in range(nodes):
        for t in range(1, last[n] + 1):
            reader = slots * _place(row_of[base[n] + t], rows)
            for i in range(neighbour_offsets[n], neighbour_offsets[n + 1]):
                m, slot = neighbours[i], slot_of[i]
                counts[reader + slot] += 1
                if t > 1 or not is_exit[m]:
                    arrival_offsets[reader + slot + 1] += 1
                    departure_offsets[slots * _place(row_of[base[m] + t - 1], rows) + slot + 1] += 1
    for i in range(len(counts)):
        arrival_offsets[i + 1] += arrival_offsets[i]
        departure_offsets[i + 1] += departure_offsets[i]
    arrivals, departures = np.empty(arrival_offsets[-1], np.int32), np.empty(arrival_offsets[-1], np.int32)
    filled, free = arrival_offsets.copy(), departure_offsets.copy()
    for n in range(nodes):
        for t in range(1, last[n] + 1):
            reader = row_of[base[n] + t]
            for i in range(neighbour_offsets[n], neighbour_offsets[n + 1]):
                m, slot = neighbours[i], slot_of[i]
                if t > 1 or not is_exit[m]:
                    source = row_of[base[m] + t - 1]
                    to, by = slots * _place(reader, rows) + slot, slots * _place(source, rows) + slot
                    arrivals[filled[to]] = source
                    filled[to] += 1
                    departures[free[by]] = reader
                    free[by] += 1
    return (
        offsets, exit_offsets, row_tokens, counts, arrival_offsets, arrivals, departure_offsets, departures, final
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _place(code, rows):  # type: ignore[no-untyped-def]
    """Where in an array by reader a row or, as -1 - k, an exit stands."""
    return code if code >= 0 else rows - 1 - code
