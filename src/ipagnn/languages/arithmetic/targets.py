"""What a program of a language is to be answered with: its value, or the label of one that runs too long."""

from typing import Final

import numpy as np
import numpy.typing as npt

from ipagnn.languages.arithmetic._compiled.blocks import GIVEN_UP, block_starts
from ipagnn.languages.arithmetic._compiled.execute import execute_all, new_memory
from ipagnn.languages.arithmetic._compiled.targets import walk_all
from ipagnn.languages.arithmetic._compiled.walk import finish_all
from ipagnn.languages.arithmetic.cfg import control_flow_graph
from ipagnn.languages.arithmetic.chunks import Chunk, run_chunks
from ipagnn.languages.arithmetic.grammar import PAPER, Grammar
from ipagnn.languages.arithmetic.interpreter import MAX_STEPS, ExecutionError, StepLimitError, trace, value
from ipagnn.languages.arithmetic.program import Program, ProgramTable
from ipagnn.languages.arithmetic.vocabulary import MAX_VARIABLES

_CHUNK: Final = 1024
_WALKED: Final = 10_000
"""Steps that compiled code walks before the interpreter, which remembers loops, takes over."""
UNDECIDED: Final = -1
"""The target of a program that does not end, or not soon enough."""


def target(program: Program, grammar: Grammar = PAPER, max_steps: int = MAX_STEPS) -> int:
    """The target of any complete program, as the sampler gives it to those it draws.

    Args:
        program: The program.
        grammar: The language.
        max_steps: As in `execute`.

    Raises:
        ExecutionError: The program has a masked line or does not end.
    """
    result = value(
        program,
        grammar.modulus,
        grammar.condition_modulus,
        max_steps,
        wrap=grammar.wrap,
        variable=grammar.target_variable,
    )
    if not grammar.block_limit:
        return result
    graph = control_flow_graph(program)
    lines = np.append(graph.nodes, np.int32(len(program)))
    starts = frozenset(graph.nodes[block_starts(program.line_tokens, lines, graph.true, graph.false)].tolist())
    blocks = 0
    for step in trace(program, None, grammar.modulus, grammar.condition_modulus):
        blocks += step.line in starts
        if blocks > grammar.block_limit:
            return GIVEN_UP % grammar.modulus
    return result


def values_of(
    table: ProgramTable, modulus: int, condition_modulus: int = 10, threads: int = 1
) -> npt.NDArray[np.int64]:
    """The exact values of programs of the sampler's shape, at the rate of compiled code. int64 [program]

    A program that counts its loops down as the sampler's do is run in bounded time, however deep its loops are nested
    and however large the modulus. So the programs of one grammar can be evaluated modulo any number.

    Args:
        table: Complete programs that a `Sampler` may have drawn, see `membership.outside_grammar`; that they are
            programs is checked, and no more.
        modulus: What the values are taken modulo, at most 10**18.
        condition_modulus: The number after `%` in conditions; divides `modulus`.
        threads: How many threads compute.
    """
    Grammar(modulus=modulus, condition_modulus=condition_modulus)  # checks both
    table.check(task="full")
    values = np.empty(len(table), np.int64)

    def run(chunk: Chunk) -> None:
        memory = new_memory(chunk.longest, condition_modulus)
        execute_all(*chunk.lines, modulus, condition_modulus, *chunk.graph, memory, values[chunk.first : chunk.last])

    run_chunks(run, table, _CHUNK, threads)
    return values


def targets(table: ProgramTable, grammar: Grammar = PAPER, max_steps: int = MAX_STEPS) -> npt.NDArray[np.int64]:
    """The targets of all programs of a table, which need not be the sampler's; `UNDECIDED` where there is none.

    Args:
        table: Complete programs.
        grammar: The language.
        max_steps: As in `execute`, for each program.
    """
    table.check(task="full", extended=grammar.is_extended)
    found: npt.NDArray[np.int64] = walk_all(
        table.line_offsets, table.line_tokens, grammar.modulus, grammar.condition_modulus, grammar.block_limit,
        _WALKED, grammar.wrap, grammar.target_variable,
    )  # fmt: skip
    for i in np.flatnonzero(found == UNDECIDED).tolist():
        try:
            found[i] = target(table[i], grammar, max_steps)
        except ExecutionError:
            continue
    return found


def final_values(table: ProgramTable, grammar: Grammar, threads: int = 1) -> npt.NDArray[np.int64]:
    """The values of all variables at the end of programs of a grammar, modulo its modulus. int64 [program, variable]

    Any of the data variables, the first `grammar.variables`, may serve as target.

    Args:
        table: Complete programs that a `Sampler` of the grammar may have drawn; that they are programs is checked, and
            no more.
        grammar: The language.
        threads: How many threads compute.

    Raises:
        StepLimitError: A program executes more than `MAX_STEPS` statements.
    """
    table.check(task="full", extended=True)
    values = np.empty((len(table), MAX_VARIABLES), np.int64)

    reduced = MAX_VARIABLES if grammar.wrap else grammar.variables

    def run(chunk: Chunk) -> None:
        failed = finish_all(
            *chunk.lines, grammar.modulus, grammar.condition_modulus, reduced, MAX_STEPS, *chunk.graph,
            values[chunk.first : chunk.last],
        )  # fmt: skip
        if failed >= 0:
            failed += chunk.first
            raise StepLimitError(1, f"program {failed} of the table was given up after {MAX_STEPS:,} steps.")

    run_chunks(run, table, _CHUNK, threads)
    return values[:, : grammar.counter_names.stop]
