"""The plain twin of the compiled sampler: the refinement of holes as docs/specification.md, section 1.1, has it.

It draws programs with the same probabilities as `_compiled/sampler.py`. Only tests call it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from random import Random

import numpy as np

from ipagnn.languages.arithmetic.grammar import PAPER, Grammar
from ipagnn.languages.arithmetic.program import Program
from ipagnn.languages.arithmetic.vocabulary import NUMBER, OPERATION_ID, VARIABLE, number_ids, variable_id


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
            (g.stmt_arithmetic + g.stmt_assign, 1, (here("arithmetic"),)),
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

    if grammar.is_extended:
        return _draw_extended(random, length, grammar)
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


def _draw_extended(random: Random, length: int, grammar: Grammar) -> Program:
    """A program of a grammar that goes past the paper's language."""
    g = grammar
    digits = range(g.variables - g.digit_variables, g.variables)
    used = random.randint(1, min(g.variables, length - 1))
    others = random.sample([k for k in range(g.variables) if k != g.target_variable], used - 1)
    declared = [g.target_variable, *others]
    lines: list[list[int]] = []

    def write(indent: int, operation: str, variable: int, operand: list[int]) -> None:
        lines.append([NUMBER + indent, OPERATION_ID[operation], variable_id(variable), *operand])

    def number(bounds: tuple[int, int]) -> list[int]:
        least, largest = bounds
        if g.by_digits:
            count = random.randint(len(str(least)), len(str(largest)))
            least, largest = max(least, 10 ** (count - 1) if count > 1 else 0), min(largest, 10**count - 1)
        return number_ids(random.randint(least, largest))

    def assign(indent: int, variable: int) -> None:
        write(
            indent, "=", variable, number_ids(random.randint(0, 9)) if variable in digits else number(g.initial_values)
        )

    def arithmetic(indent: int) -> None:
        variable = random.choice([k for k in declared if k not in digits])
        operation = random.choice(g.arithmetic_operations)
        fitting = [k for k in declared if k in digits]
        if operation != "*=":
            fitting = [k for k in declared if k != variable] + counters
        factors = g.operands if g.factors == (0, 0) else g.factors
        operand = number(factors if operation == "*=" else g.operands)
        if _chosen(random, g.operand_number, g.operand_variable) and fitting:
            operand = [variable_id(random.choice(fitting))]
        write(indent, operation, variable, operand)

    for k in declared:
        assign(0, k)
    counters: list[int] = []
    for element in draw_shape(random, length - used + 1, grammar):
        indent = element.indent
        del counters[element.loops + (element.kind == "while") :]
        if element.kind == "arithmetic":
            if _chosen(random, g.stmt_arithmetic, g.stmt_assign):
                assign(indent, random.choice(declared))
            else:
                arithmetic(indent)
        elif element.kind == "if":
            comparison = random.choice(g.comparisons)
            variable = random.choice(declared)
            rest = [k for k in declared if k != variable]
            if _chosen(random, g.condition_number, g.condition_variable) and rest:
                write(indent, f"if {comparison}", variable, [variable_id(random.choice(rest))])
            else:
                write(indent, f"if {comparison} %", variable, number_ids(random.randint(*g.condition_operands)))
        elif element.kind == "counter":
            counters.append(random.choice([k for k in g.counter_names if k not in counters]))
            write(indent, "=", counters[-1], number_ids(random.randint(*g.loop_counts)))
        elif element.kind == "while":
            write(indent, "while >", counters[-1], [NUMBER])
        elif element.kind == "decrement":
            write(indent, "-=", counters[-1], [NUMBER + 1])
        else:
            operation_id = OPERATION_ID[element.kind]
            lines.append([NUMBER + indent, operation_id, operation_id, NUMBER])
    width = max(map(len, lines))
    return Program(np.array([line + [0] * (width - len(line)) for line in lines], np.int16))


def _chosen(random: Random, other: int, weight: int) -> bool:
    """Whether the second of two choices is made; these are their weights."""
    return random.randrange(other + weight) >= other
