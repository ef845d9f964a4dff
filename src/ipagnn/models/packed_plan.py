"""The rows of a batch in one flat tensor of fixed size: what is copied to a GPU, and what its kernels read."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ipagnn.data.batch_kernels import token_order
from ipagnn.data.contract import Batch
from ipagnn.programs.vocabulary import VOCABULARY_SIZE

TOKEN_CHUNK = 64
"""Most occurrences of a token that are summed at once."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a plan has room for.

    Attributes:
        rows: Most rows.
        programs: Exactly so many programs.
        steps: Most steps; all of them are launched.
    """

    rows: int
    programs: int
    steps: int

    @staticmethod
    def of(batch: Batch) -> "Capacity":
        """Room for a batch, rounded up so that many batches share one: rows by up to 19%, steps to a multiple of 4."""
        assert batch.rows is not None
        rows, steps = len(batch.rows), len(batch.rows.step_offsets) - 1
        quarters = np.ceil(4 * np.log2(max(rows, 64)))
        return Capacity(64 * int(np.ceil(2 ** (quarters / 4) / 64)), len(batch), 4 * -(-steps // 4))

    def sizes(self) -> dict[str, int]:
        """Numbers in each field of a plan, in the order in which they lie in its flat tensor."""
        return {
            "offsets": self.steps + 1,
            "chunks": 1,
            "first_chunk": VOCABULARY_SIZE + 1,
            "chunk_offsets": 4 * self.rows // TOKEN_CHUNK + VOCABULARY_SIZE + 1,
            "true": self.rows,
            "false": self.rows,
            "arrival_offsets": self.rows + self.programs + 1,
            "arrivals": 2 * self.rows,
            "order": 4 * self.rows,
            "tokens": 4 * self.rows,
            "branches": self.rows,
            "target": self.programs,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """Views of the flat tensor, int32 all; entries beyond a batch's are not read.

    Attributes:
        flat: The tensor itself.
        capacity: What it has room for.
        offsets: First row of each step, then the number of rows as often as needed. [step + 1]
        chunks: Number of chunks of equal tokens. [1]
        first_chunk: First chunk of each token id. [vocabulary + 1]
        chunk_offsets: First entry of `order` of each chunk. [chunk + 1]
        true, false, arrival_offsets, arrivals, branches: As in `Rows`.
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
        sizes = capacity.sizes()
        flat = torch.zeros(sum(sizes.values()), dtype=torch.int32, device=device, pin_memory=pinned)
        parts = dict(zip(sizes, flat.split(list(sizes.values())), strict=True))
        parts["tokens"] = parts["tokens"].view(capacity.rows, 4)
        return Plan(flat, capacity, **parts)

    @staticmethod
    def build(batch: Batch, *, pinned: bool = False) -> "Plan":
        """The plan of a batch, on the CPU; `pinned` in page-locked memory, from which copies run in the background."""
        assert batch.rows is not None
        rows = batch.rows
        plan = Plan.empty(Capacity.of(batch), "cpu", pinned=pinned)
        order, chunk_offsets, first_chunk = token_order(rows.tokens.numpy(), VOCABULARY_SIZE, TOKEN_CHUNK)
        offsets = torch.tensor(rows.step_offsets, dtype=torch.int32)
        plan.offsets.fill_(len(rows))
        for place, values in (
            (plan.offsets, offsets),
            (plan.chunks, torch.tensor([len(chunk_offsets) - 1], dtype=torch.int32)),
            (plan.first_chunk, torch.from_numpy(first_chunk)),
            (plan.chunk_offsets, torch.from_numpy(chunk_offsets)),
            (plan.true, rows.true),
            (plan.false, rows.false),
            (plan.arrival_offsets, rows.arrival_offsets),
            (plan.arrivals, rows.arrivals),
            (plan.order, torch.from_numpy(order)),
            (plan.tokens, rows.tokens),
            (plan.branches, rows.branches.to(torch.int32)),
            (plan.target, batch.target.to(torch.int32)),
        ):
            place[: len(values)] = values
        return plan
