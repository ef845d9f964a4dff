"""What is not proved of a program that runs over automata.

A program runs as the language says if each of its statements does on all values that it may meet. Statements are
compared with the true ones on all numbers that have the digits of a run. Where that shows a difference, it matters
unless the values are known to stay below it, as those of loop counters are. Two things are no matter of single
statements: values that the language does not take modulo the modulus, where conditions see all of them, and factors of
more than one digit.
"""

from collections.abc import Callable, Iterator
from typing import Final, Literal

from ipagnn.languages.arithmetic.automata.automaton import DIGITS, Statement
from ipagnn.languages.arithmetic.automata.comparison import Disagreement
from ipagnn.languages.arithmetic.automata.run import statements_by_line
from ipagnn.languages.arithmetic.grammar import Grammar
from ipagnn.languages.arithmetic.program import Line, Program, ProgramTable
from ipagnn.languages.arithmetic.statements import COMPARISON, MODULAR
from ipagnn.languages.arithmetic.tables import masked_choices
from ipagnn.languages.arithmetic.text import format_line
from ipagnn.languages.arithmetic.vocabulary import ASSIGNMENTS, MULTIPLY, OPERATION, OPERATIONS

UNKNOWN: Final = "unknown"
Found = Disagreement | Literal["unknown"] | None
Compare = Callable[[Statement, int | None, bool], Found]
"""From a statement, its operand where the automaton is for all operands, and whether the operand is the variable
itself: the smallest number on which the automaton is wrong, None if there is none, `UNKNOWN` if that cannot be told."""


def doubts(program: Program, grammar: Grammar, compare: Compare) -> list[str]:
    """What of a program is not proved to run as the language says, each as a sentence; empty if it surely does.

    A statement is named once, where it stands first.

    Args:
        program: The program.
        grammar: The language. Variables have as many digits as numbers below its modulus.
        compare: Compares a learned statement with the true one.
    """
    needed, statements, operands = statements_by_line(ProgramTable.from_programs([program]))
    bounds = bounds_of(program)
    found: dict[object, tuple[str, list[int]]] = {}  # by statement: what there is to say, and its lines
    for i, line in enumerate(program.lines):
        if line.operation == "mask":
            found.update(_masked(i, grammar, compare, found))
        if statements[i] < 0:
            continue
        statement, operand = needed[statements[i]], int(operands[i])
        literal = operand if statement[1] is None and operand >= 0 else None
        same = line.source is not None and line.source == line.variable
        fault = compare(statement, literal, same)
        for what in _doubts_of(line, statement, literal, fault, bounds, grammar):
            text = format_line(line, grammar.condition_modulus).removesuffix(":")
            found.setdefault((statement, literal, same), (f"`{text}` {what}", []))[1].append(i + 1)
            break
    return [_sentence(what, lines) for what, lines in found.values()]


def bounds_of(program: Program) -> dict[int, int]:
    """The largest value that variables may hold which only count down from numbers, and stop at 0.

    They are assigned numbers and else decremented as the first thing in a `while vK > 0`, which 0 does not enter.
    """
    lines = program.lines
    bounds: dict[int, int] = {}
    others = set()
    for i, line in enumerate(lines):
        if line.operation == "mask":
            others.add(0)  # it stands for arithmetic on v0
        elif line.variable is None or line.operation not in ASSIGNMENTS:
            continue
        elif line.operation == "=" and line.operand is not None:
            bounds[line.variable] = max(line.operand, bounds.get(line.variable, 0))
        elif not (i and _counts_down(lines[i - 1], line)):
            others.add(line.variable)
    return {variable: bound for variable, bound in bounds.items() if variable not in others}


def _counts_down(above: Line, line: Line) -> bool:
    guards = (above.operation, above.operand, above.variable) == ("while >", 0, line.variable)
    return guards and (line.operation, line.operand, line.indent) == ("-=", 1, above.indent + 1)


def _doubts_of(
    line: Line, statement: Statement, literal: int | None, fault: Found, bounds: dict[int, int], grammar: Grammar
) -> Iterator[str]:
    """What is not proved of a line."""
    operation, variable, source = statement[0], line.variable, line.source
    assert variable is not None
    if isinstance(fault, Disagreement) and not (source is None and bounds.get(variable, fault.number) < fault.number):
        beside = f" and v{source} = {fault.operand}" if source not in (None, variable) else ""
        yield f"is learned wrong, first at v{variable} = {fault.number}{beside}"
    if fault == UNKNOWN:
        yield "is not proved; what was learned of it could not be compared with what is true"
    if operation == MULTIPLY and source is not None and bounds.get(source, DIGITS) >= DIGITS:
        yield f"is proved for a v{source} of one digit only, and v{source} may have more"
    if operation not in COMPARISON or operation in MODULAR:
        return
    places = len(str(grammar.modulus)) - 1
    if literal is not None and literal >= grammar.modulus:
        yield f"compares with a number of more than the {places} digits that variables have here"
    for each in (variable, *(() if source is None else (source,))):
        if not grammar.wrap and bounds.get(each, grammar.modulus) >= grammar.modulus:
            yield f"is proved for a v{each} of 0 to {grammar.modulus - 1} only, and v{each} may be beyond"


def _masked(
    i: int, grammar: Grammar, compare: Compare, known: dict[object, tuple[str, list[int]]]
) -> dict[object, tuple[str, list[int]]]:
    """What is not proved of the statements that the masked line i may be."""
    found: dict[object, tuple[str, list[int]]] = {}
    for operation, operand in masked_choices(grammar).tolist():
        fault, key = compare((operation, operand), None, False), ("mask", operation, operand)
        if fault is None or key in known:
            continue
        text = f"v0 {OPERATIONS[operation - OPERATION]} {operand}"
        wrong = "is not proved" if fault == UNKNOWN else f"is learned wrong, first at v0 = {fault.number}"
        found[key] = f"the masked line may be `{text}`, which {wrong}", [i + 1]
    return found


def _sentence(what: str, lines: list[int]) -> str:
    first, *others = sorted(set(lines))
    also = ""
    if others:
        named = [str(other) for other in others[:3]] + ([f"{len(others) - 3} more"] if len(others) > 3 else [])
        listed = " and ".join([*([", ".join(named[:-1])] if len(named) > 1 else []), named[-1]])
        also = f"; line {listed} is alike" if len(others) == 1 else f"; lines {listed} are alike"
    return f"Line {first}: {what}{also}."
