"""The rows of a batch in one flat tensor of fixed size: what is copied to a GPU, and what its kernels read."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ipagnn.data.graphs import Graphs
from ipagnn.languages.arithmetic.vocabulary import VOCABULARY_SIZE
from ipagnn.ops._compiled.plan import fill_plan
from ipagnn.ops.pointer.rows import Rows, plan_rows

TOKEN_CHUNK = 64
"""Most occurrences of a token that are summed at once."""
MANY_ROWS = 8192
ROW_CHUNK = 16
"""Rows of a group and step that the slower of the kernels for many groups, the backward one, takes at a time."""


def round_up_capacity(count: int, parts: int) -> int:
    """A number rounded up so that many share one: to a power of 2, or one of `parts` steps between two, of 64s."""
    step = np.ceil(parts * np.log2(max(count, 64)))
    return 64 * int(np.ceil(2 ** (step / parts) / 64))


def lay_out(
    sizes: Mapping[str, int], device: torch.device | str, *, pinned: bool = False
) -> tuple[Tensor, dict[str, Tensor]]:
    """Room for fields of so many numbers, one after the other: the flat tensor, and its views by name."""
    flat = torch.empty(sum(sizes.values()), dtype=torch.int32, device=device, pin_memory=pinned)
    return flat, dict(zip(sizes, flat.split(list(sizes.values())), strict=True))


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a plan has room for.

    Attributes:
        rows: Most rows.
        programs: Exactly so many programs.
        steps: Most steps. Where there is one group, all of them are launched.
        groups: Exactly so many groups of programs, whose rows lie together.
    """

    rows: int
    programs: int
    steps: int
    groups: int = 1

    @staticmethod
    def of(rows: Rows, programs: int, groups: int = 1) -> "Capacity":
        """Room for the rows of so many programs, rounded up so that many batches share one.

        Rows by up to 19%, or 9% where there are many, as products run over all that there is room for; steps to a
        multiple of 4, or of 32 where steps that are not there cost nothing.
        """
        steps = len(rows.step_offsets) - 1
        unit = 4 if groups == 1 else 32
        room = round_up_capacity(len(rows), 8 if len(rows) > MANY_ROWS else 4)
        return Capacity(room, programs, unit * -(-steps // unit), groups)

    def sizes(self) -> dict[str, int]:
        """Numbers in each field of a plan, in the order in which they lie in its flat tensor."""
        return {
            "tokens": 4 * self.rows,  # first, so that those of a row are aligned and can be read at once
            "offsets": self.groups * (self.steps + 1),
            "chunks": 1,
            "first_chunk": VOCABULARY_SIZE + 1,
            "chunk_offsets": 4 * self.rows // TOKEN_CHUNK + VOCABULARY_SIZE + 1,
            "true": self.rows,
            "false": self.rows,
            "arrival_offsets": self.rows + self.programs + 1,
            "arrivals": 2 * self.rows,
            "order": 4 * self.rows,
            "branches": self.rows,
            "target": self.programs,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """Views of the flat tensor, int32 all; entries beyond a batch's are not read.

    Attributes:
        flat: The tensor itself.
        capacity: What it has room for.
        offsets: First row of each step of each group, then the end of the group as often as needed; so the last entry
            is the number of rows. [group, step + 1]
        chunks: Number of chunks of equal tokens. [1]
        first_chunk: First chunk of each token id. [vocabulary + 1]
        chunk_offsets: First entry of `order` of each chunk. [chunk + 1]
        true, false: The two sides of `target` of `Rows`, but ordered by group, then step. [row]
        arrival_offsets, arrivals: The same edges by destination, as `2 * row + side`. [row + program + 1], [edge]
        branches: 1 where a branch is decided, else 0. [row]
        order: `4 * row + slot` of all tokens, sorted by token id. [4 * row]
        tokens: Token ids. [row, 4]
        target: As in `Batch`. [program]
    """

    flat: Tensor
    capacity: Capacity
    offsets: Tensor
    chunks: Tensor
    first_chunk: Tensor
    chunk_offsets: Tensor
    true: Tensor
    false: Tensor
    arrival_offsets: Tensor
    arrivals: Tensor
    order: Tensor
    tokens: Tensor
    branches: Tensor
    target: Tensor

    @staticmethod
    def empty(capacity: Capacity, device: torch.device | str, *, pinned: bool = False) -> "Plan":
        """Room for a plan."""
        flat, parts = lay_out(capacity.sizes(), device, pinned=pinned)
        parts["tokens"] = parts["tokens"].view(capacity.rows, 4)
        parts["offsets"] = parts["offsets"].view(capacity.groups, capacity.steps + 1)
        return Plan(flat, capacity, **parts)

    @staticmethod
    def build(
        graphs: Graphs,
        tokens: Tensor,
        target: Tensor | None = None,
        *,
        groups: int = 1,
        pinned: bool = False,
    ) -> "Plan":
        """The plan of graphs, on the CPU.

        Args:
            graphs: The graphs.
            tokens: Token ids of the statement at each node. [node, 4]
            target: The values to predict, for a step that computes the loss; 0 if None. [program]
            groups: How many groups of programs to make.
            pinned: In page-locked memory, from which copies run in the background.
        """
        rows = graphs.plan(plan_rows)
        plan = Plan.empty(Capacity.of(rows, len(graphs), groups), "cpu", pinned=pinned)
        wanted = torch.zeros(len(graphs), dtype=torch.int64) if target is None else target
        of_batch = (rows.graph, rows.node, rows.edges, rows.target, tokens, wanted)
        of_plan = (
            plan.offsets, plan.chunks, plan.first_chunk, plan.chunk_offsets, plan.true, plan.false,
            plan.arrival_offsets, plan.arrivals, plan.order, plan.tokens, plan.branches, plan.target,
        )  # fmt: skip
        reads, writes = ([x.numpy() for x in fields] for fields in (of_batch, of_plan))
        arguments = [np.asarray(rows.step_offsets), *reads, VOCABULARY_SIZE, TOKEN_CHUNK, ROW_CHUNK, *writes]
        fill_plan(*arguments)
        return plan
