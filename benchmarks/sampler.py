"""How many programs a second: sampling, tokens, execution, control flow graph and T(x).

Run as `python benchmarks/sampler.py [SECONDS]`; each rate is measured over SECONDS (default 3). Asserts nothing.
"""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numba import njit

from ipagnn.languages.arithmetic._compiled.graph import GRAPH_SCRATCH, control_flow, paper_steps
from ipagnn.languages.arithmetic.grammar import Lengths
from ipagnn.languages.arithmetic.program import ProgramKind, ProgramTable
from ipagnn.languages.arithmetic.sampler import TRAINING, Sampler
from ipagnn.languages.arithmetic.targets import values_of
from ipagnn.training.presets import EXTENDED_LANGUAGE


@njit(nogil=True)
def _graphs(offsets, tokens, graph, graph_scratch, steps_scratch, steps):  # type: ignore[no-untyped-def]
    for i in range(len(steps)):
        program = tokens[offsets[i] : offsets[i + 1]]
        control_flow(program, graph[0], graph[1], graph[2], graph_scratch)
        steps[i] = paper_steps(program, steps_scratch)


def describe(table: ProgramTable) -> np.ndarray:
    """The graph and T(x) of every program of a table."""
    room = int(table.lengths.max()) + 1
    steps = np.empty(len(table), np.int64)
    graph, scratch = np.empty((3, room), np.int32), np.empty((GRAPH_SCRATCH, room), np.int32)
    _graphs(table.line_offsets, table.line_tokens, graph, scratch, np.empty(room, np.int64), steps)
    return steps


def rate(sampler: Sampler, chunk: int, threads: int, seconds: float) -> float:
    """Programs a second; every thread draws tables of `chunk` programs, with values, and then their graphs and T(x)."""

    def work(first: int) -> int:
        done = 0
        while time.perf_counter() < deadline:
            describe(sampler.table(first + done, chunk))
            done += chunk
        return done

    started = time.perf_counter()
    deadline = started + seconds
    with ThreadPoolExecutor(threads) as pool:
        total = sum(pool.map(work, range(0, threads * 10**12, 10**12)))
    return total / (time.perf_counter() - started)


def execution_rate(table: ProgramTable, modulus: int, threads: int, seconds: float) -> float:
    """Programs a second that are run to their exact values, with their control flow graphs."""
    started = time.perf_counter()
    done = 0
    while time.perf_counter() - started < seconds:
        values_of(table, modulus, threads=threads)
        done += len(table)
    return done / (time.perf_counter() - started)


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    print(f"python benchmarks/sampler.py {seconds:g}    # {cores} cores")
    print("programs/s: tokens + exact value + control flow graph + T(x)")
    cases: list[tuple[str, ProgramKind, Lengths, int]] = [
        ("training lengths, full", "full", TRAINING, 16384),
        ("training lengths, partial", "partial", TRAINING, 16384),
        ("length 20, full", "full", Lengths.exact(20), 8192),
        ("length 100, full", "full", Lengths.exact(100), 1024),
    ]
    for name, task, lengths, chunk in cases:
        sampler = Sampler(task, lengths)
        describe(sampler.table(0, 10))  # compiled before the clock starts
        rates = [rate(sampler, chunk, threads, seconds) for threads in (1, cores)]
        print(f"  {name:<26} 1 thread {rates[0]:>10,.0f}   {cores} threads {rates[1]:>10,.0f}")
    print("programs/s: exact value alone, length 100")
    table = Sampler(lengths=Lengths.exact(100)).table(0, 16384)
    for modulus in (1000, 10**12, 10**18):
        rates = [execution_rate(table, modulus, threads, seconds) for threads in (1, cores)]
        name = f"modulus {modulus:,}"
        print(f"  {name:<36} 1 thread {rates[0]:>10,.0f}   {cores} threads {rates[1]:>10,.0f}")
    print("programs/s: the language of the preset extended, tokens + exact value")
    for length in (10, 100):
        sampler = Sampler(lengths=Lengths.exact(length), grammar=EXTENDED_LANGUAGE)
        sampler.table(0, 10)
        rates = [rate(sampler, 1024, threads, seconds) for threads in (1, cores)]
        print(f"  {f'length {length}':<26} 1 thread {rates[0]:>10,.0f}   {cores} threads {rates[1]:>10,.0f}")


if __name__ == "__main__":
    main()
