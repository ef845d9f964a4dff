"""Whether the targets of programs that came from outside are true."""

from typing import Final, NamedTuple

import numpy as np

from ipagnn.languages.arithmetic.grammar import Grammar
from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.languages.arithmetic.tables import masked_choices
from ipagnn.languages.arithmetic.targets import UNDECIDED, targets
from ipagnn.languages.arithmetic.vocabulary import MASK, NUMBER, VARIABLE

_AT_ONCE: Final = 4096


class WrongLabel(NamedTuple):
    """A program whose target is not its own.

    Attributes:
        program: Index in its table.
        reason: What is wrong.
    """

    program: int
    reason: str


def find_wrong_label(table: ProgramTable, grammar: Grammar) -> WrongLabel | None:
    """The first program whose target is not true, or None.

    The target of a complete program is computed. That of a program with one masked line must be the result of some
    statement that the grammar may have put there; programs with more masked lines, and masked ones
    of languages past the paper's, are passed over.
    """
    for first in range(0, len(table), _AT_ONCE):
        part = table.slice(first, min(first + _AT_ONCE, len(table)))
        masks = np.add.reduceat(part.line_tokens[:, 1] == MASK, part.line_offsets[:-1], dtype=np.int64)
        full, partial = np.flatnonzero(masks == 0), np.flatnonzero(masks == 1)
        true = targets(part.take(full), grammar)
        wrong = np.flatnonzero(true != part.target[full])
        if len(wrong):
            which, found = int(full[wrong[0]]), int(true[wrong[0]])
            is_what = "has no value, since it does not end" if found == UNDECIDED else f"has the value {found}"
            return WrongLabel(first + which, f"the target is {part.target[which]}, but the program {is_what}")
        if grammar.is_extended:
            continue
        reachable = _fillings(part.take(partial), grammar) == part.target[partial, None]
        wrong = np.flatnonzero(~reachable.any(axis=1))
        if len(wrong):
            which = int(partial[wrong[0]])
            reason = f"the target is {part.target[which]}, which no statement in the place of the mask gives"
            return WrongLabel(first + which, reason)
    return None


def _fillings(table: ProgramTable, grammar: Grammar) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """The targets of programs with one masked line, by what stands in its place. [program, statement]"""
    choices = masked_choices(grammar)
    filled = table.take(np.repeat(np.arange(len(table)), len(choices)))
    holes = np.flatnonzero(filled.line_tokens[:, 1] == MASK)
    operations, operands = np.tile(choices, (len(table), 1)).T
    filled.line_tokens[holes, 1], filled.line_tokens[holes, 2] = operations, VARIABLE
    filled.line_tokens[holes, 3] = NUMBER + operands
    return targets(filled, grammar).reshape(len(table), len(choices))
