"""Compiled running of programs over automata of their statements; `automata/run.py` is its plain interface."""

import numpy as np
from numba import njit

from ipagnn.languages.arithmetic import vocabulary as v
from ipagnn.languages.arithmetic._compiled.graph import control_flow
from ipagnn.languages.arithmetic._compiled.statements import variable_of
from ipagnn.languages.arithmetic._compiled.tables import ENDLESS, ENDS, GAVE_UP

_OPERATION = v.OPERATION


@njit(cache=True, nogil=True)
def run_all(  # type: ignore[no-untyped-def]
    line_offsets, line_tokens, first, pairs, operands, decides, gives, goes, stops, result, max_steps, graph,
    graph_scratch, digits, kept, values, steps, statuses, stopped,
):  # fmt: skip
    """Run programs, digit by digit.

    A run that comes back to a place never ends if the digits that conditions have read since are the same again: what
    lower digits become does not depend on higher ones. It is compared with what it was after 1, 2, 4, 8, … steps
    (Brent), so that this is found after at most three times the steps that it takes to show.

    Args:
        line_offsets, line_tokens: The programs; `line_offsets[0]` need not be 0.
        first: The start state of each line's automaton. A state is the place of its first entry. [line]
        pairs: Whether it reads pairs of digits. [line]
        operands: The number on the right of each line, or -1 - k for a variable vk. [line]
        decides: By operation, whether it is a condition.
        gives, goes, stops: The entries of all automata.
        result: The variable whose value is the result.
        max_steps: Statements after which a program is given up.
        graph: int32 scratch [3, line + 1], by the longest program.
        graph_scratch: As in `control_flow`.
        digits: int64 scratch [variable, place]. Its second axis says how many digits variables have.
        kept: int64 scratch, as `digits`.
        values: int64 out: the result at the end; -1 of a program that did not end. [program]
        steps: int64 out: statements executed. [program]
        statuses: int8 out: `ENDS`, `ENDLESS` or `GAVE_UP`. [program]
        stopped: int32 out: the line where a program was that did not end, else -1. [program]
    """
    node_lines, true, false = graph[0], graph[1], graph[2]
    places = digits.shape[1]
    read = np.zeros(len(digits), np.int64)  # by variable: how many digits conditions have read since `kept`
    beside, zeros = np.zeros(places, np.int64), np.zeros(places, np.int64)
    for i in range(len(values)):
        tokens = line_tokens[line_offsets[i] : line_offsets[i + 1]]
        exit_node = control_flow(tokens, node_lines, true, false, graph_scratch) - 1
        digits[:] = 0
        node, step = 0, np.int64(0)
        kept_node, next_kept = -1, np.int64(1)
        endless = False
        mixes = False  # whether digits of a variable may become those of another
        for at in range(line_offsets[i], line_offsets[i + 1]):
            mixes = mixes or (pairs[at] and operands[at] < 0)
        read[:] = 0
        while node != exit_node and step < max_steps:
            if node == kept_node:
                endless = True
                most = read.max()
                for known in range(len(read)):
                    for place in range(most if mixes else read[known]):
                        endless = endless and digits[known, place] == kept[known, place]
                if endless:
                    break
            if step == next_kept:
                kept[:] = digits
                read[:] = 0
                kept_node = node
                next_kept = 2 * step
            step += 1
            line = node_lines[node]
            operation = tokens[line, 1] - _OPERATION
            variable = variable_of(tokens[line, 2])
            at = line_offsets[i] + line
            state, operand = first[at], operands[at]
            if pairs[at]:
                right = digits[-1 - operand] if operand < 0 else beside
                if operand >= 0:
                    for place in range(places):
                        beside[place] = operand % 10
                        operand //= 10
            else:
                right = zeros
            if decides[operation]:
                place = 0
                entry = state + digits[variable, 0] + 10 * right[0]
                while not stops[entry] and place < places - 1:
                    place += 1
                    entry = goes[entry] + digits[variable, place] + 10 * right[place]
                read[variable] = max(read[variable], place + 1)
                if pairs[at] and operands[at] < 0:
                    read[-1 - operands[at]] = max(read[-1 - operands[at]], place + 1)
                node = true[node] if gives[entry] else false[node]
                continue
            for place in range(places):
                entry = state + digits[variable, place] + 10 * right[place]
                digits[variable, place] = gives[entry]
                state = goes[entry]
            node = true[node]
        steps[i] = step
        value = np.int64(-1)
        statuses[i] = ENDLESS if endless else GAVE_UP
        stopped[i] = -1 if node == exit_node else node_lines[node]
        if node == exit_node:
            statuses[i] = ENDS
            value = np.int64(0)
            for place in range(places - 1, -1, -1):
                value = value * 10 + digits[result, place]
        values[i] = value
