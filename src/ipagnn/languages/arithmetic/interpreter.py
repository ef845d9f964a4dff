"""The exact value and the trace of a program.

Semantics are Python's, with integers of any size; a variable that no executed line has assigned is 0. With `wrap`,
every assignment takes its result modulo the modulus (see `Grammar.wrap`). What a loop does depends on few numbers: the
values, at its head, of the variables that it mentions and that are live there. `execute` therefore remembers every
loop's result by those values and runs programs whose traces are far too long to walk. If such values come back before
the loop ends, it never will.
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
        v0: v0, or the variable that was asked for, modulo the modulus after the statement.
        branch: Whether the condition held; None for a statement without one.
    """

    line: int
    v0: int
    branch: bool | None


class Execution(NamedTuple):
    """What running a program to its end gives.

    Attributes:
        value: v0, or the variable that was asked for, modulo the modulus.
        trace_length: Number of statements on the way, not counting `else`, `pass`, `break` and `continue`.
    """

    value: int
    trace_length: int


def value(
    program: Program,
    modulus: int = 1000,
    condition_modulus: int = 10,
    max_steps: int = MAX_STEPS,
    *,
    wrap: bool = False,
    variable: int = 0,
) -> int:
    """The value of a program; see `execute`."""
    return execute(program, modulus, condition_modulus, max_steps, wrap=wrap, variable=variable).value


def trace_length(program: Program, condition_modulus: int = 10, max_steps: int = MAX_STEPS) -> int:
    """The exact number of statements a program executes, however many; see `execute`."""
    return execute(program, 1, condition_modulus, max_steps).trace_length


def trace(
    program: Program,
    limit: int | None = 10_000,
    modulus: int = 1000,
    condition_modulus: int = 10,
    *,
    wrap: bool = False,
    variable: int = 0,
) -> Iterator[Step]:
    """The executed statements one after the other, made as they are asked for.

    Args:
        program: The program.
        limit: Statements after which the trace is cut off; None never cuts it off, even if the program is endless.
        modulus: What v0 is reported modulo.
        condition_modulus: The number after `%` in conditions.
        wrap: Whether assignments take their results modulo `modulus`.
        variable: The variable that is reported, v0 by default.

    Raises:
        MaskedProgramError: A line is masked.
    """
    machine = _compile(program, modulus, condition_modulus, wrap, variable)
    return islice(_walk(machine, [0] * v.MAX_VARIABLES), limit)


def trace_values(
    program: Program,
    limit: int | None = 10_000,
    modulus: int = 1000,
    condition_modulus: int = 10,
    *,
    wrap: bool = False,
) -> Iterator[tuple[int, ...]]:
    """The values of all variables, modulo the modulus, after each executed statement; see `trace`."""
    machine = _compile(program, modulus, condition_modulus, wrap, 0)
    common = lcm(modulus, condition_modulus)
    machine.reduction = [None if reduction is None else common for reduction in machine.reduction]
    state = [0] * v.MAX_VARIABLES
    return (tuple([value % modulus for value in state]) for _ in islice(_walk(machine, state), limit))


def execute(
    program: Program,
    modulus: int = 1000,
    condition_modulus: int = 10,
    max_steps: int = MAX_STEPS,
    *,
    wrap: bool = False,
    variable: int = 0,
) -> Execution:
    """Run a program to its end.

    Args:
        program: The program.
        modulus: What the value is taken modulo.
        condition_modulus: The number after `%` in conditions.
        max_steps: Statements carried out before giving up; one on a number of many bits counts as several.
        wrap: Whether assignments take their results modulo `modulus`.
        variable: The variable that is the value, v0 by default.

    Raises:
        MaskedProgramError: A line is masked.
        EndlessLoopError: A loop never ends.
        StepLimitError: The program has not ended after `max_steps` steps.
    """
    machine = _compile(program, modulus, condition_modulus, wrap, variable)
    loops = _loops(machine)
    successors, exit_node = machine.successors, machine.graph.exit
    state = [0] * v.MAX_VARIABLES
    frames: list[_Frame] = []
    length = work = 0
    node = 0
    while True:
        while frames and not frames[-1].loop.head <= node < frames[-1].loop.end:
            frames.pop().remember(state, length)
        if node == exit_node:
            return Execution(state[variable] % modulus, length)
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
    asked: int  # the variable that is the program's value
    operations: list[int]
    comparisons: list[int | None]  # None where the node is no condition
    variables: list[int]
    operands: list[int]
    sources: list[int | None]  # the variable that the operand is read from; None where it is a number
    modulo: list[bool]  # whether the node's condition is on the variable modulo `condition_modulus`
    successors: list[tuple[int, int]]  # false, true
    reduction: list[int | None]  # by variable: what its value may be taken modulo without changing anything

    def step(self, node: int, state: list[int]) -> bool:
        """Carry out one node; whether its condition held, False if it has none."""
        comparison, variable, source = self.comparisons[node], self.variables[node], self.sources[node]
        operand = self.operands[node] if source is None else state[source]
        current = state[variable]
        if comparison is not None:
            return compare(comparison, current % self.condition_modulus if self.modulo[node] else current, operand)
        current = apply(self.operations[node], current, operand)
        reduction = self.reduction[variable]
        state[variable] = current if reduction is None else current % reduction
        return False

    def reads(self, node: int) -> int:
        """The variable that the node's operand is read from, as a bit mask; 0 for a number."""
        source = self.sources[node]
        return 0 if source is None else 1 << source

    def line(self, node: int) -> int:
        return int(self.graph.nodes[node]) + 1

    def text(self, node: int) -> str:
        return format_line(self.graph.program.lines[self.line(node) - 1], self.condition_modulus)


