"""Compiled running of programs over tables of what their statements do; `table_run.py` is its plain interface.

What a loop does depends on the values, at its head, of its inputs. In each run, a loop's result is remembered by these
values, so that traces of any length take bounded time; values that come back before the loop ends mean that it never
will. A result that is remembered rests on facts that the run has used already, so it adds nothing to what the run
rests on.
"""

import numpy as np
from numba import njit

from ipagnn.languages.arithmetic import vocabulary as v
from ipagnn.languages.arithmetic._compiled.graph import GRAPH_SCRATCH, control_flow
from ipagnn.languages.arithmetic._compiled.loops import (
    DEPTH,
    END,
    HEAD,
    INPUTS,
    LOOP_FIELDS,
    OUTPUTS,
    find_loops,
    live_variables,
)
from ipagnn.languages.arithmetic._compiled.statements import COMPARISON

ENDS, ENDLESS, GAVE_UP = 0, 1, 2
"""How a run ended: at the exit, in a loop that repeats its state, or after too many steps."""
LONGEST = np.int64(2**62)
"""Lengths of traces stop growing here."""

_FULL = 3  # no room for another result of a loop
_ASSIGN, _MASK, _VARIABLE, _VARIABLES = v.ASSIGN, v.MASK, v.VARIABLE, v.VARIABLES
_LITERAL, _ARITHMETIC, _CONDITION = 0, 1, 2
_KIND, _VARIABLE_OF, _ROW, _LOOP = range(4)  # what is known of a node; _LOOP is -1 but for the head of a loop
_LOOP_OF, _LENGTH, _DONE = range(3)  # what is known of a remembered result


@njit(cache=True, nogil=True)
def _slot(slots, generation, loop, inputs, state, keys, entries):  # type: ignore[no-untyped-def]
    """The slot of a loop's result for the values of its inputs: one that holds it, or the one where it would go."""
    mixed = np.uint64(loop + 1)
    for k in range(_VARIABLES):
        if inputs >> k & 1:
            mixed = (mixed ^ np.uint64(state[k])) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
    mask = len(slots) - 1
    at = np.int64(mixed & np.uint64(mask))
    while slots[at, 0] == generation:
        entry = slots[at, 1]
        if entries[entry, _LOOP_OF] == loop:
            same = True
            for k in range(_VARIABLES):
                if inputs >> k & 1 and keys[entry, k] != state[k]:
                    same = False
            if same:
                break
        at = (at + 1) & mask
    return at


@njit(cache=True, nogil=True)
def _run(  # type: ignore[no-untyped-def]
    nodes, true, false, exit_node, loops, literals, literal_logs, outcomes, logs, max_steps, generation, slots, keys,
    results, entries, pending, frames, visited, state, least, least_literal,
):  # fmt: skip
    """Run one program. Returns status, node, trace length and logarithm of the confidence.

    `least` and `least_literal` are scratch: of each statement, the least logarithm among the facts used so far.
    """
    state[:] = 0
    for node in range(exit_node):
        if nodes[node, _KIND] == _LITERAL:
            least_literal[nodes[node, _ROW]] = 0.0
        else:
            least[nodes[node, _ROW]] = 0.0
    used = 0
    length = np.int64(0)
    log = 0.0
    depth = 0  # frames: loops under way, the outermost first, and where their entries begin among the pending ones
    waiting = 0
    node = 0
    for _ in range(max_steps):
        while depth > 0 and not loops[frames[depth - 1, 0], HEAD] <= node < loops[frames[depth - 1, 0], END]:
            depth -= 1
            first = frames[depth, 1]
            for i in range(first, waiting):
                entry = pending[i]
                results[entry] = state
                entries[entry, _LENGTH] = length - entries[entry, _LENGTH]
                entries[entry, _DONE] = 1
            waiting = first
        if node == exit_node:
            return ENDS, node, length, log
        loop = nodes[node, _LOOP]
        if loop >= 0:
            visited[loop] = True
            at = _slot(slots, generation, loop, loops[loop, INPUTS], state, keys, entries)
            if slots[at, 0] == generation:
                entry = slots[at, 1]
                if not entries[entry, _DONE]:
                    return ENDLESS, node, length, log
                for k in range(_VARIABLES):
                    if loops[loop, OUTPUTS] >> k & 1:
                        state[k] = results[entry, k]
                length = min(length + entries[entry, _LENGTH], LONGEST)
                node = false[node]
                continue
            if used == len(entries):
                return _FULL, node, length, log
            if depth == 0 or frames[depth - 1, 0] != loop:
                frames[depth, 0], frames[depth, 1] = loop, waiting
                depth += 1
            slots[at, 0], slots[at, 1] = generation, used
            keys[used] = state
            entries[used, _LOOP_OF], entries[used, _LENGTH], entries[used, _DONE] = loop, length, 0
            pending[waiting] = used
            waiting += 1
            used += 1
        kind, variable, row = nodes[node, _KIND], nodes[node, _VARIABLE_OF], nodes[node, _ROW]
        length = min(length + 1, LONGEST)
        if kind == _LITERAL:
            state[variable] = literals[row]
            if literal_logs[row] < least_literal[row]:
                log += literal_logs[row] - least_literal[row]
                least_literal[row] = literal_logs[row]
            node = true[node]
            continue
        value = state[variable]
        outcome = outcomes[row, value]
        if logs[row, value] < least[row]:
            log += logs[row, value] - least[row]
            least[row] = logs[row, value]
        if kind == _ARITHMETIC:
            state[variable] = outcome
            node = true[node]
        else:
            node = true[node] if outcome else false[node]
    return GAVE_UP, node, length, log


