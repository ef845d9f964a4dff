"""The one contract between data and models: every field of a `Batch`, with its meaning, axes and type.

A batch is *one large graph*: the nodes of all its programs stand one after the other and nothing is padded, so programs
of any length mix freely and a program's result cannot depend on its neighbours. Axes are named once, here:

- `program`: the programs of the batch;  `node`: control flow graph nodes of all programs, each program's exit last;
- `line`: lines of all programs;  `token`: the tokens of a statement, four in the paper's language (`Grammar.tokens`);
- `row`: node-steps (t, n) that the packed execution computes, ordered by step, then by program;
- `edge`: arrivals of state at rows and exits, ordered by destination.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ipagnn.data.graphs import Tensors

RowKind = Literal["graph", "trace", "lines"]
"""What the rows of a batch walk: every useful node-step, the true trace, or the lines in order."""


@dataclass(frozen=True, slots=True)
class Field:
    """What a tensor of the contract holds.

    Attributes:
        axes: Names of its axes; `+1` marks offsets, which have one entry more.
        dtype: Its element type.
        meaning: One sentence.
        padding: The value that stands for "none"; None where there is no such entry.
        optional: Whether a batch may have None in its place.
    """

    axes: tuple[str, ...]
    dtype: torch.dtype
    meaning: str
    padding: int | None = None
    optional: bool = False


_INT, _BOOL = torch.int32, torch.bool

BATCH_FIELDS: dict[str, Field] = {
    "target": Field(
        ("program",), torch.int64, "v0 modulo the grammar's modulus at the end of the complete program.", -1
    ),
    "steps": Field(("program",), _INT, "Steps the model may take: T(x), or what the step budget made of it."),
    "line_offsets": Field(("program+1",), _INT, "Program i has the lines line_offsets[i] : line_offsets[i + 1]."),
    "line_tokens": Field(("line", "token"), _INT, "Token ids of every line, in the order of the text."),
    "node_offsets": Field(("program+1",), _INT, "Program i has the nodes node_offsets[i] : node_offsets[i + 1]."),
    "node_tokens": Field(("node", "token"), _INT, "Token ids of the statement at a node; an exit has none.", 0),
    "node_program": Field(("node",), _INT, "The program a node belongs to."),
    "node_line": Field(
        ("node",), _INT, "The line a node stands for, counted within its program; an exit has none.", -1
    ),
    "true": Field(("node",), _INT, "The node reached when the condition holds; an exit is its own successor."),
    "false": Field(("node",), _INT, "The node reached when it does not; equal to `true` where nothing is decided."),
}

ROW_FIELDS: dict[str, Field] = {
    "tokens": Field(("row", "token"), _INT, "Token ids of the statement that a row executes."),
    "node": Field(("row",), _INT, "The node (graph, trace) or line (lines) a row executes."),
    "program": Field(("row",), _INT, "The program a row belongs to."),
    "branches": Field(("row",), _BOOL, "Whether the row has two successors, so that a decision is made."),
    "true": Field(
        ("row",),
        _INT,
        "Where the true branch arrives: a row of the next step, or rows + i for the exit of program i.",
        -1,
    ),
    "false": Field(
        ("row",), _INT, "The same for the false branch; -1 where there is none or the exit is out of reach.", -1
    ),
    "taken": Field(
        ("row",),
        torch.int8,
        "The branch that the true trace takes here, 0 true or 1 false; none where it does not pass or decides nothing.",
        -1,
        optional=True,
    ),
    "arrival_offsets": Field(
        ("row+program+1",),
        _INT,
        "Destination d (a row, or rows + i for an exit) receives the edges arrival_offsets[d] : [d + 1].",
    ),
    "arrivals": Field(
        ("edge",), _INT, "2 * row + branch of an arriving edge: branch 0 is true (or the only one), 1 is false."
    ),
}


@dataclass(frozen=True, slots=True)
class Rows(Tensors):
    """The node-steps that the packed execution computes; fields as in `ROW_FIELDS`.

    Attributes:
        step_offsets: Step t computes the rows `step_offsets[t] : step_offsets[t + 1]`. Plain integers: the loop over
            steps runs on the host.
        taken: None where it was not asked for.
    """

    kind: RowKind
    step_offsets: tuple[int, ...]
    tokens: Tensor
    node: Tensor
    program: Tensor
    branches: Tensor
    true: Tensor
    false: Tensor
    arrival_offsets: Tensor
    arrivals: Tensor
    taken: Tensor | None = None

    def __len__(self) -> int:
        return self.step_offsets[-1]


@dataclass(frozen=True, slots=True)
class Batch(Tensors):
    """What every model reads, and all that it reads; fields as in `BATCH_FIELDS`.

    Attributes:
        rows: For the models that execute packed; None where they were not asked for.
    """

    target: Tensor
    steps: Tensor
    line_offsets: Tensor
    line_tokens: Tensor
    node_offsets: Tensor
    node_tokens: Tensor
    node_program: Tensor
    node_line: Tensor
    true: Tensor
    false: Tensor
    rows: Rows | None = None

    def __len__(self) -> int:
        return len(self.target)

    @property
    def starts(self) -> Tensor:
        """Node 0 of every program. [program]"""
        return self.node_offsets[:-1]

    @property
    def exits(self) -> Tensor:
        """The exit node of every program. [program]"""
        return self.node_offsets[1:] - 1


def check_batch(batch: Batch) -> None:
    """Hold a batch against the contract: types, axes that agree, indices in range.

    Raises:
        ValueError: A field is not what the contract says; the sentence names it.
    """
    sizes = {"program": len(batch)}
    _check_fields("", batch, BATCH_FIELDS, sizes)
    _check_offsets("line_offsets", batch.line_offsets, sizes["line"])
    _check_offsets("node_offsets", batch.node_offsets, sizes["node"])
    _check_range("true", batch.true, 0, sizes["node"])
    _check_range("false", batch.false, 0, sizes["node"])
    if batch.rows is not None:
        sizes["row"] = len(batch.rows)
        sizes["row+program"] = len(batch.rows) + sizes["program"]
        _check_fields("rows.", batch.rows, ROW_FIELDS, sizes)
        _check_offsets("rows.arrival_offsets", batch.rows.arrival_offsets, sizes["edge"])
        _check_range("rows.node", batch.rows.node, 0, sizes["line" if batch.rows.kind == "lines" else "node"])
        _check_range("rows.program", batch.rows.program, 0, sizes["program"])
        _check_range("rows.true", batch.rows.true, -1, sizes["row+program"])
        _check_range("rows.false", batch.rows.false, -1, sizes["row+program"])


def _check_fields(prefix: str, holder: object, declared: dict[str, Field], sizes: dict[str, int]) -> None:
    for name, field in declared.items():
        tensor = getattr(holder, name)
        if tensor is None and field.optional:
            continue
        if tensor.dtype != field.dtype or tensor.ndim != len(field.axes):
            raise ValueError(
                f"{prefix}{name} is {tensor.dtype} with {tensor.ndim} axes; "
                f"the contract says {field.dtype} {list(field.axes)}."
            )
        for axis, size in zip(field.axes, tensor.shape, strict=True):
            base, extra = (axis[:-2], 1) if axis.endswith("+1") else (axis, 0)
            expected = sizes.setdefault(base, size - extra) + extra
            if size != expected:
                raise ValueError(f"{prefix}{name} has {size} entries on axis {axis}; the other fields say {expected}.")


def _check_offsets(name: str, offsets: Tensor, end: int) -> None:
    if int(offsets[0]) != 0 or int(offsets[-1]) != end or bool((offsets.diff() < 0).any()):
        raise ValueError(f"{name} does not rise from 0 to {end}, the number of entries that it divides.")


def _check_range(name: str, tensor: Tensor, low: int, high: int) -> None:
    if len(tensor) and not (low <= int(tensor.min()) and int(tensor.max()) < high):
        raise ValueError(
            f"{name} holds indices {int(tensor.min())}..{int(tensor.max())}; the contract says {low}..{high - 1}."
        )
