"""Whether a grammar could have drawn a program, and if not, what in it lies outside.

The parser accepts more than any grammar draws: every number of the vocabulary, conditions without `%`, loops that count
in other ways. A model has seen none of that in training.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ipagnn.languages.arithmetic.grammar import ARITHMETIC, MIN_LENGTH, PAPER, Grammar
from ipagnn.languages.arithmetic.program import Line, Program
from ipagnn.languages.arithmetic.text import format_line


@dataclass(slots=True)
class _Block:
    """An open block.

    Attributes:
        indent: Of its lines.
        counters: Variables that count the loops around it.
        decrement: The variable that its first line has to decrement, if it is the body of a loop.
        lines: Lines that it has so far.
        jump: The `break` or `continue` that ended it.
    """

    indent: int
    counters: tuple[int, ...]
    decrement: int | None = None
    lines: int = 0
    jump: str | None = None


def outside_grammar(program: Program, grammar: Grammar = PAPER) -> list[str]:
    """What of a program lies outside a grammar, in the order of its lines; empty if the grammar can draw it.

    Each entry names the line, from 1, what stands there, and what the grammar draws: `line 2: operand 999; trained on
    1 to 9`. Length and depth of nesting are not limits of the grammar, but for the number of its loop counters.
    """
    lines = program.lines
    found = list(_first_line(lines[0], grammar))
    if len(lines) < MIN_LENGTH:
        found.append(f"the program has one line; trained on {MIN_LENGTH} or more")
    if len(program.masked_lines) > 1:
        found.append(f"the program has {len(program.masked_lines)} masked lines; trained on one at most")
    block = _Block(0, ())
    around: list[_Block] = []
    for i, line in enumerate(lines[1:], 1):
        if line.indent > block.indent:
            around.append(block)
            block = _open(line.indent, block, lines[i - 1])
        while line.indent < block.indent:
            found += _close(block, i)
            block = around.pop()
        following = lines[i + 1] if i + 1 < len(lines) else None
        block.lines += 1
        found += [f"line {i + 1}: {told}" for told in _line(line, block, lines[i - 1], following, grammar)]
    while around:
        found += _close(block, len(lines))
        block = around.pop()
    return found


def _first_line(line: Line, grammar: Grammar) -> Iterator[str]:
    if line.operation != "=" or line.variable != 0:
        yield f"line 1: `{format_line(line, grammar.condition_modulus)}`; trained on a first line `v0 = N`"
    elif not _within(line.operand, grammar.initial_values):
        yield f"line 1: v0 = {line.operand}; trained on {_range(grammar.initial_values)}"


def _open(indent: int, around: _Block, header: Line) -> _Block:
    """The block below a header. That of a loop that counts down begins with the decrement."""
    if header.operation == "while >" and header.variable and header.operand == 0:
        return _Block(indent, (*around.counters, header.variable), decrement=header.variable)
    return _Block(indent, around.counters)


def _close(block: _Block, number: int) -> list[str]:
    """What is wrong with a block that ends with line `number`."""
    if block.decrement is None or block.lines > 1:
        return []
    return [f"line {number}: a loop without a statement after its decrement; trained on loops with one or more"]


def _line(line: Line, block: _Block, above: Line, below: Line | None, grammar: Grammar) -> Iterator[str]:
    """What is wrong with a line where it stands."""
    text = f"`{format_line(line, grammar.condition_modulus).removesuffix(':')}`"
    if block.jump:
        yield f"{text} after `{block.jump}`; trained on `{block.jump}` as the last line of a block"
        block.jump = None
    if block.decrement is not None and block.lines == 1:
        if (line.operation, line.variable, line.operand) == ("-=", block.decrement, 1):
            return
        yield f"{text} first in a loop; trained on loops that begin with `v{block.decrement} -= 1`"
    if line.operation in ("break", "continue"):
        block.jump = line.operation
    elif line.operation in ARITHMETIC:
        yield from _arithmetic(line, text, grammar)
    elif line.operation.startswith("if"):
        yield from _condition(line, text, grammar)
    elif line.operation.startswith("while"):
        yield from _loop(line, text, block, above, grammar)
    elif line.operation == "=" and line.variable == 0:
        yield f"{text}; trained on v0 set in the first line only"
    elif line.operation == "=" and not _counts(line, below):
        yield f"{text} begins no loop; trained on v0 and loop counters only"


def _arithmetic(line: Line, text: str, grammar: Grammar) -> Iterator[str]:
    if line.variable != 0:
        yield f"{text}; trained on arithmetic with v0 only"
    if line.operation not in grammar.arithmetic_operations:
        yield f"{text}; trained on {' '.join(grammar.arithmetic_operations)}"
    if not _within(line.operand, grammar.operands):
        yield f"operand {line.operand}; trained on {_range(grammar.operands)}"


def _condition(line: Line, text: str, grammar: Grammar) -> Iterator[str]:
    _, comparison, *modulo = line.operation.split()
    if line.variable != 0 or not modulo:
        yield f"{text}; trained on conditions of v0 % {grammar.condition_modulus}"
    elif comparison not in grammar.comparisons:
        yield f"{text}; trained on {' '.join(grammar.comparisons)}"
    elif not _within(line.operand, grammar.condition_operands):
        yield f"{text}; trained on comparisons with {_range(grammar.condition_operands)}"


def _loop(line: Line, text: str, block: _Block, above: Line, grammar: Grammar) -> Iterator[str]:
    if (line.operation, line.operand) != ("while >", 0) or not line.variable or not _counts(above, line):
        yield f"{text}; trained on loops `vK = N`, `while vK > 0`, with K from 1 on"
        return
    if not _within(above.operand, grammar.loop_counts):
        yield f"a loop of {above.operand} rounds; trained on {_range(grammar.loop_counts)}"
    if line.variable > grammar.counters:
        yield f"v{line.variable} counts a loop; trained on v1 to v{grammar.counters}"
    if line.variable in block.counters:
        yield f"v{line.variable} counts an outer loop already; trained on a variable for each"


def _counts(line: Line, below: Line | None) -> bool:
    """Whether a line sets the variable that a `while` right below it looks at."""
    return (
        line.operation == "="
        and below is not None
        and below.operation.startswith("while")
        and (below.variable, below.indent) == (line.variable, line.indent)
    )


def _within(value: int | None, bounds: tuple[int, int]) -> bool:
    return value is not None and bounds[0] <= value <= bounds[1]


def _range(bounds: tuple[int, int]) -> str:
    return f"{bounds[0]} to {bounds[1]}"
