"""The executions of NoControl in one flat tensor of fixed size: what is copied to a GPU and read by its kernels.

A *row* is the execution of a statement at a step, h_{t,n} to a_{t,n}; step 0, where all states are 0, has one row for
each distinct statement. Exits execute nothing, and their states are kept apart. Only what can matter to the final state
of the exit is there, so a program whose steps are over has none, and nothing needs to be masked.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ipagnn.data.contract import Batch
from ipagnn.ops.messages._compiled.statements import build_statement_rows
from ipagnn.ops.messages.triton.plan import ROOM, fill, token_fields, token_sizes
from ipagnn.ops.pointer.triton.plan import lay_out, round_up_capacity


@dataclass(frozen=True, slots=True)
class StatementCapacity:
    """What a plan has room for: most of each, but exactly so many programs.

    Attributes:
        statements: Rows.
        exits: States of exits.
        edges, programs, steps: Of the batch.
        slots: Edge types that are told apart; 1 if none are.
    """

    statements: int
    exits: int
    edges: int
    programs: int
    steps: int
    slots: int

    def sizes(self) -> dict[str, int]:
        """Numbers in each field of a plan, in the order in which they lie in its flat tensor."""
        slots = self.slots * (self.statements + self.exits)
        return {
            "offsets": self.steps + 2,
            "exit_offsets": self.steps + 2,
            "counts": slots,
            "arrival_offsets": slots + 1,
            "arrivals": self.edges,
            "departure_offsets": slots + 1,
            "departures": self.edges,
            "final": self.programs,
            "target": self.programs,
            **token_sizes(self.statements),
        }


@dataclass(frozen=True, slots=True)
class StatementPlan:
    """Views of the flat tensor, int32 all; what is beyond a batch's is not read.

    Rows and exits' states are named by one number: r for the r-th row, -1 - k for the k-th of the exits'. Arrays by
    both have all rows first, then, without a gap, all exits.

    Attributes:
        flat: The tensor itself.
        capacity: What it has room for.
        offsets, exit_offsets: First row, and first state of an exit, of each step; then their number. [step + 2]
        counts: Messages that arrive in each slot at the state before a row, or of an exit; those of exits at step 0,
            which are zeros, are counted and not listed. [slots * (row and exit)]
        arrival_offsets, arrivals: Where they come from: rows and exits one step earlier.
            [slots * (row and exit) + 1], [edge]
        departure_offsets, departures: Where messages go: rows and exits one step later.
            [slots * (row and exit) + 1], [edge]
        final: The last state of each program's exit, counted from 0. [program]
        target: As in `Batch`. [program]
        tokens: Token ids of the rows. [row, 4]
        chunks, first_chunk, chunk_offsets, order: As in `packed_plan.Plan`.
    """

    flat: Tensor
    capacity: StatementCapacity
    offsets: Tensor
    exit_offsets: Tensor
    counts: Tensor
    arrival_offsets: Tensor
    arrivals: Tensor
    departure_offsets: Tensor
    departures: Tensor
    final: Tensor
    target: Tensor
    tokens: Tensor
    chunks: Tensor
    first_chunk: Tensor
    chunk_offsets: Tensor
    order: Tensor

    @property
    def waves(self) -> Tensor:
        """What is executed at once: rows waves[k] : waves[k + 1]."""
        return self.offsets

    @staticmethod
    def empty(capacity: StatementCapacity, device: torch.device | str, *, pinned: bool = False) -> "StatementPlan":
        """Room for a plan."""
        flat, parts = lay_out(capacity.sizes(), device, pinned=pinned)
        parts["tokens"] = parts["tokens"].view(capacity.statements, 4)
        return StatementPlan(flat, capacity, **parts)

    @staticmethod
    def build(
        batch: Batch, *, bidirectional: bool = True, edge_types: bool = False, pinned: bool = False
    ) -> "StatementPlan":
        """The plan of a batch, on the CPU.

        Args:
            batch: The programs.
            bidirectional: Messages go against the edges, too.
            edge_types: Messages along edges of different types are told apart.
            pinned: In page-locked memory, from which copies run in the background.
        """
        slots = (4 if bidirectional else 2) if edge_types else 1
        offsets, exit_offsets, tokens, counts, *messages, final = build_statement_rows(
            batch.node_offsets.numpy(),
            batch.true.numpy(),
            batch.false.numpy(),
            batch.steps.numpy(),
            batch.node_tokens.numpy(),
            bidirectional,
            slots,
        )
        arrival_offsets, arrivals, departure_offsets, departures = messages
        room = round_up_capacity(len(tokens), ROOM)
        capacity = StatementCapacity(
            statements=room,
            exits=round_up_capacity(int(exit_offsets[-1]), ROOM),
            edges=room * max(1, -(-len(arrivals) // room)),
            programs=len(batch),
            steps=4 * max(1, -(-(len(offsets) - 2) // 4)),
            slots=slots,
        )
        plan = StatementPlan.empty(capacity, "cpu", pinned=pinned)
        plan.offsets.numpy()[:] = offsets[-1]
        plan.exit_offsets.numpy()[:] = exit_offsets[-1]
        fill(
            plan,
            offsets=offsets,
            exit_offsets=exit_offsets,
            counts=counts,
            arrival_offsets=arrival_offsets,
            arrivals=arrivals,
            departure_offsets=departure_offsets,
            departures=departures,
            final=final,
            target=batch.target.numpy(),
            **token_fields(tokens),
        )
        return plan
