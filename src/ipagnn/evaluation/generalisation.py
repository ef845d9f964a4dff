"""Both generalisations at once: accuracy on longer programs with larger numbers than those of training."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ipagnn.evaluation.evaluate import evaluate
from ipagnn.languages.arithmetic import Lengths, Sampler
from ipagnn.models import ProgramModel

LENGTHS: Final = (10, 20, 50, 100, 200, 500, 1_000)
DIGITS: Final = (3, 5, 6, 9, 12, 15, 18)
SEED: Final = 11
LONGEST_TRACE: Final = 1_000_000
"""Statements that a program may execute; those that execute more are drawn again."""


@dataclass(frozen=True, eq=False, slots=True)
class Generalisation:
    """Accuracy by length of program and number of digits.

    Attributes:
        name: Of the model.
        lengths: Lines of programs.
        digits: Digits of values: results are modulo 10 to the power of this.
        accuracy: Share of right results. [digits, length]
        programs: How many programs each is of.
        trained_lines, trained_digits: Most lines and digits in training; None where that is not known.
    """

    name: str
    lengths: Sequence[int]
    digits: Sequence[int]
    accuracy: npt.NDArray[np.float64]
    programs: int
    trained_lines: int | None = None
    trained_digits: int | None = None


def measure_generalisation(
    model: ProgramModel,
    name: str,
    lengths: Sequence[int] = LENGTHS,
    digits: Sequence[int] = DIGITS,
    count: int = 200,
    *,
    trained_lines: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Generalisation:
    """Evaluate a model whose values are digits on programs of its language, with each number of digits.

    Args:
        model: A model that takes `digits`; see `ProgramModel.with_digits`.
        name: What it is called.
        lengths: Lines of programs.
        digits: Numbers of digits.
        count: Programs of each.
        trained_lines: Most lines of the programs of training, where that is known; added to `lengths`.
        progress: Called with the number of programs run so far.

    Raises:
        ValueError: The values of the model are no digits.
    """
    lengths = sorted({*lengths, *([] if trained_lines is None else [trained_lines])})
    accuracy = np.empty((len(digits), len(lengths)))
    for i, places in enumerate(digits):
        sized = model.with_digits(places).eval()
        for j, length in enumerate(lengths):
            sampler = Sampler("full", Lengths.exact(length), sized.config.grammar, SEED, trace_limit=LONGEST_TRACE)
            found = evaluate(sized, sampler.table(0, count, os.cpu_count() or 1))
            accuracy[i, j] = found.correct.mean()
            if progress is not None:
                progress(count * (i * len(lengths) + j + 1))
    return Generalisation(name, lengths, digits, accuracy, count, trained_lines, model.trained_digits)


def generalisation_of(summary: Mapping[str, Any], name: str, modulus: int) -> Generalisation:
    """The same from an evaluation of a model with one number of digits.

    Args:
        summary: As `evaluation.summary` makes it.
        name: What the model is called.
        modulus: Its modulus, a power of ten.
    """
    lengths = sorted(map(int, summary["by_length"]))
    rows = [summary["by_length"][str(length)] for length in lengths]
    accuracy = np.array([[row["accuracy"] for row in rows]])
    return Generalisation(name, lengths, [len(str(modulus)) - 1], accuracy, min(row["count"] for row in rows))
