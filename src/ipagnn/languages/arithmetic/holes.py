"""The exact ceiling of the partial task: how often the best possible guess is right.

The masked line is an arithmetic statement that the grammar drew uniformly, and which line is masked does not depend on
what it says; so given the rest of the program, each of the grammar's statements (27 in the paper's) is as likely as any
other. Whoever executes perfectly can do no better than to try them all and name the likeliest result. Of results that
are equally likely the smallest is named; this changes nothing about how often it is right.
"""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ipagnn.languages.arithmetic._compiled.execute import EXECUTE_SCRATCH, new_memo
from ipagnn.languages.arithmetic._compiled.graph import GRAPH_SCRATCH
from ipagnn.languages.arithmetic._compiled.holes import fill_holes, likeliest
from ipagnn.languages.arithmetic.grammar import PAPER, Grammar
from ipagnn.languages.arithmetic.interpreter import MAX_STEPS
from ipagnn.languages.arithmetic.program import Program, ProgramTable
from ipagnn.languages.arithmetic.targets import target
from ipagnn.languages.arithmetic.vocabulary import NUMBER, OPERATION_ID, VARIABLE, VARIABLES

_CHUNK: Final = 64


@dataclass(frozen=True, eq=False, slots=True)
class Ceiling:
    """What the best guess achieves on the programs of a table.

    Attributes:
        lengths: int64 [program]; lines of each program.
        guess: int32 [program]; the likeliest result, the smallest of several.
        probability: float64 [program]; that this is the result.
        correct: bool [program]; whether it is the target.
    """

    lengths: npt.NDArray[np.int64]
    guess: npt.NDArray[np.int32]
    probability: npt.NDArray[np.float64]
    correct: npt.NDArray[np.bool_]

    @property
    def accuracy(self) -> float:
        """Expected accuracy of the best guess over all programs."""
        return float(self.probability.mean())

    @property
    def by_length(self) -> dict[int, float]:
        """Expected accuracy of the best guess at each length."""
        return self._by_length(self.probability)

    @property
    def correct_by_length(self) -> dict[int, float]:
        """Share of the targets that the best guess hits at each length."""
        return self._by_length(self.correct.astype(np.float64))

    def _by_length(self, values: npt.NDArray[np.float64]) -> dict[int, float]:
        return {int(n): float(values[self.lengths == n].mean()) for n in np.unique(self.lengths)}


def ceiling(table: ProgramTable, grammar: Grammar = PAPER, threads: int = 1) -> Ceiling:
    """The ceiling of the partial task on programs of the sampler.

    Args:
        table: At least one program, each with one masked line.
        grammar: The language that they were drawn from.
        threads: How many threads compute; the result is the same for any number.
    """
    if not len(table):
        raise ValueError("There are no programs to find the ceiling of; give at least one.")
    statements = _statements(grammar)
    values = np.empty((len(table), len(statements)), np.int32)

    def fill(first: int) -> None:
        last = min(first + _CHUNK, len(table))
        longest = int(table.lengths[first:last].max())
        failed = fill_holes(
            table.line_offsets[first : last + 1],
            table.line_tokens,
            statements[:, 1].copy(),
            statements[:, 3].copy(),
            grammar.modulus,
            grammar.condition_modulus,
            grammar.block_limit,
            np.empty((longest, 4), np.int16),
            np.empty((3, longest + 1), np.int32),
            np.empty((GRAPH_SCRATCH, longest + 1), np.int32),
            new_memo(longest, grammar.modulus),
            np.empty((EXECUTE_SCRATCH, VARIABLES), np.int64),
            values[first:last],
        )
        if failed >= 0:
            found = len(table[first + failed].masked_lines)
            raise ValueError(
                f"Program {first + failed} of the table has {found} masked lines; the ceiling is that of the partial "
                "task, whose programs have one."
            )

    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(fill, range(0, len(table), _CHUNK)):
            pass
    guess, count = np.empty(len(table), np.int32), np.empty(len(table), np.int32)
    likeliest(values, grammar.modulus, guess, count)
    return Ceiling(table.lengths, guess, count / len(statements), guess == table.target)


def hole_distribution(program: Program, grammar: Grammar = PAPER, max_steps: int = MAX_STEPS) -> dict[int, float]:
    """The distribution of a partial program's result, likeliest first and of equals the smallest.

    Works on any program of the language, not just on the sampler's.

    Args:
        program: A program with one masked line.
        grammar: The language, which says what the masked line may be.
        max_steps: What each of the fillings may take, as in `execute`.

    Returns:
        The probability of each result that some statement in the hole gives.

    Raises:
        ExecutionError: With one of the statements in its hole, the program does not end.
    """
    holes = program.masked_lines
    if len(holes) != 1:
        raise ValueError(f"The program has {len(holes)} masked lines; its result has a distribution if it has one.")
    statements = _statements(grammar)
    results: Counter[int] = Counter()
    for statement in statements:
        tokens = program.line_tokens.copy()
        tokens[holes[0], 1:] = statement[1:]
        results[target(Program(tokens), grammar, max_steps)] += 1
    ranked = sorted(results.items(), key=lambda item: (-item[1], item[0]))
    return {result: count / len(statements) for result, count in ranked}


def _statements(grammar: Grammar) -> npt.NDArray[np.int16]:
    """The grammar's arithmetic statements, int16 [statement, token], all equally likely."""
    least, largest = grammar.operands
    return np.array(
        [
            (NUMBER, OPERATION_ID[operation], VARIABLE, NUMBER + operand)
            for operation in grammar.arithmetic_operations
            for operand in range(least, largest + 1)
        ],
        np.int16,
    )
