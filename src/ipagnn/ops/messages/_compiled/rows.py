"""Compiled code that lays out the node-steps of message passing; `message_plan.py` is its plain interface."""

import numpy as np
from numba import njit

_FAR = 2**30

DECIDES, EXIT, START, RECEIVES = 16, 32, 64, 128
"""Flags of a row beside the bits of the slots it sends in: its node has two successors; is an exit; is the first; gets
a message from the pointer."""


@njit(cache=True, nogil=True)
def exit_distances(true, false, start, stop, bidirectional, distance):  # type: ignore[no-untyped-def]
    """Fewest edges from each node of one program to its exit, forwards or either way."""
    for n in range(start, stop - 1):
        distance[n] = _FAR
    distance[stop - 1] = 0
    changed = True
    while changed:
        changed = False
        for n in range(stop - 2, start - 1, -1):
            for m in (true[n], false[n]):
                if distance[m] + 1 < distance[n]:
                    distance[n] = distance[m] + 1
                    changed = True
                if bidirectional and distance[n] + 1 < distance[m]:
                    distance[m] = distance[n] + 1
                    changed = True


@njit(cache=True, nogil=True)
def _walk(true, false, start, stop, steps, distance, absorb, held, last):  # type: ignore[no-untyped-def]
    """Where a pointer can be and still reach the exit: `held` [step + 1, node], and the last such step of each node.

    The exit's last step is the last of all; -1 if it absorbs, as there is then no state of it to be updated.
    """
    for n in range(start, stop):
        last[n] = -1
    held[: steps + 1, : stop - start] = False
    held[0, 0] = distance[start] <= steps
    for t in range(steps + 1):
        for n in range(start, stop):
            if held[t, n - start]:
                last[n] = t
                if t < steps:
                    for m in (true[n], false[n]):
                        if distance[m] <= steps - t - 1:
                            held[t + 1, m - start] = True
    last[stop - 1] = -1 if absorb else steps


