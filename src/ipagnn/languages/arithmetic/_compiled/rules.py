"""What the compiled samplers read and work with: a grammar's rules, and the working memory of a thread."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ipagnn.languages.arithmetic import vocabulary as v


class Rules(NamedTuple):
    """A `Grammar` as compiled code reads it: ranges are split into a least value and a number of values."""

    modulus: int
    condition_modulus: int
    initial_least: int
    initial_values: int
    operand_least: int
    operand_values: int
    condition_least: int
    condition_values: int
    count_least: int
    count_values: int
    counters: int
    arithmetic: npt.NDArray[np.int16]
    conditions: npt.NDArray[np.int16]
    hole_stmt: int
    hole_block: int
    hole_stmts: int
    hole_stmts_nonempty: int
    stmt_pass: int
    stmt_arithmetic: int
    stmt_repeat: int
    stmt_if: int
    stmt_if_else: int
    block_break: int
    block_continue: int
    block_plain: int
    stmts_nonempty: int
    stmts_stmt: int
    stmts_nothing: int
    block_limit: int


class Scratch(NamedTuple):
    """Working memory of one thread for programs of up to a given length.

    Attributes:
        random: uint64 [2]; state of the generator.
        kind, depth, loops, following: int32 [element]; the linked list of lines and holes: what each is, its indent,
            the loops around it, and the element after it.
        holes: int32 [kind of hole, hole]; the open holes of each kind.
        counters: int32 [counter]; the counters, those in use first, outermost loop first.
        arithmetic_lines: int32 [line]; lines that could be masked, those that are masked first.
        hidden: int16 [line, token - 1]; what the masked lines said.
    """

    random: npt.NDArray[np.uint64]
    kind: npt.NDArray[np.int32]
    depth: npt.NDArray[np.int32]
    loops: npt.NDArray[np.int32]
    following: npt.NDArray[np.int32]
    holes: npt.NDArray[np.int32]
    counters: npt.NDArray[np.int32]
    arithmetic_lines: npt.NDArray[np.int32]
    hidden: npt.NDArray[np.int16]


def new_scratch(longest: int, tokens: int = 4) -> Scratch:
    """Working memory for programs of up to `longest` lines of so many tokens."""
    # At most every line is one element, and every line leaves at most one STMTS beside it (the statements before a
    # `break`, or after any other line).
    elements = 2 * longest + 2

    def column() -> npt.NDArray[np.int32]:
        return np.empty(elements, np.int32)

    holes: npt.NDArray[np.int32] = np.empty((4, elements), np.int32)
    counters: npt.NDArray[np.int32] = np.empty(v.VARIABLES, np.int32)
    random: npt.NDArray[np.uint64] = np.empty(2, np.uint64)
    hidden: npt.NDArray[np.int16] = np.empty((longest, tokens - 1), np.int16)
    lines: npt.NDArray[np.int32] = np.empty(longest, np.int32)
    return Scratch(random, column(), column(), column(), column(), holes, counters, lines, hidden)
