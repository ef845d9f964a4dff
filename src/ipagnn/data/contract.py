"""The one contract between data and models: every field of a `Batch`, with its meaning, axes and type.

A batch is *one large graph*: the nodes of all its programs stand one after the other and nothing is padded, so programs
of any length mix freely and a program's result cannot depend on its neighbours. Axes are named once, here:

- `program`: the programs of the batch;  `node`: control flow graph nodes of all programs, each program's exit last;
- `line`: lines of all programs;  `token`: the tokens of a statement, four in the paper's language (`Grammar.tokens`);
- `statement`: statements of the true traces of all programs, where they are known.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ipagnn.data.graphs import Graphs, Planned, Tensors, check_graphs
from ipagnn.data.tasks import DTYPES, VALUE, Target


@dataclass(frozen=True, slots=True)
class Field:
    """What a tensor of the contract holds.

    Attributes:
        axes: Names of its axes; `+1` marks offsets, which have one entry more.
        dtype: Its element type.
        meaning: One sentence.
        optional: Whether a batch may have None in its place.
    """

    axes: tuple[str, ...]
    dtype: torch.dtype
    meaning: str
    optional: bool = False


_INT = torch.int32

BATCH_FIELDS: dict[str, Field] = {
    "steps": Field(("program",), _INT, "Steps the model may take: T(x), or what the step budget made of it."),
    "line_offsets": Field(("program+1",), _INT, "Program i has the lines line_offsets[i] : line_offsets[i + 1]."),
    "line_tokens": Field(("line", "token"), _INT, "Token ids of every line, in the order of the text."),
    "node_offsets": Field(("program+1",), _INT, "Program i has the nodes node_offsets[i] : node_offsets[i + 1]."),
    "node_tokens": Field(("node", "token"), _INT, "Token ids of the statement at a node; 0 at an exit."),
    "node_program": Field(("node",), _INT, "The program a node belongs to."),
    "node_line": Field(("node",), _INT, "The line a node stands for, counted within its program; -1 at an exit."),
    "true": Field(("node",), _INT, "The node reached when the condition holds; an exit is its own successor."),
    "false": Field(("node",), _INT, "The node reached when it does not; equal to `true` where nothing is decided."),
    "trace_offsets": Field(
        ("program+1",),
        torch.int64,
        "Program i runs the statements trace_offsets[i] : trace_offsets[i + 1] of `trace`.",
        optional=True,
    ),
    "trace": Field(
        ("statement",),
        _INT,
        "The node of each statement that really runs, in order; the exit is left out.",
        optional=True,
    ),
}


@dataclass(frozen=True, slots=True)
class Batch(Planned, Tensors):
    """What every model reads, and all that it reads; fields as in `BATCH_FIELDS`.

    Attributes:
        targets: What is to be predicted, by name, as the task declares it (`ipagnn.data.tasks`). [program] or [node]
        trace_offsets, trace: None where they are unknown, or were not asked for.
        plans: What executions have worked out for this batch; see `plan`.
    """

    targets: dict[str, Tensor]
    steps: Tensor
    line_offsets: Tensor
    line_tokens: Tensor
    node_offsets: Tensor
    node_tokens: Tensor
    node_program: Tensor
    node_line: Tensor
    true: Tensor
    false: Tensor
    trace_offsets: Tensor | None = None
    trace: Tensor | None = None
    plans: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def target(self) -> Tensor:
        """`targets["value"]`: the final value of each program. int64 [program]"""
        return self.targets["value"]

    @property
    def starts(self) -> Tensor:
        """Node 0 of every program. [program]"""
        return self.node_offsets[:-1]

    @property
    def exits(self) -> Tensor:
        """The exit node of every program. [program]"""
        return self.node_offsets[1:] - 1

    @property
    def graphs(self) -> Graphs:
        """The control flow graphs alone, as executions and layers read them."""
        return self.plan(control_flow_graphs)


def control_flow_graphs(batch: Batch) -> Graphs:
    """The graphs of a batch; `batch.graphs` keeps them."""
    successors = torch.stack([batch.true, batch.false], dim=1)
    return Graphs(successors, batch.node_offsets, batch.starts, batch.exits, batch.steps)


def check_batch(batch: Batch, targets: Sequence[Target] = (VALUE,)) -> None:
    """Hold a batch against the contract: types, axes that agree, indices in range.

    Args:
        batch: The batch.
        targets: Those of its task.

    Raises:
        ValueError: A field is not what the contract says; the sentence names it.
    """
    sizes = {"program": len(batch)}
    _check_fields(batch, sizes)
    _check_targets(batch, targets, sizes)
    _check_offsets("line_offsets", batch.line_offsets, sizes["line"])
    _check_offsets("node_offsets", batch.node_offsets, sizes["node"])
    _check_range("true", batch.true, 0, sizes["node"])
    _check_range("false", batch.false, 0, sizes["node"])
    if batch.trace_offsets is not None and batch.trace is not None:
        _check_offsets("trace_offsets", batch.trace_offsets, sizes["statement"])
        _check_range("trace", batch.trace, 0, sizes["node"])
    check_graphs(batch.graphs)


def _check_fields(batch: Batch, sizes: dict[str, int]) -> None:
    for name, declared in BATCH_FIELDS.items():
        tensor = getattr(batch, name)
        if tensor is None and declared.optional:
            continue
        if tensor.dtype != declared.dtype or tensor.ndim != len(declared.axes):
            raise ValueError(
                f"{name} is {tensor.dtype} with {tensor.ndim} axes; "
                f"the contract says {declared.dtype} {list(declared.axes)}."
            )
        for axis, size in zip(declared.axes, tensor.shape, strict=True):
            base, extra = (axis[:-2], 1) if axis.endswith("+1") else (axis, 0)
            expected = sizes.setdefault(base, size - extra) + extra
            if size != expected:
                raise ValueError(f"{name} has {size} entries on axis {axis}; the other fields say {expected}.")


def _check_targets(batch: Batch, targets: Sequence[Target], sizes: dict[str, int]) -> None:
    if (found := set(batch.targets)) != (wanted := {target.name for target in targets}):
        raise ValueError(f"The batch has the targets {sorted(found)}; the task declares {sorted(wanted)}.")
    for target in targets:
        tensor, dtype, shape = batch.targets[target.name], DTYPES[target.kind], (sizes[target.axis],)
        if tensor.dtype != dtype or tuple(tensor.shape) != shape:
            raise ValueError(
                f"The target {target.name} is {tensor.dtype} {list(tensor.shape)}; "
                f"the task says {dtype} {list(shape)}, one for each {target.axis}."
            )


def _check_offsets(name: str, offsets: Tensor, end: int) -> None:
    if int(offsets[0]) != 0 or int(offsets[-1]) != end or bool((offsets.diff() < 0).any()):
        raise ValueError(f"{name} does not rise from 0 to {end}, the number of entries that it divides.")


def _check_range(name: str, tensor: Tensor, low: int, high: int) -> None:
    if len(tensor) and not (low <= int(tensor.min()) and int(tensor.max()) < high):
        raise ValueError(
            f"{name} holds indices {int(tensor.min())}..{int(tensor.max())}; the contract says {low}..{high - 1}."
        )
