"""The exact value and the trace of a program.

Semantics are Python's, with integers of any size; a variable that no executed line has assigned is 0. With `wrap`,
every assignment takes its result modulo the modulus (see `Grammar.wrap`). What a loop does depends on few numbers: the
values, at its head, of the variables that it mentions and that are live there. `execute` therefore remembers every
loop's result by those values and runs programs whose traces are far too long to walk. If such values come back before
the loop ends, it never will.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from math import lcm
from typing import NamedTuple

from ipagnn.languages.arithmetic import vocabulary as v
from ipagnn.languages.arithmetic.cfg import ControlFlowGraph, control_flow_graph
from ipagnn.languages.arithmetic.loops import Frame, find_loops
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


class ExecutionResult(NamedTuple):
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
) -> ExecutionResult:
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
    loops = find_loops(machine)
    successors, exit_node = machine.successors, machine.graph.exit
    state = [0] * v.MAX_VARIABLES
    frames: list[Frame] = []
    length = work = 0
    node = 0
    while True:
        while frames and not frames[-1].loop.head <= node < frames[-1].loop.end:
            frames.pop().remember(state, length)
        if node == exit_node:
            return ExecutionResult(state[variable] % modulus, length)
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
                frames.append(Frame(loop))
            elif key in frames[-1].arrivals:
                raise EndlessLoopError(machine.line(node), f"`{machine.text(node)}` never ends: its state repeats.")
            frames[-1].arrivals[key] = length
        branch = machine.step(node, state)
        length += 1
        work += state[machine.variables[node]].bit_length() // _BITS_A_STEP
        node = successors[node][branch]


@dataclass(slots=True)
class Machine:
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
        """Number of the node's line, from 1."""
        return int(self.graph.nodes[node]) + 1

    def text(self, node: int) -> str:
        """The node's line."""
        return format_line(self.graph.program.lines[self.line(node) - 1], self.condition_modulus)


def _compile(program: Program, modulus: int, condition_modulus: int, wrap: bool, asked: int) -> Machine:
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
    return Machine(
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


def _walk(machine: Machine, state: list[int]) -> Iterator[Step]:
    """The steps from a state on, which they change."""
    lines = machine.graph.nodes.tolist()
    node = 0
    while node != machine.graph.exit:
        branch = machine.step(node, state)
        yield Step(
            lines[node], state[machine.asked] % machine.modulus, None if machine.comparisons[node] is None else branch
        )
        node = machine.successors[node][branch]
