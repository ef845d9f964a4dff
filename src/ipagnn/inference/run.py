"""Running a model on many programs at once, in batches of a bounded size."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from ipagnn.data import Batch
from ipagnn.data.collate import graphs_of
from ipagnn.inference.loaded import EXACT_NODE_STEPS, LoadedModel
from ipagnn.languages.arithmetic import Program, ProgramTable
from ipagnn.languages.arithmetic.interpreter import MAX_STEPS
from ipagnn.languages.arithmetic.table_run import ENDLESS, ENDS, TableRun
from ipagnn.languages.arithmetic.text import format_line
from ipagnn.models import Output, ProgramModel
from ipagnn.models.automata import AutomataAnswers, AutomataModel
from ipagnn.models.tabulated import TabulatedModel

BATCH_NODE_STEPS: Final = 20_000
"""Nodes times steps of a batch; a program of more makes a batch alone."""
BATCH_POINTER: Final = 2_000_000
"""Nodes of a batch times steps of its longest program: entries of the recorded pointer."""
BATCH_PROGRAMS: Final = 256
FEW_NODE_STEPS: Final = 500_000
"""Batches of fewer nodes times steps are computed by one thread.

Their matrix products are so small that threads wait for each other longer than they work, and much longer where other
processes want the cores as well.
"""
_FEWER_STEPS: Final = 10  # programs with several masked lines run so often that each run may take fewer steps by this

TOLD_APART: Final = frozenset({"pointer", "branch", "dropped", "exit_mass", "states", "beliefs", "likelihood"})
"""Recorded quantities that have a field of their own, or are too large to keep; all others are kept by name."""

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False, slots=True)
class Run:
    """What a model computed on one program.

    Attributes:
        steps: How many steps it was given, or took if it was not bounded.
        probabilities: Of every result; where there are `results`, of those. float64 [class] or [result]
        embedding: What the output layer read; `probabilities` for a model without such a layer. float32 [width]
        dropped: Pointer mass that was not followed.
        exit_mass: Pointer mass at the exit in the end; None for a model without a pointer.
        pointer: p_{t,n}; None for a model without one. [step + 1, node]
        branch: Probability of the true branch; None for a model that records none. [step, node]
        recorded: Other quantities that the model records for lines or nodes, by name: the axis, and an entry for each.
        warnings: What went wrong on the way, each as a sentence.
        results: The results that are possible, of a run over automata; None for all from 0 on. int64 [result]
    """

    steps: int
    probabilities: npt.NDArray[np.float64] = field(repr=False)
    embedding: Floats = field(repr=False)
    dropped: float
    exit_mass: float | None
    pointer: Floats | None = field(repr=False)
    branch: Floats | None = field(repr=False)
    recorded: dict[str, tuple[str, Floats]] = field(default_factory=dict, repr=False)
    warnings: tuple[str, ...] = ()
    results: npt.NDArray[np.int64] | None = field(default=None, repr=False)


def run_programs(programs: Sequence[Program], chosen: LoadedModel) -> list[Run]:
    """Run the model on all programs: over tables or automata if it can, else in batches, and long ones pruned.

    A program's result does not depend on the others, but for the rounding of float32.

    Raises:
        ValueError: The model cannot run one of the programs.
    """
    for program in programs:
        chosen.check(program)
    if isinstance(chosen.unbounded, TabulatedModel):
        return run_on_tables(programs, chosen, chosen.unbounded)
    if isinstance(chosen.unbounded, AutomataModel):
        return run_on_automata(programs, chosen, chosen.unbounded)
    results: list[Run | None] = [None] * len(programs)
    for which, prune, node_steps in _batches(programs, chosen):
        some = [programs[i] for i in which]
        batch = chosen.model.collate(some)
        with _threads(node_steps):
            output, read = _call(chosen.model, batch, prune)
        if not output.logits.isfinite().all():
            raise ValueError(f"The model {chosen.name} computes what is not a number; its weights are damaged.")
        for i, run in zip(which, _split(batch, output, read, chosen.takes_steps), strict=True):
            results[i] = run
    return [run for run in results if run is not None]


def run_on_tables(programs: Sequence[Program], chosen: LoadedModel, tabulated: TabulatedModel) -> list[Run]:
    """Run the model over its tables, with a hard pointer and without a bound on steps.

    All of the pointer reaches the exit, or none if the program never ends; of a masked program, that of the fillings
    which end.
    """
    most = max((len(program.masked_lines) for program in programs), default=0)
    found = tabulated.run(
        ProgramTable.from_programs(programs), max_steps=MAX_STEPS if most < 2 else MAX_STEPS // _FEWER_STEPS
    )
    probabilities = found.probabilities
    return [
        Run(
            steps=max(int(found.trace_length[i]), 0),
            probabilities=probabilities[i],
            embedding=probabilities[i].astype(np.float32),
            dropped=0.0,
            exit_mass=float(min(found.results[i].sum(), 1.0)),
            pointer=None,
            branch=None,
            warnings=tuple(_warnings(program, chosen, found, i, float(found.results[i].sum()))),
        )
        for i, program in enumerate(programs)
    ]


def run_on_automata(programs: Sequence[Program], chosen: LoadedModel, automata: AutomataModel) -> list[Run]:
    """Run the model over its automata, as `run_on_tables` does over tables. Every step of a run is certain.

    Where no run of a program ends, its result is 0 with probability 0.
    """
    if not programs:
        return []
    found = automata.run(ProgramTable.from_programs(programs))
    runs = []
    for i, program in enumerate(programs):
        count = max(1, np.count_nonzero(found.weights[i]))
        reached = float(found.weights[i].sum())
        probabilities = found.weights[i, :count] / (reached or 1.0)
        runs.append(
            Run(
                steps=max(int(found.steps[i]), 0),
                probabilities=probabilities,
                embedding=probabilities.astype(np.float32),
                dropped=0.0,
                exit_mass=min(reached, 1.0),
                pointer=None,
                branch=None,
                warnings=tuple(_warnings(program, chosen, found, i, reached)),
                results=np.maximum(found.results[i, :count], 0),
            )
        )
    return runs


def _warnings(
    program: Program, chosen: LoadedModel, found: TableRun | AutomataAnswers, i: int, reached: float
) -> Iterator[str]:
    """What is to be said about the run of program `i`, of whose fillings those that ended have the weight `reached`."""
    if found.status[i] != ENDS:
        line = int(found.stopped[i])
        text = format_line(program.lines[line], chosen.grammar.condition_modulus)
        share = 1 - reached
        who = f"With fillings of {share:.1%} of the weight, the" if program.is_partial else "The"
        what = "never ends" if found.status[i] == ENDLESS else "goes on for longer than was followed"
        yield f"{who} program {what} by what {chosen.name} has learned, here at `{text}` in line {line + 1}."
    if isinstance(found, TableRun) and found.error[i] > 0:
        yield f"Fillings of the masked lines are a sample; the standard error of the answer is {found.error[i]:.1%}."


def _batches(programs: Sequence[Program], chosen: LoadedModel) -> Iterator[tuple[list[int], float, int]]:
    """Which programs run together, how much mass to prune, and nodes times steps of all. Programs of like steps do."""
    if not programs:
        return
    grammar = chosen.grammar
    offsets, *_, given = graphs_of(
        ProgramTable.from_programs(programs),
        chosen.config.budget,
        grammar.modulus,
        grammar.condition_modulus,
        grammar.is_extended,
        grammar.wrap,
    )
    nodes, steps = np.diff(offsets).tolist(), given.tolist()
    order = sorted(range(len(programs)), key=lambda i: (steps[i], nodes[i], i))
    for long in (False, True):
        group: list[int] = []
        total = width = 0
        for i in order:
            if (nodes[i] * steps[i] > EXACT_NODE_STEPS) != long:
                continue
            full = len(group) == BATCH_PROGRAMS or total + nodes[i] * steps[i] > BATCH_NODE_STEPS
            if group and (full or (width + nodes[i]) * steps[i] > BATCH_POINTER):
                yield group, chosen.prune_for(nodes[group[-1]] * steps[group[-1]]), total
                group, total, width = [], 0, 0
            group.append(i)
            total, width = total + nodes[i] * steps[i], width + nodes[i]
        if group:
            yield group, chosen.prune_for(nodes[group[-1]] * steps[group[-1]]), total


@contextmanager
def _threads(node_steps: int) -> Iterator[None]:
    before = torch.get_num_threads()
    if node_steps > FEW_NODE_STEPS or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _call(model: ProgramModel, batch: Batch, prune: float) -> tuple[Output, torch.Tensor | None]:
    """The output, and what the output layer read."""
    read: list[torch.Tensor] = []
    layer = getattr(model, "output", None)
    hook = layer and layer.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    try:
        with torch.inference_mode():
            wanted = {"pointer", "branch", "dropped"} & model.records | (model.records - TOLD_APART)
            output = model(batch.to(next(model.parameters()).device), record=wanted, prune=prune)
    finally:
        if hook:
            hook.remove()
    return output, read[-1] if read else None


def _split(batch: Batch, output: Output, read: torch.Tensor | None, takes_steps: bool) -> Iterator[Run]:
    """What a batch's output says about each of its programs; a pointer is recorded as far as the longest goes."""
    probabilities = torch.softmax(output.logits.double().cpu(), dim=1).numpy()
    embeddings = (output.logits.softmax(dim=1) if read is None else read).float().cpu().numpy()
    arrays = {name: found.data.float().cpu().numpy() for name, found in output.recorded.items()}
    bounds = batch.node_offsets.tolist()
    of_axis = {"node": bounds, "line": batch.line_offsets.tolist()}
    for i, steps in enumerate(batch.steps.tolist()):
        nodes = slice(bounds[i], bounds[i + 1])
        last = steps if takes_steps else None
        pointer = arrays["pointer"][: None if last is None else last + 1, nodes] if "pointer" in arrays else None
        yield Run(
            steps=steps,
            probabilities=probabilities[i],
            embedding=embeddings[i],
            dropped=float(arrays["dropped"][i]) if "dropped" in arrays else 0.0,
            exit_mass=None if pointer is None else float(pointer[-1, -1]),
            pointer=pointer,
            branch=arrays["branch"][:last, nodes] if "branch" in arrays else None,
            recorded={
                name: (axis, arrays[name][of_axis[axis][i] : of_axis[axis][i + 1]])
                for name, axis in (
                    (name, *output.recorded[name].axes[:1]) for name in sorted(arrays.keys() - TOLD_APART)
                )
                if axis in of_axis and arrays[name].ndim == 1
            },
        )
