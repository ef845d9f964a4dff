"""Learning what a masked line may have been, from partial programs and their final values."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.languages.arithmetic.table_run import ENDS, run_tables
from ipagnn.languages.arithmetic.tables import ValueTables
from ipagnn.languages.arithmetic.vocabulary import MASK, NUMBER, VARIABLE


def fit_mask_weights(tables: ValueTables, programs: ProgramTable, *, rounds: int = 200) -> npt.NDArray[np.float64]:
    """The weights of statements under which partial programs are likeliest to end with their targets.

    Over tables, a program with its mask filled either ends with its target or does not. What is left to learn are the
    weights of a mixture, by expectation maximisation. `EnvIPAGNN.mask_weights` takes their logarithm.

    Args:
        tables: What the statements do. Their `weights` are where learning starts.
        programs: Each with one masked line, and a target.
        rounds: How often the weights are improved.

    Returns:
        The probability of each of `tables.choices`.

    Raises:
        ValueError: A program has not one masked line, or no filling explains any target.
    """
    masked = programs.line_tokens[:, 1] == MASK
    counts = np.add.reduceat(masked, programs.line_offsets[:-1], dtype=np.int64) if len(programs) else masked[:0]
    if not len(programs) or (counts != 1).any():
        raise ValueError("Weights of masked lines are learned from programs with one masked line each; give such.")
    explains = np.zeros((len(programs), len(tables.choices)), np.bool_)
    for i, (operation, operand) in enumerate(tables.choices.tolist()):
        tokens = programs.line_tokens.copy()
        tokens[masked, 1:] = operation, VARIABLE, NUMBER + operand
        run = run_tables(tables, replace(programs, line_tokens=tokens))
        explains[:, i] = (run.status == ENDS) & (run.value == programs.target)
    explained = explains[explains.any(axis=1)]
    if not len(explained):
        raise ValueError("No statement in the place of a mask gives any of the targets; are they of these programs?")
    weights = tables.weights.copy()
    for _ in range(rounds):
        share = explained * weights
        total = share.sum(axis=1, keepdims=True)
        weights = (share / np.where(total > 0, total, 1)).sum(axis=0)
        weights /= weights.sum()
    return weights
