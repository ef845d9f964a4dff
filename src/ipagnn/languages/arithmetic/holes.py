"""The exact ceiling of the partial task: how often the best possible guess is right.

A masked line is an arithmetic statement that the grammar drew uniformly, and which lines are masked does not depend on
what they say; so given the rest of the program, each of the grammar's statements (27 in the paper's) is as likely as
any other in each of them. Whoever executes perfectly can do no better than to try all fillings and name the likeliest
result. Of results that are equally likely the smallest is named; this changes nothing about how often it is right.

Fillings of one and two masked lines are all tried. Of more, which are too many, random ones are, from a seed.
"""

import random
from collections import Counter
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
import numpy.typing as npt

from ipagnn._common.time_limit import check_time
from ipagnn.languages.arithmetic._compiled.execute import new_memory
from ipagnn.languages.arithmetic._compiled.holes import best_guesses
from ipagnn.languages.arithmetic.chunks import Chunk, run_chunks
from ipagnn.languages.arithmetic.grammar import PAPER, Grammar
from ipagnn.languages.arithmetic.interpreter import MAX_STEPS
from ipagnn.languages.arithmetic.program import Program, ProgramTable
from ipagnn.languages.arithmetic.targets import target
from ipagnn.languages.arithmetic.vocabulary import NUMBER, OPERATION_ID, VARIABLE

SAMPLES: Final = 10_000
"""Random fillings that a guess is made from, and as many that it is tried on, where not all are tried."""
_CHUNK: Final = 64


@dataclass(frozen=True, eq=False, slots=True)
class Ceiling:
    """What the best guess achieves on the programs of a table.

    Attributes:
        lengths: int64 [program]; lines of each program.
        guess: int64 [program]; the likeliest result, the smallest of several.
        probability: float64 [program]; that this is the result. Where not all fillings were tried, the guess comes from
            some random fillings and its probability from others, so that it is not overestimated.
        stderr: float64 [program]; standard error of `probability`, 0 where all fillings were tried.
        correct: bool [program]; whether the guess is the target.
    """

    lengths: npt.NDArray[np.int64]
    guess: npt.NDArray[np.int64]
    probability: npt.NDArray[np.float64]
    stderr: npt.NDArray[np.float64]
    correct: npt.NDArray[np.bool_]

    @property
    def accuracy(self) -> float:
        """Expected accuracy of the best guess over all programs."""
        return float(self.probability.mean())

    @property
    def by_length(self) -> dict[int, float]:
        """Expected accuracy of the best guess at each length."""
        return {int(n): float(self.probability[self.lengths == n].mean()) for n in np.unique(self.lengths)}


def ceiling(
    table: ProgramTable, grammar: Grammar = PAPER, threads: int = 1, *, samples: int = SAMPLES, seed: int = 0
) -> Ceiling:
    """The ceiling of the partial task on programs of the sampler.

    Args:
        table: At least one program, each with one masked line or more.
        grammar: The language that they were drawn from.
        threads: How many threads compute; the result is the same for any number.
        samples: Random fillings for the guess, and as many for its probability, of a program with three masked lines or
            more and more than twice as many fillings.
        seed: Decides the random fillings.
    """
    if not len(table):
        raise ValueError("There are no programs to find the ceiling of; give at least one.")
    statements = _statements(grammar)
    table.check()
    guess, fillings = np.empty((2, len(table)), np.int64)
    probability = np.empty(len(table), np.float64)

    operations, operands = statements[:, 1].copy(), statements[:, 3].copy()

    def fill(chunk: Chunk) -> None:
        here = slice(chunk.first, chunk.last)
        failed = best_guesses(
            *chunk.lines, operations, operands, samples, np.uint64(seed), np.uint64(chunk.first),
            grammar.modulus, grammar.condition_modulus, grammar.block_limit,
            np.empty((chunk.longest, 4), np.int16), *chunk.graph, new_memory(chunk.longest, grammar.condition_modulus),
            guess[here], probability[here], fillings[here],
        )  # fmt: skip
        if failed >= 0:
            raise ValueError(
                f"Program {chunk.first + failed} of the table has 0 masked lines; the ceiling is that of the partial "
                "task, whose programs have one or more."
            )

    run_chunks(fill, table, _CHUNK, threads)
    stderr = np.sqrt(probability * (1 - probability) / np.maximum(fillings, 1)) * (fillings > 0)
    return Ceiling(table.lengths, guess, probability, stderr, guess == table.target)


@dataclass(frozen=True, slots=True)
class HoleDistribution:
    """The distribution of a partial program's result.

    Attributes:
        probabilities: The probability of each result, likeliest first and of equals the smallest.
        samples: Random fillings that they are shares of; 0 where all fillings were tried.
    """

    probabilities: dict[int, float]
    samples: int = 0

    def stderr(self, result: int) -> float:
        """Standard error of the probability of `result`; 0 where all fillings were tried."""
        share = self.probabilities.get(result, 0.0)
        return (share * (1 - share) / self.samples) ** 0.5 if self.samples else 0.0


def hole_distribution(
    program: Program, grammar: Grammar = PAPER, max_steps: int = MAX_STEPS, *, samples: int = 2_000, seed: int = 0
) -> HoleDistribution:
    """The distribution of a partial program's result over all fillings of its masked lines.

    Works on any program of the language, not just on the sampler's.

    Args:
        program: A program with one masked line or more.
        grammar: The language, which says what a masked line may be.
        max_steps: Steps that each filling of a program with one masked line may take, as in `execute`. Programs with
            more masked lines have more fillings, and each may take accordingly fewer.
        samples: Random fillings of a program with three masked lines or more, if it has more than these.
        seed: Decides the random fillings.

    Raises:
        ExecutionError: With one of the fillings, the program does not end.
    """
    holes = program.masked_lines
    if not holes:
        raise ValueError("The program has 0 masked lines; its result has a distribution if it has one or more.")
    statements = _statements(grammar)
    exact = len(holes) <= 2 or len(statements) ** len(holes) <= samples
    count = len(statements) ** len(holes) if exact else samples
    generator = random.Random(seed)
    choices = range(len(statements))
    fillings = (
        product(choices, repeat=len(holes))
        if exact
        else (tuple(generator.choices(choices, k=len(holes))) for _ in range(samples))
    )
    limit = max(1, max_steps * len(statements) // count)
    results: Counter[int] = Counter()
    for filling in fillings:
        check_time()
        tokens = program.line_tokens.copy()
        tokens[list(holes), 1:] = statements[list(filling), 1:]
        results[target(Program(tokens), grammar, limit)] += 1
    ranked = sorted(results.items(), key=lambda item: (-item[1], item[0]))
    return HoleDistribution({result: hits / count for result, hits in ranked}, 0 if exact else samples)


def _statements(grammar: Grammar) -> npt.NDArray[np.int16]:
    """The grammar's arithmetic statements, int16 [statement, token], all equally likely."""
    if grammar.is_extended:
        raise ValueError(
            "In languages past the paper's, a masked line may be any of too many statements to try them all. Give "
            "complete programs, or choose a language of v0 and numbers of at most three digits."
        )
    least, largest = grammar.operands
    return np.array(
        [
            (NUMBER, OPERATION_ID[operation], VARIABLE, NUMBER + operand)
            for operation in grammar.arithmetic_operations
            for operand in range(least, largest + 1)
        ],
        np.int16,
    )
