"""How far a model can get that does not know which arm of an `if` and `else` is which.

    python experiments/arms.py [--count 60]

NoControl sends the same along the true and the false edge, and nothing else in the graph tells two arms apart: to it a
program is one with every condition before an `else` negated or not. Half of them are as likely as the other half, so
the best it can do is the value that most of these programs have. Prints, for each length of D_test, the mean share of
that value, and how much of it comes from programs that execute no loop.
"""

import argparse
from collections import Counter
from contextlib import suppress
from itertools import product
from random import Random

import numpy as np

from ipagnn.evaluation import build_test_recipe
from ipagnn.languages.arithmetic import ExecutionError, Program, execute, format_program, parse, trace

NEGATED = {">=": "<", "<=": ">", ">": "<=", "<": ">="}
MOST = 5
"""Conditions of which all combinations are tried; of more, as many at random as these have."""


def conditions(lines: list[str]) -> list[int]:
    """The lines of the conditions that have an `else`."""
    found, open_ = [], []
    for number, line in enumerate(lines):
        depth = len(line) - len(line.lstrip())
        open_ = [(other, at) for other, at in open_ if other < depth or (other == depth and line.strip() == "else:")]
        if line.strip() == "else:":
            found.append(open_.pop()[1])
        elif line.lstrip().startswith("if"):
            open_.append((depth, number))
    return found


def negate(line: str) -> str:
    """A line with its condition negated."""
    words = line.split(" ")
    return " ".join(NEGATED.get(word, word) for word in words)


def best_guess(program: Program, random: Random) -> float:
    """The share of the most frequent value among all ways to name the arms."""
    lines = format_program(program).splitlines()
    found = conditions(lines)
    ways = list(product((False, True), repeat=len(found))) if len(found) <= MOST else [
        tuple(random.random() < 0.5 for _ in found) for _ in range(2**MOST)
    ]  # fmt: skip
    values: Counter[int] = Counter()
    for way in ways:
        other = list(lines)
        for number, swapped in zip(found, way, strict=True):
            other[number] = negate(lines[number]) if swapped else lines[number]
        with suppress(ExecutionError):  # runs for too long
            values[execute(parse("\n".join(other)), max_steps=300_000).value] += 1
    return max(values.values(), default=0) / len(ways)


def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60, help="Programs of each length.")
    count, random, rows = parser.parse_args().count, Random(0), []
    for length in range(20, 101, 10):
        programs = build_test_recipe(lengths=(length,), count=count).table(0, count)
        share = np.array([best_guess(program, random) for program in programs])
        straight = np.array([not _loops(program) for program in programs])
        rows.append([share.mean(), (share * straight).mean(), straight.mean()])
        print(f"{length} lines: {_words(rows[-1])}", flush=True)
    print(f"all: {_words(np.mean(rows, 0).tolist())}")


def _loops(program: Program) -> bool:
    """Whether it executes one."""
    lines = format_program(program).splitlines()
    return any("while" in lines[step.line] for step in trace(program))


def _words(row: list[float]) -> str:
    best, straight, share = (100 * value for value in row)
    return f"{best:.1f}%, {straight:.1f}% from programs without an executed loop, which are {share:.1f}%"


if __name__ == "__main__":
    main()
