"""Draws programs from a grammar: as many as wanted, the same for the same seed on any machine."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
from numba import njit

from ipagnn.languages.arithmetic._compiled.blocks import GIVEN_UP, block_starts, exceeds_blocks
from ipagnn.languages.arithmetic._compiled.execute import execute, new_memory
from ipagnn.languages.arithmetic._compiled.extended import Extension, draw_extended
from ipagnn.languages.arithmetic._compiled.graph import GRAPH_SCRATCH, control_flow, static_steps
from ipagnn.languages.arithmetic._compiled.hash import is_withheld, program_hash
from ipagnn.languages.arithmetic._compiled.random import seed_stream
from ipagnn.languages.arithmetic._compiled.rules import Rules, new_scratch
from ipagnn.languages.arithmetic._compiled.sampler import (
    MAX_ATTEMPTS,
    complete_lines,
    draw_length,
    draw_lengths,
    draw_program,
    mask_lines,
)
from ipagnn.languages.arithmetic._compiled.walk import walk
from ipagnn.languages.arithmetic.grammar import MAX_LENGTH, PAPER, Grammar, Lengths
from ipagnn.languages.arithmetic.program import Program, ProgramKind, ProgramTable
from ipagnn.languages.arithmetic.vocabulary import MAX_VARIABLES, OPERATION_ID

CHUNK: Final = 4096
"""Programs that a thread draws at a time."""
TRAINING: Final = Lengths.training(10)
"""The lengths of the paper's training programs."""
MAX_TRACE: Final = 100_000
"""Statements that a program of a grammar past the paper's language executes at most; others are drawn again."""
END: Final = 2**63
"""Indices of programs stay below this."""


