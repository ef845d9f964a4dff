"""How long it takes to write training programs to disk, their size and the memory needed; then reading and streaming.

Run as `python benchmarks/generate.py [PROGRAMS]` (default 5 million, about 100 MB in a temporary folder). It asserts
nothing.
"""

import os
import resource
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

from ipagnn.data import Stream, collate, generate, read_shards, training_sampler

BATCH = 512


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000_000
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder) / "warm", count=1_000, threads=1)  # compiled before the clock starts
        directory = Path(folder) / "train"
        started = time.perf_counter()
        manifest = generate(directory, count=count, threads=cores)
        seconds = time.perf_counter() - started
        size = sum(shard.bytes for shard in manifest.shards)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "linux" else 1e9)
        print(
            f"  write {count:,} training programs, {cores} threads: {seconds:.1f} s, {count / seconds:,.0f} programs/s"
        )
        print(f"  size {size / 1e6:.1f} MB, {size / count:.1f} bytes a program; peak memory {peak:.2f} GB")
        print(f"  duplicates {manifest.duplicates:,}")
        started = time.perf_counter()
        read = sum(len(table) for table in read_shards(directory).shards())
        seconds = time.perf_counter() - started
        print(f"  read, verify and decode, 1 thread: {seconds:.1f} s, {read / seconds:,.0f} programs/s")
    for threads in sorted({1, cores}):
        with Stream(
            training_sampler(), BATCH, lambda table: collate(table, "graph"), threads=threads, ahead=8
        ) as stream:
            next(stream)
            started = time.perf_counter()
            batches = sum(1 for _ in islice(stream, 400))
            seconds = time.perf_counter() - started
        rate = batches * BATCH / seconds
        print(f"  stream of batches of {BATCH} with graph rows, {threads} thread(s): {rate:,.0f} programs/s")


if __name__ == "__main__":
    main()