@njit(cache=True, nogil=True)
def build_message_rows(node_offsets, true, false, steps, pointer, absorb):  # type: ignore[no-untyped-def]
    """Rows (t, n) whose state h_{t,n} can matter to the exit's last one, and the messages between them.

    Without a pointer that is so where at most T - t edges lead to the exit, either way; with one, up to the last step
    at which it can be at the node and still reach the exit. Exits have all their steps; those that `absorb`, which
    takes a pointer, have one row each, as the last step, where all arrives that ever does.

    Slots of messages: true, true in reverse, false, false in reverse; with a pointer: true, false.

    Rows of a step that send in the same slots stand together, and so do those that the pointer comes to, so that whole
    tiles of them have nothing to do for the others.

    Returns:
        offsets int64 [step + 2], and int32 node, next, previous, flags [row], arrival_offsets [row + 1], arrivals,
        targets [edge], departure_offsets [slots * row + 1], departures [edge], final [program]; see `MessagePlan`.
    """
    programs, nodes = len(node_offsets) - 1, len(true)
    slots = 2 if pointer else 4
    false_slot = 1 if pointer else 2
    longest, widest = 0, 0
    for b in range(programs):
        longest = max(longest, steps[b])
        widest = max(widest, node_offsets[b + 1] - node_offsets[b])
    distance, last = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    base = np.zeros(nodes + 1, np.int64)  # (t, n) is entry base[n] + t
    held = np.zeros((longest + 2 if pointer else 1, widest), np.bool_)
    for b in range(programs):
        start, stop = node_offsets[b], node_offsets[b + 1]
        exit_distances(true, false, start, stop, not pointer, distance)
        if pointer:
            _walk(true, false, start, stop, steps[b], distance, absorb, held, last)
        else:
            for n in range(start, stop):
                last[n] = max(steps[b] - distance[n], -1)
        for n in range(start, stop):
            base[n + 1] = base[n] + last[n] + 1
    moving = base[nodes]
    rows = moving + (programs if absorb else 0)
    latest_true, latest_false = np.full(nodes, -1, np.int64), np.full(nodes, -1, np.int64)
    predecessors = np.zeros(nodes + 1, np.int64)
    for n in range(nodes):
        latest_true[true[n]] = max(latest_true[true[n]], last[n])
        predecessors[true[n] + 1] += 1
        if true[n] != false[n]:
            latest_false[false[n]] = max(latest_false[false[n]], last[n])
            predecessors[false[n] + 1] += 1
    for n in range(nodes):
        predecessors[n + 1] += predecessors[n]
    cursor = predecessors.copy()
    coming = np.empty(predecessors[nodes], np.int64)  # 2 * predecessor + branch
    for n in range(nodes):
        coming[cursor[true[n]]] = 2 * n
        cursor[true[n]] += 1
        if true[n] != false[n]:
            coming[cursor[false[n]]] = 2 * n + 1
            cursor[false[n]] += 1

    entry_flags = np.zeros(rows, np.int32)
    counts = np.zeros((longest + 1, 5), np.int64)
    for b in range(programs):
        start, stop = node_offsets[b], node_offsets[b + 1]
        if pointer:
            exit_distances(true, false, start, stop, False, distance)
            _walk(true, false, start, stop, steps[b], distance, absorb, held, last)
        for n in range(start, stop):
            decides = true[n] != false[n]
            for t in range(last[n] + 1):
                flags = 0
                if pointer:
                    if held[t, n - start] and t < steps[b]:
                        if held[t + 1, true[n] - start]:
                            flags |= 1
                        if decides and held[t + 1, false[n] - start]:
                            flags |= 2
                    if t < steps[b] and held[t + 1, n - start]:
                        flags |= RECEIVES
                else:
                    if t < last[true[n]]:
                        flags |= 1
                    if t < latest_true[n]:
                        flags |= 2
                    if decides and t < last[false[n]]:
                        flags |= 4
                    if t < latest_false[n]:
                        flags |= 8
                counts[t, _group(flags, pointer)] += 1
                if decides:
                    flags |= DECIDES
                if n == stop - 1:
                    flags |= EXIT
                if n == start:
                    flags |= START
                entry_flags[base[n] + t] = flags

    offsets = np.zeros(longest + 2, np.int64)
    places = np.empty_like(counts)
    row = 0
    for t in range(longest + 1):
        offsets[t] = row
        for group in range(5):
            places[t, group] = row
            row += counts[t, group]
    offsets[longest + 1] = rows
    row_of = np.empty(rows, np.int32)
    node, flags_of = np.empty(rows, np.int32), np.empty(rows, np.int32)
    final = np.empty(programs, np.int32)
    for b in range(programs):
        exit_node = node_offsets[b + 1] - 1
        for n in range(node_offsets[b], exit_node + 1):
            for t in range(last[n] + 1):
                flags = entry_flags[base[n] + t]
                group = _group(flags, pointer)
                place = places[t, group]
                places[t, group] += 1
                row_of[base[n] + t] = place
                node[place], flags_of[place] = n, flags
        final[b] = moving + b if absorb else row_of[base[exit_node] + steps[b]]
        if absorb:
            node[final[b]], flags_of[final[b]] = exit_node, EXIT

    following, previous = np.full(rows, -1, np.int32), np.full(rows, -1, np.int32)
    arrival_offsets = np.zeros(rows + 1, np.int32)
    for b in range(programs):
        for n in range(node_offsets[b], node_offsets[b + 1]):
            absorbs = absorb and n == node_offsets[b + 1] - 1
            for t in range(steps[b] if absorbs else last[n]):
                place = final[b] if absorbs else row_of[base[n] + t]
                if not absorbs:
                    following[place], previous[row_of[base[n] + t + 1]] = row_of[base[n] + t + 1], place
                for i in range(predecessors[n], predecessors[n + 1]):
                    m, branch = coming[i] // 2, coming[i] % 2
                    if t <= last[m] and (not pointer or entry_flags[base[m] + t] & (1 << branch)):
                        arrival_offsets[place + 1] += 1
                if not pointer:
                    arrival_offsets[place + 1] += 1 + (true[n] != false[n])
    for place in range(rows):
        arrival_offsets[place + 1] += arrival_offsets[place]
    edges = arrival_offsets[rows]
    arrivals, targets = np.empty(edges, np.int32), np.empty(edges, np.int32)
    departure_offsets, filled = np.zeros(slots * rows + 1, np.int32), arrival_offsets.copy()
    for b in range(programs):
        for n in range(node_offsets[b], node_offsets[b + 1]):
            absorbs = absorb and n == node_offsets[b + 1] - 1
            for t in range(steps[b] if absorbs else last[n]):
                place = final[b] if absorbs else row_of[base[n] + t]
                edge = filled[place]
                for i in range(predecessors[n], predecessors[n + 1]):
                    m, branch = coming[i] // 2, coming[i] % 2
                    if t <= last[m] and (not pointer or entry_flags[base[m] + t] & (1 << branch)):
                        arrivals[edge] = slots * row_of[base[m] + t] + (false_slot if branch else 0)
                        edge += 1
                if not pointer:
                    arrivals[edge] = slots * row_of[base[true[n]] + t] + 1
                    edge += 1
                    if true[n] != false[n]:
                        arrivals[edge] = slots * row_of[base[false[n]] + t] + 3
                        edge += 1
                for e in range(filled[place], edge):
                    targets[e] = place
                    departure_offsets[arrivals[e] + 1] += 1
                filled[place] = edge
    for i in range(slots * rows):
        departure_offsets[i + 1] += departure_offsets[i]
    departures, free = np.empty(edges, np.int32), departure_offsets.copy()
    for e in range(edges):
        departures[free[arrivals[e]]] = e
        free[arrivals[e]] += 1
    return (
        offsets, node, following, previous, flags_of,
        arrival_offsets, arrivals, targets, departure_offsets, departures, final,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _group(flags, pointer):  # type: ignore[no-untyped-def]
    """Where in a step a row stands, 0 to 4: each slot's senders are neighbours, those that have nothing to do last."""
    sends = flags & 15
    if sends == 0:
        return 2 if flags & RECEIVES else 4
    if pointer:
        return 0 if sends & 2 else 1
    late, later = sends & 4 != 0, sends & 8 != 0
    if late:
        return 1 if later else 0
    return 2 if later else 3


@njit(cache=True, nogil=True)
def distinct_statements(tokens):  # type: ignore[no-untyped-def]
    """Statements that differ, and who has them.

    Args:
        tokens: int32 [row, 4].

    Returns:
        int32 statement [row], member_offsets [statement + 1], members [row] (rows by statement) and statements
        [statement, 4].
    """
    rows = len(tokens)
    key = np.empty(rows, np.int64)
    for r in range(rows):
        key[r] = ((np.int64(tokens[r, 0]) * 4096 + tokens[r, 1]) * 4096 + tokens[r, 2]) * 4096 + tokens[r, 3]
    members = np.argsort(key, kind="mergesort").astype(np.int32)
    statement, offsets = np.empty(rows, np.int32), np.zeros(rows + 1, np.int32)
    statements = np.empty((rows, 4), np.int32)
    count = 0
    for i in range(rows):
        r = members[i]
        if i == 0 or key[r] != key[members[i - 1]]:
            offsets[count] = i
            statements[count] = tokens[r]
            count += 1
        statement[r] = count - 1
    offsets[count] = rows
    return statement, offsets[: count + 1], members, statements[:count]
