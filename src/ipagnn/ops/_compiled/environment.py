"""Compiled code that works out which values an execution computes; `ops/pointer/environment.py` is its plain interface.

A variable of a row holds what a statement wrote earlier, unchanged until it is read. So values are computed once,
where they are written, and rows refer to them by number, as compilers do (static single assignment). A value is

- the start (number 0),
- a literal,
- what a statement makes of another value, or
- a mixture, where control flow that brings different values meets.

Literals and statements that are the same throughout the batch have one number, whatever program and step they occur in.
"""

import numpy as np
from numba import njit

START, LITERAL, STATEMENT, MIXTURE = 0, 1, 2, 3
"""Kinds of values."""
_EMPTY = -1


@njit(cache=True, nogil=True)
def _find(keys, slots, a, b, c):  # type: ignore[no-untyped-def]
    """Where the key (a, b, c) is in an open hash table, or the free place for it."""
    mask = len(slots) - 1
    at = (a * 7919 + b * 104729 + c * 1299709) & mask
    while slots[at] != _EMPTY and (keys[at, 0] != a or keys[at, 1] != b or keys[at, 2] != c):
        at = (at + 1) & mask
    return at


@njit(cache=True, nogil=True)
def _table(entries):  # type: ignore[no-untyped-def]
    size = 16
    while size < 2 * entries + 2:
        size *= 2
    return np.empty((size, 3), np.int64), np.full(size, _EMPTY, np.int32)