def _compile(program: Program, modulus: int, condition_modulus: int, wrap: bool, asked: int) -> _Machine:
    if modulus < 1 or condition_modulus < 1:
        raise ValueError(f"modulus is {modulus} and condition_modulus {condition_modulus}; both must be at least 1.")
    if program.is_partial:
        line = program.masked_lines[0] + 1
        raise MaskedProgramError(line, "the line is masked, so the program has no value; put a statement in its place.")
    graph = control_flow_graph(program)
    rows = graph.node_tokens[:-1].tolist()
    operations = [row[1] for row in rows]
    variables = [v.variable_of(row[2]) for row in rows]
    operands = [v.number_of(row[3:]) for row in rows]
    sources = [v.variable_of(row[3]) if row[3] >= v.VARIABLE else None for row in rows]
    comparisons = [COMPARISON.get(operation) for operation in operations]
    modulo = [operation in MODULAR for operation in operations]
    # Additions, subtractions and products commute with taking remainders, and so do conditions on a remainder. A plain
    # comparison does not: variables that meet one keep their full value, and so do those that are added to these.
    plain = {
        k
        for comparison, modular, variable, source in zip(comparisons, modulo, variables, sources, strict=True)
        if comparison is not None
        for k in ((source,) if modular else (variable, source))
        if k is not None
    }
    flows = {
        (source, variable)
        for comparison, variable, source in zip(comparisons, variables, sources, strict=True)
        if comparison is None and source is not None
    }
    reduction: list[int | None] = [condition_modulus] * v.MAX_VARIABLES
    for k in _reaching({asked}, flows):
        reduction[k] = lcm(modulus, condition_modulus)
    for k in _reaching(plain, flows):
        reduction[k] = None
    if wrap:
        reduction = [modulus] * v.MAX_VARIABLES
    successors = list(zip(graph.false.tolist(), graph.true.tolist(), strict=True))
    return _Machine(
        graph,
        modulus,
        condition_modulus,
        asked,
        operations,
        comparisons,
        variables,
        operands,
        sources,
        modulo,
        successors,
        reduction,
    )


def _reaching(variables: set[int], flows: set[tuple[int, int]]) -> set[int]:
    """The variables, and all whose values flow into one of them; a flow is (from, to)."""
    reached = set(variables)
    while new := {source for source, variable in flows if variable in reached} - reached:
        reached |= new
    return reached


def _walk(machine: _Machine, state: list[int]) -> Iterator[Step]:
    """The steps from a state on, which they change."""
    lines = machine.graph.nodes.tolist()
    node = 0
    while node != machine.graph.exit:
        branch = machine.step(node, state)
        yield Step(
            lines[node], state[machine.asked] % machine.modulus, None if machine.comparisons[node] is None else branch
        )
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


def _loops(machine: _Machine) -> dict[int, _Loop]:
    """The loops by their head nodes. Sets of variables are bit masks."""
    graph = machine.graph
    live = _live_variables(machine)
    tokens = graph.node_tokens[:-1, :2].tolist()
    loops: dict[int, _Loop] = {}
    open_loops: list[list[int]] = []  # head, indent, variables mentioned, variables written

    def close(end: int) -> None:
        head, _, mentioned, written = open_loops.pop()
        if open_loops:
            open_loops[-1][2] |= mentioned
            open_loops[-1][3] |= written
        after = live[int(graph.false[head])]
        loops[head] = _Loop(head, end, _members(mentioned & live[head]), _members(written & after))

    for node, (indent, operation) in enumerate(tokens):
        while open_loops and indent <= open_loops[-1][1]:
            close(node)
        if operation in v.WHILE_OPERATIONS:
            open_loops.append([node, indent, 0, 0])
        if open_loops:
            bit = 1 << machine.variables[node]
            open_loops[-1][2] |= bit | machine.reads(node)
            if operation not in v.WHILE_OPERATIONS and operation not in v.IF_OPERATIONS:
                open_loops[-1][3] |= bit
    while open_loops:
        close(len(tokens))
    return loops


def _live_variables(machine: _Machine) -> list[int]:
    """By node, the variables whose values on arrival can matter to a condition or to the result, as bit masks.

    A variable that is only counted up and never looked at is not live: `v2 += 1` reads v2 for v2's sake alone.
    """
    graph = machine.graph
    true, false = graph.true.tolist(), graph.false.tolist()
    predecessors: list[list[int]] = [[] for _ in true]
    for node in range(graph.exit):
        for successor in {true[node], false[node]}:
            predecessors[successor].append(node)
    live = [0] * len(true)
    live[graph.exit] = 1 << machine.asked
    waiting = list(range(graph.exit))  # the last node first; a node comes back whenever a successor's set has grown
    while waiting:
        node = waiting.pop()
        bit = 1 << machine.variables[node]
        needed = live[true[node]] | live[false[node]]
        if machine.comparisons[node] is not None:
            needed |= bit | machine.reads(node)
        elif needed & bit:
            if machine.operations[node] == v.ASSIGN:
                needed &= ~bit
            needed |= machine.reads(node)
        if needed != live[node]:
            live[node] = needed
            waiting += predecessors[node]
    return live


def _members(mask: int) -> tuple[int, ...]:
    return tuple(k for k in range(v.MAX_VARIABLES) if mask >> k & 1)
