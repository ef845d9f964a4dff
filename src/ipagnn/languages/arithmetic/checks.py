"""Whether token ids spell programs of the language: what stands between anything from outside and compiled code.

Compiled code takes indices from tokens and does not test them. So every program that did not come out of the parser or
the sampler passes `check_programs` first: shards, Parquet files that users bring, and tables built in Python.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ipagnn.languages.arithmetic import vocabulary as v
from ipagnn.languages.arithmetic._compiled import check as c
from ipagnn.languages.arithmetic._compiled.check import find_problem
from ipagnn.languages.arithmetic._compiled.quick_check import is_surely_fine

REASONS: Final[dict[int, str]] = {
    c.EMPTY: "there is none; a program has at least one line",
    c.TOO_LONG: f"it is one too many; a program has at most {v.MAX_LINES:,} lines",
    c.BAD_INDENT: f"its indent is not one of the levels 0 to {v.MAX_NUMBER}",
    c.NO_BODY: "an `if`, `else` or `while` has no body, which stands one level deeper on the lines that follow",
    c.UNEXPECTED_INDENT: "it is indented deeper than the line above, and only `if`, `else` and `while` open a block",
    c.BAD_OPERATION: "its operation is none of the statements of the language",
    c.BAD_VARIABLE: f"its variable is not v0 to v{v.VARIABLES - 1}, or stands where the statement has none",
    c.BAD_OPERAND: f"its operand is not a number from 0 to {v.MAX_NUMBER}, or stands where the statement has none",
    c.LONE_ELSE: "`else` does not follow the body of an `if` of the same indentation",
    c.OUTSIDE_LOOP: "`break` and `continue` stand inside a `while` loop only",
    c.UNASSIGNED: "its variable is read before any line assigns it",
    c.NO_RESULT: "the program ends here and never assigns v0, which is its result",
    c.NOT_MASKED: "no line is masked, and the task is partial",
    c.MASKED: "a line is masked, and the task is full",
}
EXTENDED_REASONS: Final[dict[int, str]] = REASONS | {
    c.BAD_VARIABLE: f"its variable is not v0 to v{v.MAX_VARIABLES - 1}, or stands where the statement has none",
    c.BAD_OPERAND: f"its operand is not a number from 0 to {v.MAX_LITERAL} or a variable v0 to v{v.MAX_VARIABLES - 1}, "
    "or stands where the statement has none",
    c.UNASSIGNED: "it reads a variable before any line assigns it",
    c.NO_RESULT: "the program ends here and never assigns a variable",
}
_TASKS: Final = {None: c.ANY_TASK, "full": c.FULL, "partial": c.PARTIAL}


class InvalidProgramError(ValueError):
    """Token ids are no program of the language.

    Attributes:
        program: Index of the program in its table; None if the table itself is at fault.
        line: Index of the line in its program; None if no line is at fault.
        reason: What is wrong.
    """

    def __init__(self, reason: str, program: int | None = None, line: int | None = None) -> None:
        super().__init__(reason, program, line)
        self.program, self.line, self.reason = program, line, reason

    def __str__(self) -> str:
        if self.program is None:
            return f"{self.reason}."
        where = f"program {self.program}" if self.line is None else f"program {self.program}, line {self.line + 1}"
        return f"{where}: {self.reason}."


def check_programs(
    line_offsets: npt.NDArray[Any],
    line_tokens: npt.NDArray[Any],
    target: npt.NDArray[Any] | None = None,
    *,
    task: str | None = None,
    modulus: int | None = None,
    known: bool = False,
    extended: bool = False,
) -> None:
    """Refuse what is not made of programs of the language; what passes can be given to compiled code.

    Accepted is what the parser makes of some text. A million lines take about 2 ms.

    Args:
        line_offsets, line_tokens, target: As in `ProgramTable`.
        task: `full` or `partial`: no program may be masked, or every one must be; None takes both.
        modulus: Targets are below it; None takes all from -1 on.
        known: Whether every target must be known; if not, -1 stands for one that is not.
        extended: Whether statements of all grammars are accepted, not just those of the paper's language; and programs
            that never assign v0.

    Raises:
        InvalidProgramError: The first problem.
    """
    _check_arrays(line_offsets, line_tokens, target, extended)
    if line_tokens.shape[1] == 4 and is_surely_fine(line_offsets, packed(line_tokens), _TASKS[task]):
        program, line, problem = -1, -1, c.FINE
    else:
        program, line, problem = find_problem(line_offsets, line_tokens, _TASKS[task], extended)
    if problem != c.FINE:
        whole = problem in (c.EMPTY, c.MASKED, c.NOT_MASKED)
        raise InvalidProgramError(
            (EXTENDED_REASONS if extended else REASONS)[problem], program, None if whole else line
        )
    if target is not None:
        check_targets(target, modulus, known=known)


def packed(line_tokens: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Lines of four tokens, each as one number."""
    return np.ascontiguousarray(line_tokens).astype("<i2", copy=False).view(np.uint64).reshape(-1)


def check_targets(target: npt.NDArray[Any], modulus: int | None = None, *, known: bool = False) -> None:
    """Refuse targets that no program has; the arguments are those of `check_programs`."""
    least, most = (0 if known else -1), (np.iinfo(np.int64).max if modulus is None else modulus - 1)
    if len(target) and (target.min() < least or target.max() > most):
        which = int(np.flatnonzero((target < least) | (target > most))[0])
        unknown = "" if known else ", or -1 where it is unknown"
        raise InvalidProgramError(
            f"its target is {int(target[which])}; it must be a whole number from 0 to {most}{unknown}", which
        )


def _check_arrays(
    line_offsets: npt.NDArray[Any], line_tokens: npt.NDArray[Any], target: npt.NDArray[Any] | None, extended: bool
) -> None:
    """Types and shapes, and offsets that stay within the tokens."""
    for name, array, kind, dimensions in (
        ("line_offsets", line_offsets, np.int64, 1),
        ("line_tokens", line_tokens, np.int16, 2),
        *([] if target is None else [("target", target, np.int64, 1)]),
    ):
        if array.dtype != kind or array.ndim != dimensions:
            raise InvalidProgramError(
                f"{name} is {array.dtype} of {array.ndim} dimensions; it must be {np.dtype(kind)} of {dimensions}"
            )
    width = line_tokens.shape[1]
    if width != 4 and (not extended or width < 4):
        more = " or more" if extended else ""
        raise InvalidProgramError(f"line_tokens has {width} tokens a line; it must have 4{more}")
    rises = len(line_offsets) > 0 and line_offsets[0] == 0 and bool((np.diff(line_offsets) >= 0).all())
    if not rises or line_offsets[-1] != len(line_tokens):
        raise InvalidProgramError(f"line_offsets do not rise from 0 to the number of lines, {len(line_tokens)}")
    if target is not None and len(target) != len(line_offsets) - 1:
        raise InvalidProgramError(f"there are {len(target)} targets for {len(line_offsets) - 1} programs")
