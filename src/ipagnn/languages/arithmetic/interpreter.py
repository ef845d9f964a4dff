"""The exact value and the trace of a program.

Semantics are Python's, with integers of any size; a variable that no executed line has assigned is 0. Statements
combine a variable with constants only, so what a loop does depends on few numbers: the values, at its head, of the
variables that it mentions and that are live there. `execute` therefore remembers every loop's result by those values
and runs programs whose traces are far too long to walk. If such values come back before the loop ends, it never will.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from math import lcm
from typing import NamedTuple

from ipagnn.languages.arithmetic import vocabulary as v
from ipagnn.languages.arithmetic.cfg import ControlFlowGraph, control_flow_graph
from ipagnn.languages.arithmetic.program import Program
from ipagnn.languages.arithmetic.statements import COMPARISON, MODULAR, apply, compare
from ipagnn.languages.arithmetic.text import format_line

MAX_STEPS = 1_000_000
"""Statements `execute` carries out before it gives up; a remembered loop counts as one."""
_BITS_A_STEP = (
    256  # a statement on a longer number counts as several, so that growing numbers cannot eat time or memory
)


class ExecutionError(ValueError):
    """A program has no value.

    Attributes:
        line: The line of the program it stopped at, from 1; comments and blank lines of its text do not count.
    """

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(line, reason)
        self.line = line
        self.reason = reason

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


class MaskedProgramError(ExecutionError):
    """A line of the program is masked, so that nothing can execute it."""


class EndlessLoopError(ExecutionError):
    """A loop came back to a state it had been in before."""


class StepLimitError(ExecutionError):
    """The program did not end within the allowed number of steps."""


class Step(NamedTuple):
    """One executed statement.

    Attributes:
        line: Index of the line, from 0, as in `Program.lines`.
        v0: v0 modulo the modulus after the statement.
        branch: Whether the condition held; None for a statement without one.
    """

    line: int
    v0: int
    branch: bool | None


class Execution(NamedTuple):
    """What running a program to its end gives.

    Attributes:
        value: v0 modulo the modulus.
        trace_length: Number of statements on the way, not counting `else`, `pass`, `break` and `continue`.
    """

    value: int
    trace_length: int


def value(program: Program, modulus: int = 1000, condition_modulus: int = 10, max_steps: int = MAX_STEPS) -> int:
    """The value of a program; see `execute`."""
    return execute(program, modulus, condition_modulus, max_steps).value


def trace_length(program: Program, condition_modulus: int = 10, max_steps: int = MAX_STEPS) -> int:
    """The exact number of statements a program executes, however many; see `execute`."""
    return execute(program, 1, condition_modulus, max_steps).trace_length


def trace(
    program: Program, limit: int | None = 10_000, modulus: int = 1000, condition_modulus: int = 10
) -> Iterator[Step]:
    """The executed statements one after the other, made as they are asked for.

    Args:
        program: The program.
        limit: Statements after which the trace is cut off; None never cuts it off, even if the program is endless.
        modulus: What v0 is reported modulo.
        condition_modulus: The number after `%` in conditions.

    Raises:
        MaskedProgramError: A line is masked.
    """
    return islice(_walk(_compile(program, modulus, condition_modulus), [0] * v.VARIABLES), limit)


def trace_values(
    program: Program, limit: int | None = 10_000, modulus: int = 1000, condition_modulus: int = 10
) -> Iterator[tuple[int, ...]]:
    """The values of all variables, modulo the modulus, after each executed statement; see `trace`."""
    machine = _compile(program, modulus, condition_modulus)
    common = lcm(modulus, condition_modulus)
    machine.reduction = [None if reduction is None else common for reduction in machine.reduction]
    state = [0] * v.VARIABLES
    return (tuple([value % modulus for value in state]) for _ in islice(_walk(machine, state), limit))


def execute(
    program: Program, modulus: int = 1000, condition_modulus: int = 10, max_steps: int = MAX_STEPS
) -> Execution:
    """Run a program to its end.

    Args:
        program: The program.
        modulus: What the value is taken modulo.
        condition_modulus: The number after `%` in conditions.
        max_steps: Statements carried out before giving up; one on a number of many bits counts as several.

    Raises:
        MaskedProgramError: A line is masked.
        EndlessLoopError: A loop never ends.
        StepLimitError: The program has not ended after `max_steps` steps.
    """
    machine = _compile(program, modulus, condition_modulus)
    loops = _loops(machine.graph)
    successors, exit_node = machine.successors, machine.graph.exit
    state = [0] * v.VARIABLES
    frames: list[_Frame] = []
    length = work = 0
    node = 0
    while True:
        while frames and not frames[-1].loop.head <= node < frames[-1].loop.end:
            frames.pop().remember(state, length)
        if node == exit_node:
            return Execution(state[0] % modulus, length)
        if work >= max_steps:
            reason = f"the program was given up after {max_steps:,} steps, here at `{machine.text(node)}`."
            raise StepLimitError(machine.line(node), reason)
        work += 1
        loop = loops.get(node)
        if loop:
            key = tuple([state[k] for k in loop.inputs])
            known = loop.results.get(key)
            if known:
                for k, result in zip(loop.outputs, known.outputs, strict=True):
                    state[k] = result
                length += known.length
                node = successors[node][False]
                continue
            if not frames or frames[-1].loop is not loop:
                frames.append(_Frame(loop))
            elif key in frames[-1].arrivals:
                raise EndlessLoopError(machine.line(node), f"`{machine.text(node)}` never ends: its state repeats.")
            frames[-1].arrivals[key] = length
        branch = machine.step(node, state)
        length += 1
        work += state[machine.variables[node]].bit_length() // _BITS_A_STEP
        node = successors[node][branch]


@dataclass(slots=True)
class _Machine:
    """A program as plain Python lists, one entry a node, and the step on them."""

    graph: ControlFlowGraph
    modulus: int
    condition_modulus: int
    operations: list[int]
    comparisons: list[int | None]  # None where the node is no condition
    variables: list[int]
    operands: list[int]
    modulo: list[bool]  # whether the node's condition is on the variable modulo `condition_modulus`
    successors: list[tuple[int, int]]  # false, true
    reduction: list[int | None]  # by variable: what its value may be taken modulo without changing anything

    def step(self, node: int, state: list[int]) -> bool:
        """Carry out one node; whether its condition held, False if it has none."""
        comparison, variable, operand = self.comparisons[node], self.variables[node], self.operands[node]
        current = state[variable]
        if comparison is not None:
            return compare(comparison, current % self.condition_modulus if self.modulo[node] else current, operand)
        current = apply(self.operations[node], current, operand)
        reduction = self.reduction[variable]
        state[variable] = current if reduction is None else current % reduction
        return False

    def line(self, node: int) -> int:
        return int(self.graph.nodes[node]) + 1

    def text(self, node: int) -> str:
        return format_line(self.graph.program.lines[self.line(node) - 1], self.condition_modulus)


def _compile(program: Program, modulus: int, condition_modulus: int) -> _Machine:
    if modulus < 1 or condition_modulus < 1:
        raise ValueError(f"modulus is {modulus} and condition_modulus {condition_modulus}; both must be at least 1.")
    if program.is_partial:
        line = program.masked_lines[0] + 1
        raise MaskedProgramError(line, "the line is masked, so the program has no value; put a statement in its place.")
    graph = control_flow_graph(program)
    _, operations, variables, operands = (column.tolist() for column in graph.node_tokens[:-1].T)
    variables = [variable - v.VARIABLE for variable in variables]
    operands = [operand - v.NUMBER for operand in operands]
    comparisons = [COMPARISON.get(operation) for operation in operations]
    modulo = [operation in MODULAR for operation in operations]
    # Additions, subtractions and products commute with taking remainders, and so do conditions on a remainder. A plain
    # comparison does not: a variable that meets one keeps its full value.
    reduction: list[int | None] = [condition_modulus] * v.VARIABLES
    reduction[0] = lcm(modulus, condition_modulus)
    for comparison, modular, variable in zip(comparisons, modulo, variables, strict=True):
        if comparison is not None and not modular:
            reduction[variable] = None
    successors = list(zip(graph.false.tolist(), graph.true.tolist(), strict=True))
    return _Machine(
        graph, modulus, condition_modulus, operations, comparisons, variables, operands, modulo, successors, reduction
    )


def _walk(machine: _Machine, state: list[int]) -> Iterator[Step]:
    """The steps from a state on, which they change."""
    lines = machine.graph.nodes.tolist()
    node = 0
    while node != machine.graph.exit:
        branch = machine.step(node, state)
        yield Step(lines[node], state[0] % machine.modulus, None if machine.comparisons[node] is None else branch)
        node = machine.successors[node][branch]


class _Result(NamedTuple):
    outputs: tuple[int, ...]
    length: int


@dataclass(eq=False, slots=True)
class _Loop:
    """A loop, which control enters at its head and leaves for one place only, the head's false successor.

    Attributes:
        head, end: The nodes of the loop are `head` to `end - 1`.
        inputs: Variables that decide what the loop does from its head on.
        outputs: Variables it may change that are read afterwards.
        results: By values of `inputs` at the head: `outputs` after the loop and the statements until then.
    """

    head: int
    end: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    results: dict[tuple[int, ...], _Result] = field(default_factory=dict)


@dataclass(slots=True)
class _Frame:
    """A loop under way: the values of its inputs at each arrival at its head, and the trace length then."""

    loop: _Loop
    arrivals: dict[tuple[int, ...], int] = field(default_factory=dict)

    def remember(self, state: list[int], length: int) -> None:
        outputs = tuple([state[k] for k in self.loop.outputs])
        for key, arrival in self.arrivals.items():
            self.loop.results[key] = _Result(outputs, length - arrival)


def _loops(graph: ControlFlowGraph) -> dict[int, _Loop]:
    """The loops by their head nodes. Sets of variables are bit masks."""
    live = _live_variables(graph)
    tokens = graph.node_tokens[:-1].tolist()
    loops: dict[int, _Loop] = {}
    open_loops: list[list[int]] = []  # head, indent, variables mentioned, variables written

    def close(end: int) -> None:
        head, _, mentioned, written = open_loops.pop()
        if open_loops:
            open_loops[-1][2] |= mentioned
            open_loops[-1][3] |= written
        after = live[int(graph.false[head])]
        loops[head] = _Loop(head, end, _members(mentioned & live[head]), _members(written & after))

    for node, (indent, operation, variable, _) in enumerate(tokens):
        while open_loops and indent <= open_loops[-1][1]:
            close(node)
        if operation in v.WHILE_OPERATIONS:
            open_loops.append([node, indent, 0, 0])
        if open_loops:
            bit = 1 << (variable - v.VARIABLE)
            open_loops[-1][2] |= bit
            if operation not in v.WHILE_OPERATIONS and operation not in v.IF_OPERATIONS:
                open_loops[-1][3] |= bit
    while open_loops:
        close(len(tokens))
    return loops


def _live_variables(graph: ControlFlowGraph) -> list[int]:
    """By node, the variables whose values on arrival can matter to a condition or to the final v0, as bit masks.

    A variable that is only counted up and never looked at is not live: `v2 += 1` reads v2 for v2's sake alone.
    """
    tokens = graph.node_tokens.tolist()
    true, false = graph.true.tolist(), graph.false.tolist()
    predecessors: list[list[int]] = [[] for _ in tokens]
    for node in range(graph.exit):
        for successor in {true[node], false[node]}:
            predecessors[successor].append(node)
    live = [0] * len(tokens)
    live[graph.exit] = 1  # v0
    waiting = list(range(graph.exit))  # the last node first; a node comes back whenever a successor's set has grown
    while waiting:
        node = waiting.pop()
        _, operation, variable, _ = tokens[node]
        bit = 1 << (variable - v.VARIABLE)
        needed = live[true[node]] | live[false[node]]
        if operation == v.ASSIGN:
            needed &= ~bit
        elif operation in v.IF_OPERATIONS or operation in v.WHILE_OPERATIONS:
            needed |= bit
        if needed != live[node]:
            live[node] = needed
            waiting += predecessors[node]
    return live


def _members(mask: int) -> tuple[int, ...]:
    return tuple(k for k in range(v.VARIABLES) if mask >> k & 1)