@dataclass(frozen=True)
class Sampler:
    """An endless stream of programs; program `i` depends on the fields below and `i`, and on nothing else.

    Safe to share between threads: all working memory belongs to the call.

    Attributes:
        task: Full programs, or programs with arithmetic lines masked.
        lengths: The distribution of their lengths.
        grammar: The language.
        seed: Which stream; any integer from 0 to 2**64 - 1.
        withheld: False draws only programs that may be trained on, True only those withheld from training (see
            `hash_kernels`), None all programs. Lengths keep their distribution: a program on the wrong side is drawn
            again with the same length.
        trace_limit: Programs that execute more statements than this are drawn again in the same way; 0 keeps them, but
            for grammars past the paper's language stands for `MAX_TRACE`.
        masked_lines: How many lines of a partial program are masked; all choices of that many are equally likely.
    """

    task: ProgramKind = "full"
    lengths: Lengths = TRAINING
    grammar: Grammar = PAPER
    seed: int = 0
    withheld: bool | None = None
    trace_limit: int = 0
    masked_lines: int = 1

    def __post_init__(self) -> None:
        if self.task not in ("full", "partial"):
            raise ValueError(f"The task is {self.task!r}; it must be 'full' or 'partial'.")
        if not isinstance(self.seed, int) or not 0 <= self.seed < 2**64:
            raise ValueError(f"The seed is {self.seed!r}; it must be a whole number from 0 to 2**64 - 1.")
        if not isinstance(self.trace_limit, int) or self.trace_limit < 0:
            raise ValueError(f"The trace limit is {self.trace_limit!r}; it must be a whole number, 0 for none.")
        if not isinstance(self.masked_lines, int) or not 1 <= self.masked_lines < MAX_LENGTH:
            raise ValueError(
                f"masked_lines is {self.masked_lines!r}; it must be a whole number from 1 to {MAX_LENGTH - 1}, the "
                "lines that are masked in each program of the partial task."
            )
        if self.masked_lines > 1 and self.task == "full":
            raise ValueError(
                f"masked_lines is {self.masked_lines} and the task is 'full', whose programs have no masked line; "
                "choose the task 'partial'."
            )

    def table(self, start: int, count: int, threads: int = 1) -> ProgramTable:
        """The programs `start:start + count` with their targets.

        Args:
            start: Index of the first program.
            count: How many programs.
            threads: How many threads draw them; the result is the same for any number.
        """
        if start < 0 or count < 0 or start + count > END or threads < 1:
            raise ValueError(
                f"{count} programs from index {start} on {threads} threads were asked for; start and count must be 0 "
                "or more with a sum up to 2**63, and threads 1 or more."
            )
        lengths, totals = self._distribution
        # A program's length is the first thing drawn, so offsets are known before any program is, and all threads can
        # write to one table.
        offsets: npt.NDArray[np.int64] = np.zeros(count + 1, np.int64)
        draw_lengths(np.uint64(self.seed), np.uint64(start), lengths, totals, np.empty(2, np.uint64), offsets[1:])
        np.cumsum(offsets, out=offsets)
        table = ProgramTable(
            offsets, np.empty((int(offsets[-1]), self.grammar.tokens), np.int16), np.empty(count, np.int64)
        )
        firsts = range(0, count, CHUNK)
        if threads == 1 or len(firsts) < 2:
            for first in firsts:
                self._fill(table, start, first)
        else:
            with ThreadPoolExecutor(min(threads, len(firsts))) as pool:
                for _ in pool.map(lambda first: self._fill(table, start, first), firsts):
                    pass
        return table

    def program(self, index: int) -> tuple[Program, int]:
        """Program `index` and its target: v0 modulo the modulus at the end, before any line was masked."""
        table = self.table(index, 1)
        return table[0], int(table.target[0])

    @property
    def _masks(self) -> int:
        return self.masked_lines if self.task == "partial" else 0

    @cached_property
    def _distribution(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        return np.array(self.lengths.lengths, np.int64), np.cumsum(self.lengths.weights, dtype=np.int64)

    @cached_property
    def _rules(self) -> Rules:
        g = self.grammar

        def spread(bounds: tuple[int, int]) -> tuple[int, int]:
            return bounds[0], bounds[1] - bounds[0] + 1

        return Rules(
            g.modulus,
            g.condition_modulus,
            *(spread(g.initial_values) if not g.is_extended else (0, 1)),
            *(spread(g.operands) if not g.is_extended else (0, 1)),
            *spread(g.condition_operands),
            *spread(g.loop_counts),
            g.counters,
            np.array([OPERATION_ID[name] for name in g.arithmetic_operations], np.int16),
            np.array([OPERATION_ID[f"if {name} %"] for name in g.comparisons], np.int16),
            *(g.hole_stmt, g.hole_block, g.hole_stmts, g.hole_stmts_nonempty),
            *(g.stmt_pass, g.stmt_arithmetic + g.stmt_assign, g.stmt_repeat, g.stmt_if, g.stmt_if_else),
            *(g.block_break, g.block_continue, g.block_plain),
            *(g.stmts_nonempty, g.stmts_stmt, g.stmts_nothing),
            g.block_limit,
        )

    @cached_property
    def _extension(self) -> Extension:
        g = self.grammar
        factors = g.operands if g.factors == (0, 0) else g.factors
        return Extension(
            g.variables,
            g.target_variable,
            g.variables - g.digit_variables,
            g.operand_number,
            g.operand_variable,
            g.condition_number,
            g.condition_variable,
            g.stmt_assign,
            g.by_digits,
            np.array(g.initial_values, np.int64),
            np.array(g.operands, np.int64),
            np.array(factors, np.int64),
            np.array([OPERATION_ID[f"if {name}"] for name in g.comparisons], np.int16),
        )

    def _fill(self, table: ProgramTable, start: int, first: int) -> None:
        """Draw the programs of one chunk into `table`, whose first program is number `start`."""
        last = min(first + CHUNK, len(table))
        longest = self.lengths.longest
        grammar = self.grammar
        arguments = (
            np.uint64(self.seed),
            np.uint64(start + first),
            *self._distribution,
            self._rules,
            self._masks,
            -1 if self.withheld is None else int(self.withheld),
            self.trace_limit,
            table.line_offsets[first : last + 1],
            table.line_tokens,
            table.target[first:last],
            new_scratch(longest, grammar.tokens),
            np.empty((3, longest + 1), np.int32),
            np.empty((GRAPH_SCRATCH, longest + 1), np.int32),
        )
        if grammar.is_extended:
            reduced = MAX_VARIABLES if grammar.wrap else grammar.variables
            failed = _fill_extended(*arguments, self._extension, reduced, np.empty(MAX_VARIABLES, np.int64))
        else:
            failed = _fill_chunk(*arguments, new_memory(longest, grammar.condition_modulus))
        if failed >= 0:
            length = table.line_offsets[first + failed + 1] - table.line_offsets[first + failed]
            what = (
                ("", " with a line to mask")[self._masks] if self._masks < 2 else f" with {self._masks} lines to mask"
            )
            if self.withheld is not None:
                what += " withheld from training" if self.withheld else " that may be trained on"
            if self.trace_limit:
                what += f" and at most {self.trace_limit} statements to execute"
            raise ValueError(
                f"{MAX_ATTEMPTS:,} attempts made no program of {length} lines{what}: this grammar hardly reaches it; "
                "choose another length, or raise the weights that lead there."
            )


@njit(cache=True, nogil=True)
def _fill_chunk(  # type: ignore[no-untyped-def]
    seed, start, lengths, totals, rules, masks, withheld, trace_limit, offsets, tokens, target, scratch, graph,
    graph_scratch, memory,
):  # fmt: skip
    """Draw, run and mask the programs of one chunk; returns which one could not be drawn, or -1."""
    node_lines, true, false = graph[0], graph[1], graph[2]
    masked, hidden = scratch.arithmetic_lines[:masks], scratch.hidden[:masks]
    for i in range(len(target)):
        program = tokens[offsets[i] : offsets[i + 1]]
        seed_stream(scratch.random, seed, start + np.uint64(i))
        draw_length(scratch.random, lengths, totals)
        found = False
        for _ in range(MAX_ATTEMPTS):
            found = draw_program(rules, scratch, masks, program)
            if not found:
                break
            if withheld >= 0:  # the hash is that of what a model sees
                mask_lines(program, masked, hidden)
                found = is_withheld(program_hash(program)) == (withheld == 1)
                complete_lines(program, masked, hidden)
            if found:
                nodes = control_flow(program, node_lines, true, false, graph_scratch)
                if trace_limit == 0 or static_steps(program, graph_scratch[0]) <= trace_limit:
                    break
                all_nodes = np.ones(nodes - 1, np.bool_)  # every statement counts, as a block of its own
                modulus, condition_modulus = rules.modulus, rules.condition_modulus
                if not exceeds_blocks(
                    program, node_lines, true, false, all_nodes, modulus, condition_modulus, trace_limit
                ):
                    break
            found = False
        if not found:
            return i
        target[i] = execute(program, node_lines, true, false, rules.modulus, rules.condition_modulus, memory)
        if rules.block_limit > 0 and static_steps(program, graph_scratch[0]) > rules.block_limit:
            starts = block_starts(program, node_lines, true, false)
            modulus, condition_modulus = rules.modulus, rules.condition_modulus
            if exceeds_blocks(program, node_lines, true, false, starts, modulus, condition_modulus, rules.block_limit):
                target[i] = GIVEN_UP % rules.modulus
        mask_lines(program, masked, hidden)
    return -1


@njit(cache=True, nogil=True)
def _fill_extended(  # type: ignore[no-untyped-def]
    seed, start, lengths, totals, rules, masks, withheld, trace_limit, offsets, tokens, target, scratch, graph,
    graph_scratch, extension, reduced, values,
):  # fmt: skip
    """The same for grammars past the paper's language, whose programs are walked to their ends."""
    node_lines, true, false = graph[0], graph[1], graph[2]
    masked, hidden = scratch.arithmetic_lines[:masks], scratch.hidden[:masks]
    limit = trace_limit if trace_limit else MAX_TRACE
    declared = np.empty(MAX_VARIABLES, np.int64)
    for i in range(len(target)):
        program = tokens[offsets[i] : offsets[i + 1]]
        seed_stream(scratch.random, seed, start + np.uint64(i))
        draw_length(scratch.random, lengths, totals)
        found = False
        for _ in range(MAX_ATTEMPTS):
            found = draw_extended(rules, extension, scratch, declared, masks, program)
            if not found:
                break
            if withheld >= 0:
                mask_lines(program, masked, hidden)
                found = is_withheld(program_hash(program)) == (withheld == 1)
                complete_lines(program, masked, hidden)
            if found:
                control_flow(program, node_lines, true, false, graph_scratch)
                modulus, condition_modulus = rules.modulus, rules.condition_modulus
                if walk(program, node_lines, true, false, modulus, condition_modulus, reduced, limit, values) >= 0:
                    break
            found = False
        if not found:
            return i
        target[i] = values[extension.target_variable]
        mask_lines(program, masked, hidden)
    return -1
