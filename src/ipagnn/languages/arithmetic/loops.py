"""Loops of a program, what decides what they do, and results of them that are remembered."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ipagnn.languages.arithmetic import vocabulary as v

if TYPE_CHECKING:
    from ipagnn.languages.arithmetic.interpreter import Machine


class Result(NamedTuple):
    """What a loop did: values of its outputs, and statements executed."""

    outputs: tuple[int, ...]
    length: int


@dataclass(eq=False, slots=True)
class Loop:
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
    results: dict[tuple[int, ...], Result] = field(default_factory=dict)


@dataclass(slots=True)
class Frame:
    """A loop under way: the values of its inputs at each arrival at its head, and the trace length then."""

    loop: Loop
    arrivals: dict[tuple[int, ...], int] = field(default_factory=dict)

    def remember(self, state: list[int], length: int) -> None:
        """Store what the loop did from each arrival on, now that it is left."""
        outputs = tuple([state[k] for k in self.loop.outputs])
        for key, arrival in self.arrivals.items():
            self.loop.results[key] = Result(outputs, length - arrival)


def find_loops(machine: "Machine") -> dict[int, Loop]:
    """The loops by their head nodes. Sets of variables are bit masks."""
    graph = machine.graph
    live = live_variables(machine)
    tokens = graph.node_tokens[:-1, :2].tolist()
    loops: dict[int, Loop] = {}
    open_loops: list[list[int]] = []  # head, indent, variables mentioned, variables written

    def close(end: int) -> None:
        head, _, mentioned, written = open_loops.pop()
        if open_loops:
            open_loops[-1][2] |= mentioned
            open_loops[-1][3] |= written
        after = live[int(graph.false[head])]
        loops[head] = Loop(head, end, _members(mentioned & live[head]), _members(written & after))

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


def live_variables(machine: "Machine") -> list[int]:
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
