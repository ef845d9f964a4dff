"""Plain twins of the compiled code: what it computes, written to be read.

| compiled | plain twin |
|---|---|
| `_compiled/graph.py`: `control_flow` | `control_flow` |
| `_compiled/graph.py`: `paper_steps`, `static_steps` | `cfg.steps`, `static_steps` |
| `_compiled/check.py`: `find_problem` | `spells_program` |
| `_compiled/targets.py`: `walk_all` | `targets.target` |
| `_compiled/trace.py`: `trace_nodes`, `loop_depths` | `interpreter.trace`, `loop_depths` |
| `_compiled/execute.py`: `execute` | `interpreter.execute` |
| `_compiled/walk.py`: `walk` | `interpreter.execute` |
| `_compiled/blocks.py`: `block_starts`, `exceeds_blocks` | `block_starts`, `targets.target` |
| `_compiled/holes.py`: `best_guesses`, `likeliest` | `holes.hole_distribution` |
| `_compiled/hash.py`: `program_hash` | `program_hash` |
| `_compiled/random.py`: `seed_stream`, `below` | `RandomStream` |
| `_compiled/extended.py`: `draw_extended` | `reference_sampler.draw_program`, equal in distribution |
| `_compiled/sampler.py`: `draw_program` | `reference_sampler.draw_program`, equal in distribution |

Nothing in the package calls these functions except tests. They are slow, and recursive where programs are nested.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from ipagnn.languages.arithmetic.program import Line, Program, spell
from ipagnn.languages.arithmetic.text import INDENT, format_line, parse


def spells_program(tokens: Sequence[Sequence[int]]) -> bool:
    """Whether token ids are exactly those of the text that they spell."""
    try:
        lines = [spell(line) for line in tokens]
        source = "\n".join(INDENT * line.indent + format_line(line) for line in lines)
        return bool(parse(source).line_tokens.tolist() == [list(line) for line in tokens])
    except (ValueError, IndexError, TypeError):
        return False


@dataclass(slots=True)
class Statement:
    """A statement of the syntax tree.

    Attributes:
        index: Index of its line.
        line: The line.
        node: Its node in the control flow graph; None for `pass`, `break` and `continue`.
        body: Statements of the block below an `if` or `while`.
        orelse: Statements of the block below the `else` of an `if`.
    """

    index: int
    line: Line
    node: int | None
    body: "list[Statement]" = field(default_factory=list)
    orelse: "list[Statement]" = field(default_factory=list)

    @property
    def keyword(self) -> str:
        """`if`, `while`, `break`, `continue`, `pass`, `mask`, or the operator of an assignment."""
        return self.line.operation.partition(" ")[0]


def syntax_tree(program: Program) -> list[Statement]:
    """The statements of the outermost block."""
    top: list[Statement] = []
    open_blocks = [top]  # by depth: the block that a line of this depth belongs to
    nodes = 0
    for index, line in enumerate(program.lines):
        del open_blocks[line.indent + 1 :]
        block = open_blocks[line.indent]
        if line.operation == "else":
            open_blocks.append(block[-1].orelse)
            continue
        has_node = line.operation not in ("pass", "break", "continue")
        block.append(Statement(index, line, nodes if has_node else None))
        nodes += has_node
        open_blocks.append(block[-1].body)
    return top


def control_flow(program: Program) -> tuple[list[int], list[int], list[int]]:
    """The control flow graph (docs/specification.md, section 2).

    Returns:
        The line of each node but the exit; the true successor of each node; the false successor of each node.
    """
    tree = syntax_tree(program)
    lines = [s.index for s in _in_order(tree) if s.node is not None]
    exit_node = len(lines)
    true, false = [exit_node] * (exit_node + 1), [exit_node] * (exit_node + 1)

    def connect(block: list[Statement], after: int, loop: tuple[int, int] | None) -> int:
        """Set the successors within a block.

        Args:
            block: Its statements.
            after: The node that control reaches after the block.
            loop: Head of the innermost loop around the block, and the node after that loop.

        Returns:
            The node that control reaches when it enters the block.
        """
        for statement in reversed(block):
            node, keyword = statement.node, statement.keyword
            if keyword == "break" and loop:
                after = loop[1]
            elif keyword == "continue" and loop:
                after = loop[0]
            elif node is not None:
                true[node] = false[node] = after
                if keyword == "if":
                    true[node] = connect(statement.body, after, loop)
                    false[node] = connect(statement.orelse, after, loop)
                elif keyword == "while":
                    true[node] = connect(statement.body, node, (node, after))
                after = node
        return after

    connect(tree, exit_node, None)
    return lines, true, false


def _in_order(block: Sequence[Statement]) -> list[Statement]:
    return [t for s in block for t in (s, *_in_order(s.body), *_in_order(s.orelse))]


def loops_around(program: Program) -> list[list[int]]:
    """By line: indices of the `while` lines of the loops it stands in, the outermost first."""
    around: list[list[int]] = []
    headers: list[tuple[int, int]] = []  # indent and index of the `while` lines whose bodies are open
    for index, line in enumerate(program.lines):
        headers = [header for header in headers if header[0] < line.indent]
        around.append([i for _, i in headers])
        if line.operation.startswith("while"):
            headers.append((line.indent, index))
    return around


def static_steps(program: Program) -> int:
    """A bound on the trace length from the loop counts in the text.

    A line counts as often as the loops around it can run it. A loop runs R times if the line above it assigns R to its
    variable, and is taken to run twice otherwise.
    """
    lines = program.lines

    def rounds(head: int) -> int:
        above = lines[head - 1] if head else None
        if above and above.operation == "=" and above.variable == lines[head].variable and above.operand is not None:
            return above.operand
        return 2

    total = 1
    for index, around in enumerate(loops_around(program)):
        total += prod(map(rounds, around))
        if lines[index].operation.startswith("while"):
            total += prod(map(rounds, [*around, index]))
    return total


def loop_depths(program: Program) -> list[int]:
    """By node: the number of loops it stands in, a `while` in its own too; 0 for the exit."""
    lines, around = program.lines, loops_around(program)
    nodes = control_flow(program)[0]
    return [*(len(around[i]) + lines[i].operation.startswith("while") for i in nodes), 0]


def block_starts(program: Program) -> list[int]:
    """The nodes that begin a basic block of python_graphs (see `_compiled/blocks.py`)."""
    lines, true, false = control_flow(program)
    blocks: list[list[int]] = []  # the nodes of each block, in the order in which python_graphs creates blocks

    def new_block() -> list[int]:
        blocks.append([])
        return blocks[-1]

    def write(statements: list[Statement], current: list[int]) -> None:
        for statement in statements:
            if statement.keyword == "while":
                current = new_block()
            if statement.node is not None:
                current.append(statement.node)
            if statement.keyword == "while":
                write(statement.body, new_block())
                current = new_block()
            elif statement.keyword == "if":
                current = new_block()
                write(statement.body, new_block())
                if statement.orelse:
                    write(statement.orelse, new_block())
            elif statement.keyword in ("break", "continue"):
                current = new_block()

    write(syntax_tree(program), new_block())
    blocks[:] = [block for block in blocks if block]
    begins = {block[0]: block for block in blocks}
    predecessors = [0] * len(true)
    for block in blocks:
        for successor in {true[block[-1]], false[block[-1]]}:
            predecessors[successor] += 1
    for block in blocks:  # blocks are removed from the list that is iterated over: some are passed over, as there
        while True:
            following = true[block[-1]]
            if following != false[block[-1]] or following == len(lines) or predecessors[following] != 1:
                break
            block += begins[following]
            blocks.remove(begins[following])
    return sorted(block[0] for block in blocks)


_BITS = 2**64 - 1
_GOLDEN, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mix(z: int) -> int:
    """The finaliser of splitmix64."""
    z = (z ^ (z >> 30)) * _MIX_1 & _BITS
    z = (z ^ (z >> 27)) * _MIX_2 & _BITS
    return z ^ (z >> 31)


def program_hash(program: Program) -> int:
    """The 64-bit hash of a program. It is withheld from training if the first six bits are 0."""
    state = 0x243F6A8885A308D3
    for tokens in program.line_tokens.tolist():
        line = sum(token << 16 * slot for slot, token in enumerate(tokens[:4]))
        state = mix((state ^ line) + _GOLDEN & _BITS)
        for token in filter(None, tokens[4:]):
            state = mix((state ^ token) + _GOLDEN & _BITS)
    return state


class RandomStream:
    """The random numbers of one program: xoroshiro128++, started from a seed and the program's index."""

    def __init__(self, seed: int, index: int) -> None:
        self.a = mix(mix(seed + _GOLDEN & _BITS) + index * _GOLDEN & _BITS)
        self.b = mix(mix(seed ^ _GOLDEN) ^ mix(index + _MIX_1 & _BITS))

    def below(self, bound: int) -> int:
        """A uniform integer in `0..bound - 1`: Lemire's method on the upper 32 bits of each number."""
        while True:
            a, b = self.a, self.b
            drawn = _rotate(a + b & _BITS, 17) + a & _BITS
            b ^= a
            self.a, self.b = _rotate(a, 49) ^ b ^ (b << 21 & _BITS), _rotate(b, 28)
            product = (drawn >> 32) * bound
            if product % 2**32 >= 2**32 % bound:
                return product >> 32


def _rotate(x: int, by: int) -> int:
    return (x << by | x >> 64 - by) & _BITS
