"""Compiled code that turns a table of programs into a batch; `batch.py` is its plain interface.

One call builds one batch on one thread and holds no lock, so batches can be made in as many threads as there are cores.
"""

import numpy as np
from numba import njit

from ipagnn.languages.arithmetic._compiled.graph import GRAPH_SCRATCH, control_flow, paper_steps, static_steps


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