@njit(cache=True, nogil=True)
def run_all(  # type: ignore[no-untyped-def]
    line_offsets, line_tokens, line_rows, literals, literal_logs, outcomes, logs, fillings, max_steps, values,
    statuses, lines, lengths, confidence_logs, depths,
):  # fmt: skip
    """Run programs, each under every filling of its masked lines.

    Args:
        line_offsets: int64 [program + 1]
        line_tokens: int16 [line, 4]
        line_rows: int32 [line]; the number a line assigns, or the row of its statement in `outcomes`.
        literals, literal_logs: int32, float64 [number]; what a literal gives, and the logarithm of its probability.
        outcomes, logs: int32, float64 [row, value]; the same for statements and conditions.
        fillings: int32 [filling, mask]; rows of the statements in place of the masked lines, in order. All programs
            have as many masked lines.
        max_steps: Statements carried out before a run is given up; a remembered loop counts as one.
        values: int32 out [program, filling]; v0 at the end.
        statuses: int8 out [program, filling].
        lines: int32 out [program, filling]; the line where the run ended, the number of lines for the exit.
        lengths: int64 out [program, filling]; statements executed.
        confidence_logs: float64 out [program, filling]; the sum, over the distinct statements of the trace, of the
            least logarithm among the facts used of each.
        depths: int32 out [program]; loops within loops that some run entered or came to.
    """
    longest = 0
    for i in range(len(values)):
        longest = max(longest, line_offsets[i + 1] - line_offsets[i])
    size = longest + 1
    node_lines, true, false, live = (
        np.empty(size, np.int32),
        np.empty(size, np.int32),
        np.empty(size, np.int32),
        np.empty(size, np.int32),
    )
    graph_scratch = np.empty((GRAPH_SCRATCH, size), np.int32)
    nodes = np.empty((size, 4), np.int32)
    loops = np.empty((size, LOOP_FIELDS), np.int32)
    frames = np.empty((size, 2), np.int64)
    visited = np.empty(size, np.bool_)
    masks = np.empty(fillings.shape[1], np.int32)
    state = np.empty(_VARIABLES, np.int32)
    room = 4096
    slots, entries, pending = np.zeros((4 * room, 2), np.int64), np.empty((room, 3), np.int64), np.empty(room, np.int64)
    keys, results = np.empty((room, _VARIABLES), np.int32), np.empty((room, _VARIABLES), np.int32)
    least, least_literal = np.empty(len(outcomes)), np.empty(len(literals))
    generation = np.int64(0)
    for i in range(len(values)):
        first, stop = line_offsets[i], line_offsets[i + 1]
        tokens, rows = line_tokens[first:stop], line_rows[first:stop]
        exit_node = control_flow(tokens, node_lines, true, false, graph_scratch) - 1
        live_variables(tokens, node_lines, true, false, exit_node, live)
        loop_count = find_loops(tokens, node_lines, true, false, exit_node, live, loops, graph_scratch)
        mask_count = 0
        for node in range(exit_node):
            line = node_lines[node]
            operation = tokens[line, 1]
            nodes[node, _KIND] = _CONDITION if COMPARISON[operation] >= 0 else _ARITHMETIC
            nodes[node, _VARIABLE_OF] = tokens[line, 2] - _VARIABLE
            nodes[node, _ROW] = rows[line]
            nodes[node, _LOOP] = -1
            if operation == _ASSIGN:
                nodes[node, _KIND] = _LITERAL
            elif operation == _MASK:
                nodes[node, _VARIABLE_OF] = 0
                masks[mask_count] = node
                mask_count += 1
        for loop in range(loop_count):
            nodes[loops[loop, HEAD], _LOOP] = loop
        visited[:loop_count] = False
        for f in range(len(fillings)):
            for j in range(mask_count):
                nodes[masks[j], _ROW] = fillings[f, j]
            while True:
                generation += 1
                status, node, length, log = _run(
                    nodes, true, false, exit_node, loops, literals, literal_logs, outcomes, logs, max_steps, generation,
                    slots, keys, results, entries, pending, frames, visited, state, least, least_literal,
                )  # fmt: skip
                if status != _FULL:
                    break
                room *= 4  # start again
                slots, entries = np.zeros((4 * room, 2), np.int64), np.empty((room, 3), np.int64)
                keys, results = np.empty((room, _VARIABLES), np.int32), np.empty((room, _VARIABLES), np.int32)
                pending = np.empty(room, np.int64)
            values[i, f] = state[0]
            statuses[i, f] = status
            lines[i, f] = node_lines[node]
            lengths[i, f] = length
            confidence_logs[i, f] = log
        depths[i] = 0
        for loop in range(loop_count):
            if visited[loop]:
                depths[i] = max(depths[i], loops[loop, DEPTH])
