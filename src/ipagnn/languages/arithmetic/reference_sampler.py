"""The plain twin of the compiled sampler: the refinement of holes as docs/specification.md, section 1.1, has it.

It draws programs with the same probabilities as `_compiled/sampler.py`, and can list these probabilities exactly for
short programs. Only tests call it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from random import Random

import numpy as np

from ipagnn.languages.arithmetic.grammar import PAPER, Grammar
from ipagnn.languages.arithmetic.program import Program
from ipagnn.languages.arithmetic.vocabulary import NUMBER, OPERATION_ID, VARIABLE


@dataclass(frozen=True, slots=True)
class Element:
    """A hole (its kind in capitals) or a line whose constants are not drawn yet.

    Attributes:
        kind: STMT, BLOCK, STMTS, STMTS_NONEMPTY; or pass, arithmetic, if, else, counter, while, decrement, break,
            continue.
        indent: Nesting depth.
        loops: Loops around it.
    """

    kind: str
    indent: int
    loops: int

    @property
    def is_hole(self) -> bool:
        """Whether it is still to be refined."""
        return self.kind in _LEAST_LINES


State = tuple[Element, ...]
Shape = tuple[tuple[str, int], ...]
"""Kind and indent of every line but the first."""

START: State = (Element("STMTS_NONEMPTY", 0, 0),)
_LEAST_LINES = {"STMT": 1, "BLOCK": 1, "STMTS": 0, "STMTS_NONEMPTY": 1}


def expansions(hole: Element, grammar: Grammar = PAPER) -> list[tuple[int, int, State]]:
    """What a hole may become: weight, lines needed, elements."""
    g, indent, loops = grammar, hole.indent, hole.loops

    def here(kind: str) -> Element:
        return Element(kind, indent, loops)

    body, loop_body = Element("BLOCK", indent + 1, loops), Element("BLOCK", indent + 1, loops + 1)
    if hole.kind == "STMT":
        repeat = (here("counter"), here("while"), Element("decrement", indent + 1, loops + 1), loop_body)
        return [
            (g.stmt_pass, 1, (here("pass"),)),
            (g.stmt_arithmetic, 1, (here("arithmetic"),)),
            (g.stmt_if, 2, (here("if"), body)),
            (g.stmt_if_else, 4, (here("if"), body, here("else"), body)),
            *([(g.stmt_repeat, 4, repeat)] if loops < g.counters else []),
        ]
    if hole.kind == "BLOCK":
        jumps = [
            (g.block_break, 1, (here("STMTS"), here("break"))),
            (g.block_continue, 1, (here("STMTS"), here("continue"))),
        ]
        return [(g.block_plain, 1, (here("STMTS_NONEMPTY"),)), *(jumps if loops else [])]
    if hole.kind == "STMTS":
        return [
            (g.stmts_nonempty, 1, (here("STMTS_NONEMPTY"),)),
            (g.stmts_stmt, 1, (here("STMT"),)),
            (g.stmts_nothing, 0, ()),
        ]
    return [(1, 1, (here("STMT"), here("STMTS")))]


def refinements(state: State, budget: int, grammar: Grammar = PAPER) -> Iterator[tuple[Fraction, State]]:
    """All states that one refinement leads to, with their probabilities.

    These sum to less than 1 if there is a hole that nothing fits into.

    Args:
        state: Lines and holes.
        budget: Lines that the program may have after the first.
        grammar: The weights.
    """
    weights = {
        "STMT": grammar.hole_stmt,
        "BLOCK": grammar.hole_block,
        "STMTS": grammar.hole_stmts,
        "STMTS_NONEMPTY": grammar.hole_stmts_nonempty,
    }
    holes = [i for i, element in enumerate(state) if element.is_hole]
    total = sum(weights[state[i].kind] for i in holes)
    lines = len(state) - len(holes)
    for i in holes:
        space = budget - lines - sum(_LEAST_LINES[state[j].kind] for j in holes if j != i)
        fitting = [(w, new) for w, needed, new in expansions(state[i], grammar) if needed <= space and w]
        for weight, new in fitting:
            chance = Fraction(weights[state[i].kind], total) * Fraction(weight, sum(w for w, _ in fitting))
            yield chance, (*state[:i], *new, *state[i + 1 :])


def shape_probabilities(length: int, grammar: Grammar = PAPER) -> dict[Shape, Fraction]:
    """The probability of every shape of `length` lines. The number of shapes grows exponentially with `length`."""

    @cache
    def outcomes(state: State) -> dict[Shape, Fraction]:
        if not any(element.is_hole for element in state):
            done = len(state) == length - 1
            return {tuple((element.kind, element.indent) for element in state): Fraction(1)} if done else {}
        total: dict[Shape, Fraction] = {}
        for chance, new in refinements(state, length - 1, grammar):
            for shape, inner in outcomes(new).items():
                total[shape] = total.get(shape, Fraction(0)) + chance * inner
        return total

    reached = outcomes(START)
    accepted = sum(reached.values())
    return {shape: chance / accepted for shape, chance in reached.items()}


def draw_shape(random: Random, length: int, grammar: Grammar = PAPER) -> State:
    """The lines of a program but the first; drawn again until there are `length - 1`."""
    while True:
        state: State | None = START
        while state is not None and any(element.is_hole for element in state):
            reached: list[tuple[Fraction, State | None]] = [*refinements(state, length - 1, grammar)]
            reached.append((1 - sum((chance for chance, _ in reached), Fraction(0)), None))  # a hole that nothing fits
            state = random.choices([new for _, new in reached], [float(chance) for chance, _ in reached])[0]
        if state is not None and len(state) == length - 1:
            return state


def draw_program(random: Random, length: int, grammar: Grammar = PAPER) -> Program:
    """A complete program of `length` lines."""

    def line(indent: int, operation: str, variable: int, operand: int) -> tuple[int, int, int, int]:
        return NUMBER + indent, OPERATION_ID[operation], VARIABLE + variable, NUMBER + operand

    lines = [line(0, "=", 0, random.randint(*grammar.initial_values))]
    counters: list[int] = []  # of the loops around the line, the outermost first
    for element in draw_shape(random, length, grammar):
        indent = element.indent
        if element.kind == "arithmetic":
            operation = random.choice(grammar.arithmetic_operations)
            lines.append(line(indent, operation, 0, random.randint(*grammar.operands)))
        elif element.kind == "if":
            comparison = random.choice(grammar.comparisons)
            lines.append(line(indent, f"if {comparison} %", 0, random.randint(*grammar.condition_operands)))
        elif element.kind == "counter":
            del counters[element.loops :]
            counters.append(random.choice([k for k in range(1, grammar.counters + 1) if k not in counters]))
            lines.append(line(indent, "=", counters[-1], random.randint(*grammar.loop_counts)))
        elif element.kind == "while":
            lines.append(line(indent, "while >", counters[-1], 0))
        elif element.kind == "decrement":
            lines.append(line(indent, "-=", counters[-1], 1))
        else:
            operation_id = OPERATION_ID[element.kind]
            lines.append((NUMBER + indent, operation_id, operation_id, NUMBER))
    return Program(np.array(lines, np.int16))
