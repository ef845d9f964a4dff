"""Running programs over automata of their statements, on numbers of as many digits as one likes up to 18."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ipagnn.languages.arithmetic._compiled.automata import run_all
from ipagnn.languages.arithmetic._compiled.tables import ENDS
from ipagnn.languages.arithmetic.automata import DIGITS, Automaton, Statement
from ipagnn.languages.arithmetic.cfg import control_flow_graph
from ipagnn.languages.arithmetic.chunks import Chunk, run_chunks
from ipagnn.languages.arithmetic.program import Program, ProgramTable
from ipagnn.languages.arithmetic.statements import COMPARISON
from ipagnn.languages.arithmetic.table_run import TableStep
from ipagnn.languages.arithmetic.tables import statement_text
from ipagnn.languages.arithmetic.vocabulary import (
    ASSIGNMENT_IDS,
    BASE,
    MASK,
    MAX_NUMBER,
    MAX_VARIABLES,
    MULTIPLY,
    NUMBER,
    OPERATION,
    OPERATIONS,
    VARIABLE,
    VARIABLES,
    VOCABULARY_SIZE,
    variable_of,
)

MAX_PLACES: Final = 18
"""Digits of the largest numbers that fit 64 bits."""
MAX_STEPS: Final = 20_000_000
"""Statements after which a run is given up: about a second with 18 digits."""
GIVEN_UP: Final = -1
"""The value of a program that did not end."""
_CHUNK: Final = 64


@dataclass(frozen=True, eq=False, slots=True)
class AutomataRun:
    """What running programs over automata gave.

    Attributes:
        value: v0, or the variable that was asked for, at the end; `GIVEN_UP` for a program that did not end. int64
            [program]
        steps: Statements executed. int64 [program]
        status: `ENDS`, or why a run did not end: `ENDLESS` if it comes back to where it was with the values that it
            had, `GAVE_UP` if it took too many steps (see `table_run`). int8 [program]
        stopped: The line where a run was that did not end, counted from 0; else -1. int32 [program]
    """

    value: npt.NDArray[np.int64]
    steps: npt.NDArray[np.int64]
    status: npt.NDArray[np.int8]
    stopped: npt.NDArray[np.int32]

    @property
    def ended(self) -> npt.NDArray[np.bool_]:
        """Which runs came to an end. [program]"""
        ended: npt.NDArray[np.bool_] = self.status == ENDS
        return ended


def statements_of(programs: ProgramTable) -> list[Statement]:
    """The distinct statements of programs that an automaton is needed for, in order.

    An operation that has a variable or a number above 999 on its right has one automaton over pairs of digits, for all
    its operands; but `*=` for operands of one digit only.
    """
    return statements_by_line(programs)[0]


def statements_by_line(
    programs: ProgramTable,
) -> tuple[list[Statement], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """These statements; by line which one it is, -1 for none; and its number, or -1 - k for a variable vk."""
    tokens = programs.line_tokens.astype(np.int64)
    operation, right = tokens[:, 1], tokens[:, 3]
    chosen = np.isin(operation, [*ASSIGNMENT_IDS, *COMPARISON])
    variable = right - np.where(right < MASK, VARIABLE, VOCABULARY_SIZE - VARIABLES)
    number = (np.maximum(tokens[:, 3:] - NUMBER, 0) * BASE ** np.arange(tokens.shape[1] - 3)).sum(axis=1)
    operand = np.where(right >= VARIABLE, -1 - variable, number)
    large = (operand > MAX_NUMBER) & (operation != MULTIPLY)
    paired = np.isin(operation, operation[chosen & ((operand < 0) | large)])
    paired &= (operation != MULTIPLY) | (operand < DIGITS)
    keys = np.stack([operation, np.where(paired, -1, operand)], axis=1)[chosen]
    distinct, which = np.unique(keys, axis=0, return_inverse=True)
    statement = np.full(len(tokens), -1, np.int64)
    statement[chosen] = which.reshape(-1)
    return [(o, None if k < 0 else k) for o, k in distinct.tolist()], statement, operand


def run_automata(
    automata: Mapping[Statement, Automaton],
    programs: ProgramTable,
    places: int,
    *,
    max_steps: int = MAX_STEPS,
    threads: int = 1,
    variable: int = 0,
) -> AutomataRun:
    """Run complete programs over automata, with hard digits and hard decisions.

    Args:
        automata: Of every statement of the programs; see `statements_of`.
        programs: Complete programs.
        places: Digits that variables have: arithmetic is modulo 10 to the power of this.
        max_steps: Statements after which a program is given up.
        threads: How many threads run programs; the result is the same for any number.
        variable: The variable whose value is the result.

    Raises:
        ValueError: `places` is out of range, a statement has no automaton, or a line is masked.
    """
    needed, statement, operand = _check(automata, programs, places)
    # All automata one after the other, entry by entry; a state is known by its first entry.
    chosen = [automata[each] for each in needed]
    starts = np.cumsum([0, *(automaton.gives.size for automaton in chosen)])
    gives = np.concatenate([automaton.gives.ravel() for automaton in chosen])
    goes = np.concatenate(
        [automaton.goes.ravel() * automaton.symbols + at for automaton, at in zip(chosen, starts, strict=False)]
    )
    first = starts[statement]
    stops = np.concatenate([automaton.stops.ravel() for automaton in chosen])
    pairs = np.array([automaton.operand is None for automaton in chosen])[statement]
    decides = np.isin(np.arange(OPERATION, OPERATION + len(OPERATIONS)), list(COMPARISON))
    count = len(programs)
    found = AutomataRun(
        np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int8), np.empty(count, np.int32)
    )

    def run(chunk: Chunk) -> None:
        here = slice(chunk.first, chunk.last)
        run_all(
            *chunk.lines, first, pairs, operand, decides, gives, goes, stops, variable, max_steps, *chunk.graph,
            np.empty((MAX_VARIABLES, places), np.int64), np.empty((MAX_VARIABLES, places), np.int64),
            found.value[here], found.steps[here], found.status[here], found.stopped[here],
        )  # fmt: skip

    run_chunks(run, programs, _CHUNK, threads)
    return found


def walk_automata(automata: Mapping[Statement, Automaton], program: Program, places: int) -> Iterator[TableStep]:
    """The steps of a complete program over automata, made as they are asked for; the plain form of `run_automata`.

    Raises:
        ValueError: As `run_automata`.
    """
    needed, statement, operands = _check(automata, ProgramTable.from_programs([program]), places)
    graph = control_flow_graph(program)
    values = [0] * (VARIABLES if program.line_tokens[:, 2:4].max() <= MASK else MAX_VARIABLES)
    node = 0
    while node != graph.exit:
        line, branch = int(graph.nodes[node]), None
        if statement[line] >= 0:
            automaton, operand = automata[needed[statement[line]]], int(operands[line])
            variable = variable_of(int(program.line_tokens[line, 2]))
            given = automaton.run(values[variable], places, values[-1 - operand] if operand < 0 else operand)
            if automaton.decides:
                branch = bool(given)
            else:
                values[variable] = given
        yield TableStep(line, branch, tuple(values), 1.0)
        node = int(graph.false[node] if branch is False else graph.true[node])


def _check(
    automata: Mapping[Statement, Automaton], programs: ProgramTable, places: int
) -> tuple[list[Statement], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """What `statements_by_line` says of programs that these automata can run."""
    if not 1 <= places <= MAX_PLACES:
        raise ValueError(f"places is {places}; numbers here have 1 to {MAX_PLACES} digits.")
    programs.check(task="full", extended=True)
    needed, statement, operand = statements_by_line(programs)
    lacking = [each for each in needed if each not in automata]
    if lacking:
        raise ValueError(f"There is no automaton of `{statement_text(*lacking[0])}`, which the programs have; add it.")
    return needed, statement, operand
