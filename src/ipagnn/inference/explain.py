"""How a model reached its prediction: its instruction pointer, its decisions, and the lines that it skipped."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ipagnn.evaluation.pointer import DISCRETE
from ipagnn.inference.ask import ask_with
from ipagnn.inference.beliefs import Beliefs, recorded_beliefs, walk
from ipagnn.inference.loaded import LoadedModel
from ipagnn.inference.predict import TOP, Prediction, prediction_of
from ipagnn.inference.run import Run, run_programs
from ipagnn.languages.arithmetic import ControlFlowGraph, Program, Step, control_flow_graph, trace
from ipagnn.languages.arithmetic._compiled.trace import trace_nodes
from ipagnn.languages.arithmetic.interpreter import MAX_STEPS

SHOWN_STEPS: Final = 2_000
"""Steps of the pointer that are kept; the numbers about lines are over all steps."""
COUNTED_STEPS: Final = 1_000_000
"""Statements of the true trace that are counted by line."""
ABSORBED: Final = 0.999
"""Steps are kept until this much of the pointer is at the exit."""
LEAST_MASS: Final = 0.05
"""A decision met by less pointer mass than this does not count as soft."""
SHORT: Final = 0.5
"""A line is short-cut if the model visits it this much less often than the true trace does."""
_TOLD: Final = 1e-3  # pointer entries below this are left out of JSON
_MOST_SOFT: Final = 100

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class SoftDecision:
    """A branch decision that was not discrete.

    Attributes:
        step: When, from 0.
        line: Where, an index of the program's lines from 0.
        mass: Pointer mass that met it.
        true: Share of it that took the true branch.
    """

    step: int
    line: int
    mass: float
    true: float


@dataclass(frozen=True, slots=True)
class Shortcut:
    """A line that the model visits less often than the true trace.

    Attributes:
        line: Which, from 0.
        visits: Expected number of times the pointer was there.
        executed: Number of times the true trace is there.
    """

    line: int
    visits: float
    executed: int


@dataclass(frozen=True, eq=False, slots=True)
class Explanation:
    """What a model did on a program. Nodes are those of the control flow graph, its exit last.

    Attributes:
        prediction: The prediction.
        graph: The control flow graph.
        pointer: p_{t,n} until the exit has it all, at most `SHOWN_STEPS` steps. [step + 1, node] None for a model
            without an instruction pointer; so are all fields below but `trace` and `executed`.
        branch: Probability of the true branch, NaN where nothing was decided. [step, node] None for a model that
            decides nothing itself; so are `path`, `path_ends` and `soft`.
        path: The nodes on the path of likelier branches, the exit left out.
        path_ends: Whether it leads to the exit within the steps given; None if it does after more steps than are kept.
        soft: Decisions that were not discrete, in the order of steps.
        visits: Expected number of times the pointer was at each node but the exit, over all steps; None for a model
            that runs over tables or automata for longer than is kept. [node - 1]
        trace: The true trace as far as `pointer` goes (`SHOWN_STEPS` without one); None for a masked program.
        executed: Number of times the true trace is at each node but the exit, counted over `COUNTED_STEPS` statements;
            None for a program that is masked or does not end. [node - 1]
        recorded: What else the model recorded for lines or nodes, by name: the axis, and an entry for each.
        beliefs: The value of each variable after each step; None for a model that holds none, or where the program is
            too long to record them.
    """

    prediction: Prediction
    graph: ControlFlowGraph = field(repr=False)
    pointer: Floats | None = field(repr=False)
    branch: Floats | None = field(repr=False)
    path: list[int] | None = field(repr=False)
    path_ends: bool | None
    soft: list[SoftDecision] | None
    visits: npt.NDArray[np.float64] | None = field(repr=False)
    trace: list[Step] | None = field(repr=False)
    executed: npt.NDArray[np.int64] | None = field(repr=False)
    recorded: dict[str, tuple[str, Floats]] = field(default_factory=dict, repr=False)
    beliefs: Beliefs | None = field(default=None, repr=False)

    @property
    def exit_mass(self) -> float | None:
        """Pointer mass at the exit in the end."""
        return self.prediction.exit_mass

    @property
    def shortcuts(self) -> list[Shortcut] | None:
        """Lines visited less often than they are executed; None where one or the other is unknown."""
        if self.visits is None or self.executed is None:
            return None
        rows = zip(self.graph.nodes.tolist(), self.visits.tolist(), self.executed.tolist(), strict=True)
        return [Shortcut(line, visits, executed) for line, visits, executed in rows if executed - visits > SHORT]

    def to_dict(self, count: int = TOP) -> dict[str, Any]:
        """As JSON knows it: what `ipagnn explain --json` and `POST /api/explain` answer. Indices count from 0."""
        graph = self.graph
        return self.prediction.to_dict(count) | {
            "nodes": graph.nodes.tolist(),
            "true": graph.true.tolist(),
            "false": graph.false.tolist(),
            "exit": graph.exit,
            "pointer": None if self.pointer is None else _sparse(np.where(self.pointer < _TOLD, np.nan, self.pointer)),
            "branch": None if self.branch is None else _sparse(self._met(self.branch)),
            "path": self.path,
            "path_ends": self.path_ends,
            "soft": _dicts(self.soft),
            "visits": None if self.visits is None else self.visits.round(4).tolist(),
            "trace": None if self.trace is None else [step._asdict() for step in self.trace],
            "executed": None if self.executed is None else self.executed.tolist(),
            "shortcuts": _dicts(self.shortcuts),
            "recorded": {
                name: {"axis": axis, "data": data.astype(np.float64).round(6).tolist()}
                for name, (axis, data) in self.recorded.items()
            },
            "beliefs": None if self.beliefs is None else self.beliefs.to_dict(),
        }

    def _met(self, branch: Floats) -> Floats:
        """Branch decisions where there was a pointer to meet them."""
        assert self.pointer is not None
        return np.where(self.pointer[: len(branch)] < _TOLD, np.nan, branch)

    def _repr_html_(self) -> str:
        from ipagnn.inference.html import explanation_html

        return explanation_html(self)


def explain_programs(programs: Sequence[Program], chosen: LoadedModel, max_steps: int = MAX_STEPS) -> list[Explanation]:
    """Predict the result of a program, or of each of several, and record how the model reached it."""
    runs = run_programs(programs, chosen)
    return [_explanation(program, chosen, run, max_steps) for program, run in zip(programs, runs, strict=True)]


explain = ask_with(explain_programs, "explain")


def _explanation(program: Program, chosen: LoadedModel, run: Run, max_steps: int) -> Explanation:
    prediction = prediction_of(program, chosen, run, max_steps)
    graph = control_flow_graph(program)
    grammar = chosen.grammar
    quantities: dict[str, Any] = dict.fromkeys(("pointer", "branch", "path", "path_ends", "soft", "visits"))
    shown = SHOWN_STEPS
    pointer, branch, ended, beliefs = run.pointer, run.branch, True, None
    if chosen.runs_on is not None:
        pointer, branch, ended, beliefs = walk(program, graph, chosen, SHOWN_STEPS)
    if pointer is not None:
        absorbed = pointer[:, -1] >= ABSORBED
        shown = min(int(absorbed.argmax()) if absorbed.any() else len(pointer) - 1, SHOWN_STEPS)
        quantities["pointer"] = pointer[: shown + 1]
        if ended:
            quantities["visits"] = pointer[:-1, :-1].astype(np.float64).sum(axis=0)
        beliefs = beliefs or recorded_beliefs(program, graph, chosen, shown)
    # A model may follow the true trace instead of deciding itself.
    if pointer is not None and branch is not None and (not np.isnan(branch).all() or (graph.true == graph.false).all()):
        path, ends = _likely_path(graph, branch)
        cut = not ended and run.exit_mass is not None and run.exit_mass >= 0.5  # it goes on to the exit, unseen
        quantities |= {"branch": branch[:shown], "path": path[:SHOWN_STEPS], "path_ends": None if cut else ends}
        quantities["soft"] = _soft(graph, pointer, branch)
    steps = None
    if not program.is_partial:
        moduli = grammar.modulus, grammar.condition_modulus
        steps = list(trace(program, shown, *moduli, wrap=grammar.wrap, variable=grammar.target_variable))
    executed = _executed(prediction, graph)
    return Explanation(
        prediction, graph, **quantities, trace=steps, executed=executed, recorded=run.recorded, beliefs=beliefs
    )


def _likely_path(graph: ControlFlowGraph, branch: Floats) -> tuple[list[int], bool]:
    """The nodes of the path that takes the likelier branch at every decision, and whether it ends."""
    path: list[int] = []
    node = 0
    for decisions in branch:
        path.append(node)
        true, false = int(graph.true[node]), int(graph.false[node])
        share = decisions[node]
        if true != false and np.isnan(share):  # nothing was computed here: the exit is out of reach, or mass was pruned
            return path, False
        node = true if true == false or share >= 0.5 else false
        if node == graph.exit:
            return path, True
    return path, False


def _soft(graph: ControlFlowGraph, pointer: Floats, branch: Floats) -> list[SoftDecision]:
    mass = pointer[: len(branch)]
    likelier = np.fmax(branch, 1 - branch)  # NaN where nothing was decided
    steps, nodes = np.nonzero((likelier <= DISCRETE) & (mass >= LEAST_MASS))
    worst = np.argsort(-(mass * (1 - likelier))[steps, nodes], kind="stable")[:_MOST_SOFT]
    return [
        SoftDecision(t, int(graph.nodes[n]), float(mass[t, n]), float(branch[t, n]))
        for t, n in sorted(zip(steps[worst].tolist(), nodes[worst].tolist(), strict=True))
    ]


def _executed(prediction: Prediction, graph: ControlFlowGraph) -> npt.NDArray[np.int64] | None:
    if prediction.true_value is None:
        return None
    grammar = prediction.grammar
    nodes, problem = trace_nodes(
        *(graph.node_tokens, graph.true, graph.false, 0, grammar.modulus, grammar.condition_modulus, COUNTED_STEPS),
        wrap=grammar.wrap,
    )
    return None if problem else np.bincount(nodes, minlength=graph.exit)


def _dicts(rows: list[SoftDecision] | list[Shortcut] | None) -> list[dict[str, Any]] | None:
    return None if rows is None else [asdict(row) for row in rows]


def _sparse(values: Floats) -> list[list[tuple[int, float]]]:
    """By step, the (node, value) that are numbers, rounded."""
    return [[(node, round(float(row[node]), 4)) for node in np.flatnonzero(~np.isnan(row)).tolist()] for row in values]
