"""Whether a grammar could have drawn a program, and if not, what in it lies outside.

The parser accepts more than any grammar draws: every number of the vocabulary, conditions without `%`, loops that count
in other ways. A model has seen none of that in training.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ipagnn.languages.arithmetic.grammar import MIN_LENGTH, PAPER, Grammar
from ipagnn.languages.arithmetic.program import Line, Program
from ipagnn.languages.arithmetic.text import format_line
from ipagnn.languages.arithmetic.vocabulary import ASSIGNMENTS


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
    opening = _first_lines(lines, grammar)
    declared = {line.variable for line in lines[:opening]}
    found = [reasons for i in range(opening) for reasons in _declaration(lines[i], i + 1, grammar)]
    if len(lines) < MIN_LENGTH:
        found.append(f"the program has one line; trained on {MIN_LENGTH} or more")
    if len(program.masked_lines) > 1:
        found.append(f"the program has {len(program.masked_lines)} masked lines; trained on one at most")
    block = _Block(0, ())
    around: list[_Block] = []
    for i, line in enumerate(lines[opening:], opening):
        if line.indent > block.indent:
            around.append(block)
            block = _open(line.indent, block, lines[i - 1])
        while line.indent < block.indent:
            found += _close(block, i)
            block = around.pop()
        following = lines[i + 1] if i + 1 < len(lines) else None
        block.lines += 1
        reasons = [*_undeclared(line, declared, grammar), *_line(line, block, lines[i - 1], following, grammar)]
        found += [f"line {i + 1}: {what}" for what in reasons]
    while around:
        found += _close(block, len(lines))
        block = around.pop()
    return found


def _first_lines(lines: Sequence[Line], grammar: Grammar) -> int:
    """How many lines declare the data variables of a program: each is assigned once, the target variable first."""
    declared: set[int | None] = set()
    for line in lines[: grammar.variables]:
        data = line.variable is not None and line.variable < grammar.variables
        if line.operation != "=" or line.source is not None or not data or line.variable in declared:
            break
        declared.add(line.variable)
    return max(1, len(declared))


def _declaration(line: Line, number: int, grammar: Grammar) -> Iterator[str]:
    first = f"v{grammar.target_variable}"
    if number == 1 and (line.operation != "=" or line.variable != grammar.target_variable or line.source is not None):
        yield f"line 1: `{format_line(line, grammar.condition_modulus)}`; trained on a first line `{first} = N`"
    elif not _within(line.operand, _values(line.variable, grammar)):
        yield f"line {number}: v{line.variable} = {line.operand}; trained on {_range(_values(line.variable, grammar))}"


def _values(variable: int | None, grammar: Grammar) -> tuple[int, int]:
    """The numbers that are assigned to a data variable."""
    is_digit = variable is not None and variable >= grammar.variables - grammar.digit_variables
    return (0, 9) if is_digit else grammar.initial_values


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
    elif line.operation in ASSIGNMENTS[1:]:
        yield from _arithmetic(line, text, grammar)
    elif line.operation.startswith("if"):
        yield from _condition(line, text, grammar)
    elif line.operation.startswith("while"):
        yield from _loop(line, text, block, above, grammar)
    elif line.operation == "=" and line.variable is not None and line.variable < grammar.variables:
        yield from _assignment(line, text, grammar)
    elif line.operation == "=" and not _counts(line, below):
        yield f"{text} begins no loop; trained on {_variables(grammar.variables)} and loop counters only"


def _undeclared(line: Line, declared: set[int | None], grammar: Grammar) -> Iterator[str]:
    """Data variables that the first lines do not declare; the paper's language has one, which they do."""
    for variable in (line.variable, line.source):
        if variable is not None and variable < grammar.variables and variable not in declared and grammar.variables > 1:
            yield f"v{variable} is not set in the first lines; trained on variables that are"


def _assignment(line: Line, text: str, grammar: Grammar) -> Iterator[str]:
    if not grammar.stmt_assign:
        are = "v0 set in the first line" if grammar.variables == 1 else "data variables set in the first lines"
        yield f"{text}; trained on {are} only"
    elif line.source is not None or not _within(line.operand, _values(line.variable, grammar)):
        yield f"{text}; trained on {_range(_values(line.variable, grammar))}"


def _arithmetic(line: Line, text: str, grammar: Grammar) -> Iterator[str]:
    changing = grammar.variables - grammar.digit_variables
    if line.variable is None or line.variable >= changing:
        yield f"{text}; trained on arithmetic with {_variables(changing)} only"
    if line.operation not in grammar.arithmetic_operations:
        yield f"{text}; trained on {' '.join(grammar.arithmetic_operations)}"
    factors = grammar.operands if grammar.factors == (0, 0) else grammar.factors
    bounds = factors if line.operation == "*=" else grammar.operands
    if line.source is not None:
        yield from _source(line, text, grammar)
    elif not _within(line.operand, bounds):
        yield f"operand {line.operand}; trained on {_range(bounds)}"
    elif not grammar.operand_number and line.operation != "*=" and grammar.variables > 1:
        yield f"{text}; trained on variables on the right"


def _source(line: Line, text: str, grammar: Grammar) -> Iterator[str]:
    """What is wrong with the variable on the right of an arithmetic line."""
    digits = range(grammar.variables - grammar.digit_variables, grammar.variables)
    if not grammar.operand_variable:
        yield f"{text}; trained on numbers on the right"
    elif line.operation == "*=" and line.source not in digits:
        few = f"v{digits.start}, which holds a digit"
        many = f"v{digits.start} to v{digits.stop - 1}, which hold digits"
        yield f"{text}; trained on products with {('numbers', few, many)[min(len(digits), 2)]}"
    elif line.source == line.variable:
        yield f"{text}; trained on another variable on the right"


def _condition(line: Line, text: str, grammar: Grammar) -> Iterator[str]:
    _, comparison, *modulo = line.operation.split()
    of_data = line.variable is not None and line.variable < grammar.variables
    compares = line.source is not None and line.source < grammar.variables and line.source != line.variable
    if not of_data or not (modulo or (compares and grammar.condition_variable)):
        other = " and between two of them" if grammar.condition_variable else ""
        yield f"{text}; trained on conditions of {_variables(grammar.variables)} % {grammar.condition_modulus}{other}"
    elif comparison not in grammar.comparisons:
        yield f"{text}; trained on {' '.join(grammar.comparisons)}"
    elif line.source is None and not _within(line.operand, grammar.condition_operands):
        yield f"{text}; trained on comparisons with {_range(grammar.condition_operands)}"


def _loop(line: Line, text: str, block: _Block, above: Line, grammar: Grammar) -> Iterator[str]:
    names = grammar.counter_names
    counts = (line.operation, line.operand) == ("while >", 0) and _counts(above, line) and above.operand is not None
    if not counts or line.variable is None or line.variable < names.start:
        yield f"{text}; trained on loops `vK = N`, `while vK > 0`, with K from {names.start} on"
        return
    if not _within(above.operand, grammar.loop_counts):
        yield f"a loop of {above.operand} rounds; trained on {_range(grammar.loop_counts)}"
    if line.variable not in names:
        yield f"v{line.variable} counts a loop; trained on v{names.start} to v{names.stop - 1}"
    if line.variable in block.counters:
        yield f"v{line.variable} counts an outer loop already; trained on a variable for each"


def _variables(count: int) -> str:
    return "v0" if count == 1 else f"v0 to v{count - 1}"


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
