"""From programs to the batch that models read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from ipagnn.data._compiled.collate import build_graphs
from ipagnn.data.contract import Batch
from ipagnn.data.tasks import VALUE, Target
from ipagnn.languages.arithmetic._compiled.trace import trace_all
from ipagnn.languages.arithmetic.checks import check_targets
from ipagnn.languages.arithmetic.program import Program, ProgramTable
from ipagnn.languages.arithmetic.vocabulary import NUMBER

STEP_LIMIT = 1_000_000
"""No program of a batch may ask for more steps than this."""
TRACE_LIMIT = 20_000
"""Most steps of the true trace that a batch holds of one program, by default."""


@dataclass(frozen=True, slots=True)
class StepBudget:
    """How many steps a model may take on a program.

    Attributes:
        kind: `paper` is T(x) (docs/specification.md, section 3); `static` is enough for the true trace by the loop
            counts that stand in the text; `trace` is what the true trace has and two more, for complete programs.
        factor: Multiplies any of them; 2.0 gives twice the steps.
        cap: Most steps of the latter two, which grow without bound.
    """

    kind: Literal["paper", "static", "trace"] = "paper"
    factor: float = 1.0
    cap: int = 10_000

    def __post_init__(self) -> None:
        if self.kind not in ("paper", "static", "trace"):
            raise ValueError(f"The step budget {self.kind!r} is unknown; choose 'paper', 'static' or 'trace'.")
        if not 0 < self.factor <= STEP_LIMIT:
            raise ValueError(
                f"A step budget's factor is a positive number of at most {STEP_LIMIT}; {self.factor!r} is not."
            )
        if not 1 <= self.cap <= STEP_LIMIT:
            raise ValueError(f"A step budget's cap lies in 1..{STEP_LIMIT}; {self.cap} does not.")

    @staticmethod
    def of(budget: "StepBudget | str | float") -> "StepBudget":
        """The budget that is meant: a multiple of T(x), such as `2` or `"2"`, or `"paper"`, `"static"` or `"trace"`."""
        if isinstance(budget, StepBudget):
            return budget
        if budget in ("paper", "static", "trace"):
            return StepBudget(budget)  # type: ignore[arg-type]
        try:
            return StepBudget(factor=float(budget))
        except ValueError:
            raise ValueError(
                f"The step budget is {budget!r}; it must be a positive multiple of T(x), such as 2, paper, static or "
                "trace."
            ) from None

    def apply(self, steps: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The budget that becomes of the counted `steps`: T(x), the bound by loop counts, or the trace's."""
        spare = 2 if self.kind == "trace" else 0  # a loop may be left late by one test
        budget: npt.NDArray[np.int64] = np.ceil((steps + spare) * self.factor).astype(np.int64)
        if self.kind != "paper":
            budget = np.minimum(budget, self.cap)
        if len(budget) and budget.max() > STEP_LIMIT:
            raise ValueError(
                f"Program {int(budget.argmax())} of the batch asks for {int(budget.max()):,} steps or more; "
                f"at most {STEP_LIMIT:,} are run. Nest its loops less deeply, or choose a smaller step budget."
            )
        return budget


PAPER_BUDGET = StepBudget()


def collate(
    programs: ProgramTable | Sequence[Program],
    budget: StepBudget = PAPER_BUDGET,
    *,
    modulus: int = 1000,
    condition_modulus: int = 10,
    trace_limit: int = TRACE_LIMIT,
    indent: bool = True,
    trace: bool = False,
    extended: bool = False,
    wrap: bool = False,
    targets: Sequence[Target] = (VALUE,),
) -> Batch:
    """Build the batch of `programs`.

    Args:
        programs: A table, or any sequence of programs (whose targets are then unknown).
        budget: How many steps the models may take.
        modulus, condition_modulus, wrap: Of the grammar; they decide the true trace and nothing else.
        trace_limit: Longer traces are cut off here (of the paper's test programs, about 1 in 200 at length 100).
        indent: Whether statements say how far they are indented; if not, all read as those of the first level. The
            graphs are the same.
        trace: Follow the true traces (complete programs only).
        extended: Whether programs may go past the paper's language.
        targets: What is to be predicted; see `ipagnn.data.tasks`.

    Returns:
        The batch, on the CPU.
    """
    table = programs if isinstance(programs, ProgramTable) else ProgramTable.from_programs(programs)
    check_targets(table.target, modulus)
    offsets, tokens, program, line, true, false, steps = graphs_of(
        table, budget, modulus, condition_modulus, extended, wrap
    )
    line_tokens = table.line_tokens.astype(np.int32)
    if not indent:
        line_tokens[:, 0] = NUMBER
        tokens[line >= 0, 0] = NUMBER
    followed = None
    if trace:
        followed = _traces(offsets, tokens, true, false, modulus, condition_modulus, trace_limit, wrap)
    batch = Batch(
        targets={},
        steps=torch.from_numpy(steps.astype(np.int32)),
        line_offsets=torch.from_numpy(table.line_offsets.astype(np.int32)),
        line_tokens=torch.from_numpy(line_tokens),
        node_offsets=torch.from_numpy(offsets),
        node_tokens=torch.from_numpy(tokens),
        node_program=torch.from_numpy(program),
        node_line=torch.from_numpy(line),
        true=torch.from_numpy(true),
        false=torch.from_numpy(false),
        trace_offsets=None if followed is None else torch.from_numpy(followed[0]),
        trace=None if followed is None else torch.from_numpy(followed[1]),
    )
    batch.targets.update({target.name: target.read(table, batch) for target in targets})
    return batch


def graphs_of(
    table: ProgramTable,
    budget: StepBudget = PAPER_BUDGET,
    modulus: int = 1000,
    condition_modulus: int = 10,
    extended: bool = False,
    wrap: bool = False,
) -> tuple[npt.NDArray[Any], ...]:
    """What `build_graphs` makes of all programs, but with the steps that `budget` gives them.

    Raises:
        ValueError: The table is not made of programs of the language, or one asks for too many steps.
    """
    table.check(extended=extended)
    *graphs, steps = build_graphs(table.line_offsets, table.line_tokens, budget.kind == "static")
    if budget.kind == "trace":
        offsets, tokens, _, _, true, false = graphs
        steps = np.diff(_traces(offsets, tokens, true, false, modulus, condition_modulus, budget.cap, wrap)[0])
    return *graphs, budget.apply(steps)


def _traces(
    node_offsets: npt.NDArray[np.int32],
    node_tokens: npt.NDArray[np.int32],
    true: npt.NDArray[np.int32],
    false: npt.NDArray[np.int32],
    modulus: int,
    condition_modulus: int,
    limit: int,
    wrap: bool,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Offsets [program + 1] and nodes of the true traces, one after the other."""
    offsets, nodes, program, problem = trace_all(
        node_offsets, node_tokens, true, false, modulus, condition_modulus, limit, wrap
    )
    if problem:
        why = "has a masked line" if problem == 1 else "compares a value beyond 2**40"
        raise ValueError(f"Program {program} of the batch {why}, so its trace cannot be followed; leave it out.")
    return offsets, nodes
