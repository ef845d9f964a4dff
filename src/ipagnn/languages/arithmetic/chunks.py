"""Compiled code over the programs of a table: some at a time, on several threads."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from ipagnn.languages.arithmetic._compiled.graph import GRAPH_SCRATCH
from ipagnn.languages.arithmetic.program import ProgramTable


class Chunk(NamedTuple):
    """Some programs of a table that follow each other.

    Attributes:
        first, last: The programs `first : last` of the table.
        longest: Lines of the longest.
        lines: Their line offsets and the table's lines, for compiled code.
        graph: Room for a control flow graph of theirs: nodes with their successors, and scratch of `control_flow`.
    """

    first: int
    last: int
    longest: int
    lines: tuple[Any, Any]
    graph: tuple[Any, Any]


def run_chunks(run: Callable[[Chunk], None], table: ProgramTable, size: int, threads: int) -> None:
    """Call `run` with all programs of a table, `size` at a time.

    Args:
        run: Called on several threads; it writes its results to places of its own.
        table: The programs.
        size: Programs of a chunk.
        threads: How many threads compute.
    """

    def call(first: int) -> None:
        last = min(first + size, len(table))
        longest = int(table.lengths[first:last].max())
        lines = table.line_offsets[first : last + 1], table.line_tokens
        graph = np.empty((3, longest + 1), np.int32), np.empty((GRAPH_SCRATCH, longest + 1), np.int32)
        run(Chunk(first, last, longest, lines, graph))

    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(call, range(0, len(table), size)):
            pass