@njit(cache=True, nogil=True)
def number_values(  # type: ignore[no-untyped-def]
    step_offsets, operation, variable, operand, source, branches, writes, assign, variables, arrival_offsets, arrivals
):
    """Give every value of an execution a number, in the order of the steps in which they first occur.

    Args:
        step_offsets, branches, arrival_offsets, arrivals: Of the rows.
        operation, variable, operand: Of the statement of each row.
        source: The variable that is its operand; -1 where that is a number.
        writes: Whether an operation assigns, by operation.
        assign: The operation of literals.
        variables: Number of slots.

    Returns:
        kind, operation, operand, input (number of the value that is read) and step of each value; an operand that is
            the value with number n is -1 - n;
        operation, operand, input and step of each distinct condition;
        row and offsets into arguments of each mixture, and edge and value of each argument;
        the condition of each row and the value that each row writes, -1 for none.
    """
    rows, steps = len(operation), len(step_offsets) - 1
    edges = arrival_offsets[rows]
    most = 1 + rows + rows * variables if variables < 4 else 1 + rows + edges * variables
    kind = np.zeros(most, np.int8)
    value_operation = np.zeros(most, np.int32)
    value_operand = np.zeros(most, np.int64)
    value_input = np.full(most, -1, np.int32)
    value_step = np.zeros(most, np.int32)
    mixture_of = np.empty(most, np.int32)
    mixture_row = np.empty(most, np.int32)
    mixture_offsets = np.zeros(most + 1, np.int32)
    argument_edge = np.empty(edges * variables, np.int32)
    argument_value = np.empty(edges * variables, np.int32)
    condition_operation = np.empty(rows, np.int32)
    condition_operand = np.empty(rows, np.int64)
    condition_input = np.empty(rows, np.int32)
    condition_step = np.empty(rows, np.int32)
    row_condition = np.full(rows, -1, np.int32)
    row_value = np.full(rows, -1, np.int32)
    value_keys, value_slots = _table(rows)
    condition_keys, condition_slots = _table(rows)
    held = np.zeros((rows, variables), np.int32)  # the value in each slot, after the row's statement
    values, conditions, mixtures, arguments = 1, 0, 0, 0
    for t in range(steps):
        for r in range(step_offsets[t], step_offsets[t + 1]):
            first, last = arrival_offsets[r], arrival_offsets[r + 1]
            for s in range(variables):
                if first == last:
                    continue
                value = held[arrivals[first] // 2, s]
                same = True
                for e in range(first + 1, last):
                    same = same and held[arrivals[e] // 2, s] == value
                if not same:
                    for e in range(first, last):
                        argument_edge[arguments] = e
                        argument_value[arguments] = held[arrivals[e] // 2, s]
                        arguments += 1
                    value = values
                    kind[value], value_step[value] = MIXTURE, t
                    mixture_of[value] = mixtures
                    mixture_row[mixtures] = r
                    mixtures += 1
                    mixture_offsets[mixtures] = arguments
                    values += 1
                held[r, s] = value
        for r in range(step_offsets[t], step_offsets[t + 1]):
            o, v, k = operation[r], variable[r], operand[r]
            if source[r] >= 0:
                k = np.int64(-1 - held[r, source[r]])
            if writes[o]:
                read = held[r, v]
                if o == assign:  # what the variable held does not count
                    read = held[r, source[r]] if source[r] >= 0 else np.int32(-1)
                at = _find(value_keys, value_slots, np.int64(o), np.int64(k), np.int64(read))
                if value_slots[at] == _EMPTY:
                    value_keys[at, 0], value_keys[at, 1], value_keys[at, 2] = o, k, read
                    value_slots[at] = values
                    kind[values] = LITERAL if read < 0 else STATEMENT
                    value_operation[values], value_operand[values] = o, k
                    value_input[values], value_step[values] = read, t
                    values += 1
                row_value[r] = held[r, v] = value_slots[at]
            elif branches[r]:
                read = held[r, v]
                at = _find(condition_keys, condition_slots, np.int64(o), np.int64(k), np.int64(read))
                if condition_slots[at] == _EMPTY:
                    condition_keys[at, 0], condition_keys[at, 1], condition_keys[at, 2] = o, k, read
                    condition_slots[at] = conditions
                    condition_operation[conditions], condition_operand[conditions] = o, k
                    condition_input[conditions], condition_step[conditions] = read, t
                    conditions += 1
                row_condition[r] = condition_slots[at]
    return (
        (kind[:values], value_operation[:values], value_operand[:values], value_input[:values], value_step[:values]),
        (
            condition_operation[:conditions],
            condition_operand[:conditions],
            condition_input[:conditions],
            condition_step[:conditions],
        ),
        (
            mixture_of[:values],
            mixture_row[:mixtures],
            mixture_offsets[: mixtures + 1],
            argument_edge[:arguments],
            argument_value[:arguments],
        ),
        row_condition,
        row_value,
    )


@njit(cache=True, nogil=True)
def mark_needed(  # type: ignore[no-untyped-def]
    kind, value_input, value_operand, condition_input, condition_operand, mixture_of, mixture_offsets,
    argument_value, row_value, scored, true, false,
):  # fmt: skip
    """What of all this an output depends on.

    Args:
        scored: Whether a row writes the variable that the output reads.
        true, false: Successors of the rows.

    Returns:
        Whether the view of each value is read, whether its likelihood is asked for, and of each row whether it asks.
    """
    rows = len(row_value)
    reads = np.zeros(len(kind), np.bool_)
    likelihood = np.zeros(len(kind), np.bool_)
    asks = np.zeros(rows, np.bool_)
    matters = np.zeros(rows, np.bool_)  # whether what the variable holds before the row can arrive at an exit
    for r in range(rows - 1, -1, -1):
        after = true[r] >= rows or (true[r] >= 0 and matters[true[r]])
        after = after or false[r] >= rows or (false[r] >= 0 and matters[false[r]])
        if scored[r]:
            asks[r] = after
            likelihood[row_value[r]] |= after
        else:
            matters[r] = after
    for c in range(len(condition_input)):
        reads[condition_input[c]] = True
        if condition_operand[c] < 0:
            reads[-1 - condition_operand[c]] = True
    for v in range(len(kind) - 1, -1, -1):
        if kind[v] == STATEMENT and (reads[v] or likelihood[v]):
            reads[value_input[v]] = True
            if value_operand[v] < 0:
                reads[-1 - value_operand[v]] = True
        elif kind[v] == MIXTURE and reads[v]:
            for a in range(mixture_offsets[mixture_of[v]], mixture_offsets[mixture_of[v] + 1]):
                reads[argument_value[a]] = True
    return reads, likelihood, asks


@njit(cache=True, nogil=True)
def arrange(  # type: ignore[no-untyped-def]
    steps, values, conditions, mixtures, reads, likelihood, asks, row_condition, row_value, program
):
    """Put what is needed in the order in which it is computed; see `EnvironmentPlan` for what is returned."""
    kind, operation, operand, value_input, step = values
    condition_operation, condition_operand, condition_input, condition_step = conditions
    mixture_of, mixture_row, mixture_offsets, argument_edge, argument_value = mixtures

    # How much of each there is at each step. Literals come before all steps.
    literals, viewed_literals = 0, 0
    statement_offsets, condition_offsets, mixture_steps = (
        np.zeros(steps + 1, np.int64),
        np.zeros(steps + 1, np.int64),
        np.zeros(steps + 1, np.int64),
    )
    viewed = np.zeros(steps, np.int64)
    for v in range(1, len(kind)):
        t = step[v]
        if kind[v] == LITERAL:
            literals += reads[v] or likelihood[v]
            viewed_literals += reads[v]
        elif kind[v] == STATEMENT:
            statement_offsets[t + 1] += reads[v] or likelihood[v]
            viewed[t] += reads[v]
        elif reads[v]:
            mixture_steps[t + 1] += 1
    for t in condition_step:
        condition_offsets[t + 1] += 1
    for t in range(steps):
        statement_offsets[t + 1] += statement_offsets[t]
        condition_offsets[t + 1] += condition_offsets[t]
        mixture_steps[t + 1] += mixture_steps[t]

    # The place of each value among the views, and of what is written among all that is written.
    view = np.full(len(kind), -1, np.int64)
    written = np.full(len(kind), -1, np.int64)
    view[0] = 0
    next_view, next_viewed, next_other = 1, 0, viewed_literals
    for v in range(1, len(kind)):
        if kind[v] == LITERAL and reads[v]:
            view[v], written[v] = next_view, next_viewed
            next_view += 1
            next_viewed += 1
        elif kind[v] == LITERAL and likelihood[v]:
            written[v] = next_other
            next_other += 1
    first = 1
    for t in range(steps):
        while first < len(kind) and step[first] < t:
            first += 1
        last = first
        while last < len(kind) and step[last] == t:
            last += 1
        next_viewed = literals + statement_offsets[t]
        next_other = next_viewed + viewed[t]
        for v in range(first, last):
            if kind[v] == MIXTURE and reads[v]:
                view[v] = next_view
                next_view += 1
        for v in range(first, last):
            if kind[v] == STATEMENT and reads[v]:
                view[v], written[v] = next_view, next_viewed
                next_view += 1
                next_viewed += 1
            elif kind[v] == STATEMENT and likelihood[v]:
                written[v] = next_other
                next_other += 1

    # Distinct pairs of operation and operand: the literals, in their order, and then the others.
    statements = statement_offsets[steps]
    pair_operation = np.empty(literals + statements + len(condition_input), np.int64)
    pair_operand = np.empty(len(pair_operation), np.int64)
    pairs = literals
    keys, slots = _table(len(pair_operation))
    statement_pair, statement_reads = np.empty(statements, np.int64), np.empty(statements, np.int64)
    for v in range(1, len(kind)):
        if kind[v] == LITERAL and written[v] >= 0:
            pair_operation[written[v]], pair_operand[written[v]] = operation[v], operand[v]
        elif kind[v] == STATEMENT and written[v] >= 0:
            k = operand[v] if operand[v] >= 0 else -1 - view[-1 - operand[v]]
            at = _find(keys, slots, np.int64(operation[v]), k, np.int64(0))
            if slots[at] == _EMPTY:
                keys[at, 0], keys[at, 1], keys[at, 2] = operation[v], k, 0
                slots[at] = pairs
                pair_operation[pairs], pair_operand[pairs] = operation[v], k
                pairs += 1
            statement_pair[written[v] - literals] = slots[at]
            statement_reads[written[v] - literals] = view[value_input[v]]
    cursor = condition_offsets.copy()
    condition_place = np.empty(len(condition_input), np.int64)
    condition_pair, condition_reads = (
        np.empty(len(condition_input), np.int64),
        np.empty(len(condition_input), np.int64),
    )
    for c in range(len(condition_input)):
        k = condition_operand[c] if condition_operand[c] >= 0 else -1 - view[-1 - condition_operand[c]]
        at = _find(keys, slots, np.int64(condition_operation[c]), k, np.int64(0))
        if slots[at] == _EMPTY:
            keys[at, 0], keys[at, 1], keys[at, 2] = condition_operation[c], k, 0
            slots[at] = pairs
            pair_operation[pairs], pair_operand[pairs] = condition_operation[c], k
            pairs += 1
        place = cursor[condition_step[c]]
        cursor[condition_step[c]] += 1
        condition_place[c] = place
        condition_pair[place], condition_reads[place] = slots[at], view[condition_input[c]]

    # Mixtures that are read, with their arguments.
    count = mixture_steps[steps]
    target = np.empty(count, np.int64)
    offsets = np.zeros(count + 1, np.int64)
    edge, brought = np.empty(len(argument_edge), np.int64), np.empty(len(argument_edge), np.int64)
    m, arguments = 0, 0
    for v in range(1, len(kind)):
        if kind[v] == MIXTURE and reads[v]:
            number = mixture_of[v]
            target[m] = mixture_row[number]
            for a in range(mixture_offsets[number], mixture_offsets[number + 1]):
                edge[arguments], brought[arguments] = argument_edge[a], view[argument_value[a]]
                arguments += 1
            m += 1
            offsets[m] = arguments

    # Likelihoods, in the order of what they are asked of.
    query_offsets = np.zeros(literals + statements + 1, np.int64)
    for r in range(len(asks)):
        if asks[r]:
            query_offsets[written[row_value[r]] + 1] += 1
    for w in range(literals + statements):
        query_offsets[w + 1] += query_offsets[w]
    places = query_offsets.copy()
    query_program = np.empty(query_offsets[-1], np.int64)
    row_query = np.full(len(asks), -1, np.int64)
    row_decides = np.full(len(asks), -1, np.int64)
    for r in range(len(asks)):
        if asks[r]:
            w = written[row_value[r]]
            row_query[r] = places[w]
            query_program[places[w]] = program[r]
            places[w] += 1
        if row_condition[r] >= 0:
            row_decides[r] = condition_place[row_condition[r]]
    return (
        viewed_literals, literals, statement_offsets, viewed, condition_offsets, mixture_steps,
        pair_operation[:pairs], pair_operand[:pairs], statement_pair, statement_reads, condition_pair,
        condition_reads, target, offsets, edge[:arguments], brought[:arguments], query_offsets, query_program,
        row_query, row_decides,
    )  # fmt: skip
