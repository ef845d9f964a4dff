"""Running programs over automata of their statements, on numbers of as many digits as one likes up to 18."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ipagnn.languages.arithmetic._compiled.automata import run_all
from ipagnn.languages.arithmetic._compiled.graph import GRAPH_SCRATCH
from ipagnn.languages.arithmetic._compiled.tables import ENDS
from ipagnn.languages.arithmetic.automata import Automaton
from ipagnn.languages.arithmetic.cfg import control_flow_graph
from ipagnn.languages.arithmetic.program import Program, ProgramTable
from ipagnn.languages.arithmetic.statements import COMPARISON
from ipagnn.languages.arithmetic.table_run import TableStep
from ipagnn.languages.arithmetic.tables import statement_text
from ipagnn.languages.arithmetic.vocabulary import (
    ADD,
    ASSIGN,
    MAX_NUMBER,
    MULTIPLY,
    NUMBER,
    OPERATION,
    OPERATIONS,
    SUBTRACT,
    VARIABLE,
    VARIABLES,
)

MAX_PLACES: Final = 18
"""Digits of the largest numbers that fit 64 bits."""
MAX_STEPS: Final = 20_000_000
"""Statements after which a run is given up: about a second with 18 digits."""
GIVEN_UP: Final = -1
"""The value of a program that did not end."""
_CHUNK: Final = 64

Statement = tuple[int, int]
"""The id of an operation, and an operand."""


@dataclass(frozen=True, eq=False, slots=True)
class AutomataRun:
    """What running programs over automata gave.

    Attributes:
        value: v0 at the end; `GIVEN_UP` for a program that did not end. int64 [program]
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
    """The distinct statements of programs that an automaton is needed for, in order."""
    operations = np.array([ASSIGN, ADD, SUBTRACT, MULTIPLY, *COMPARISON])
    chosen = programs.line_tokens[np.isin(programs.line_tokens[:, 1], operations)].astype(np.int64)
    return [(o, k) for o, k in np.unique(chosen[:, [1, 3]] - [0, NUMBER], axis=0).tolist()]


def run_automata(
    automata: Mapping[Statement, Automaton],
    programs: ProgramTable,
    places: int,
    *,
    max_steps: int = MAX_STEPS,
    threads: int = 1,
) -> AutomataRun:
    """Run complete programs over automata, with hard digits and hard decisions.

    Args:
        automata: Of every statement of the programs; see `statements_of`.
        programs: Complete programs.
        places: Digits that variables have: arithmetic is modulo 10 to the power of this.
        max_steps: Statements after which a program is given up.
        threads: How many threads run programs; the result is the same for any number.

    Raises:
        ValueError: `places` is out of range, a statement has no automaton, or a line is masked.
    """
    _check(automata, programs, places)
    chosen = list(automata.items())
    starts = np.cumsum([0, *(len(automaton) for _, automaton in chosen)])
    first = np.full((len(OPERATIONS), MAX_NUMBER + 1), -1, np.int32)
    for ((operation, operand), _), start in zip(chosen, starts[:-1], strict=True):
        first[operation - OPERATION, operand] = start
    gives = np.concatenate([automaton.gives for _, automaton in chosen])
    goes = np.concatenate([automaton.goes + start for (_, automaton), start in zip(chosen, starts[:-1], strict=True)])
    stops = np.concatenate([automaton.stops for _, automaton in chosen])
    decides = np.isin(np.arange(OPERATION, OPERATION + len(OPERATIONS)), list(COMPARISON))
    count = len(programs)
    found = AutomataRun(
        np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int8), np.empty(count, np.int32)
    )

    def run(begin: int) -> None:
        end = min(begin + _CHUNK, count)
        longest = int(programs.lengths[begin:end].max())
        run_all(
            programs.line_offsets[begin : end + 1],
            programs.line_tokens,
            first,
            decides,
            gives,
            goes,
            stops,
            max_steps,
            np.empty((3, longest + 1), np.int32),
            np.empty((GRAPH_SCRATCH, longest + 1), np.int32),
            np.empty((VARIABLES, places), np.int64),
            np.empty((VARIABLES, places), np.int64),
            found.value[begin:end],
            found.steps[begin:end],
            found.status[begin:end],
            found.stopped[begin:end],
        )

    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(run, range(0, count, _CHUNK)):
            pass
    return found


def walk_automata(automata: Mapping[Statement, Automaton], program: Program, places: int) -> Iterator[TableStep]:
    """The steps of a complete program over automata, made as they are asked for; the plain form of `run_automata`.

    Raises:
        ValueError: As `run_automata`.
    """
    _check(automata, ProgramTable.from_programs([program]), places)
    graph = control_flow_graph(program)
    values = [0] * VARIABLES
    node = 0
    while node != graph.exit:
        _, operation, variable, number = graph.node_tokens[node].tolist()
        automaton = automata.get((operation, number - NUMBER))
        branch = None
        if automaton is not None:
            given = automaton.run(values[variable - VARIABLE], places)
            if automaton.decides:
                branch = bool(given)
            else:
                values[variable - VARIABLE] = given
        yield TableStep(int(graph.nodes[node]), branch, tuple(values), 1.0)
        node = int(graph.false[node] if branch is False else graph.true[node])


def _check(automata: Mapping[Statement, Automaton], programs: ProgramTable, places: int) -> None:
    if not 1 <= places <= MAX_PLACES:
        raise ValueError(f"places is {places}; numbers here have 1 to {MAX_PLACES} digits.")
    programs.check(task="full")
    lacking = [statement for statement in statements_of(programs) if statement not in automata]
    if lacking:
        raise ValueError(f"There is no automaton of `{statement_text(*lacking[0])}`, which the programs have; add it.")
