"""The node-steps of message passing in one flat tensor of fixed size: what is copied to a GPU and read by its kernels.

A *row* is a state h_{t,n}; row r becomes row `next[r]`, the same node one step later, by an update that is said to
happen *at* r. Messages of a step go from rows to updates at rows of the same step. Only rows that can matter to the
final state of the exit are there, so a program whose steps are over has none, and nothing needs to be masked.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ipagnn.data.graphs import Graphs
from ipagnn.languages.arithmetic.vocabulary import VOCABULARY_SIZE
from ipagnn.ops._compiled.plan import token_order
from ipagnn.ops.messages._compiled.rows import build_message_rows, distinct_statements
from ipagnn.ops.messages.call import MessageKind
from ipagnn.ops.pointer.triton.plan import TOKEN_CHUNK, lay_out, round_up_capacity

KIND_OF_SLOT = {2: (0, 1), 4: (0, 2, 1, 3)}
"""The edge type of each slot, where there are two or four. The rarer types come last."""
ROOM = 8
"""Sizes between two powers of 2: rows are rounded up by at most 9%."""


def token_sizes(statements: int) -> dict[str, int]:
    """Numbers in the fields of a plan that are about the tokens of statements; see `token_fields`."""
    return {
        "tokens": 4 * statements,
        "chunks": 1,
        "first_chunk": VOCABULARY_SIZE + 1,
        "chunk_offsets": 4 * statements // TOKEN_CHUNK + VOCABULARY_SIZE + 1,
        "order": 4 * statements,
    }


def token_fields(tokens: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Those fields, as in `ops.pointer.triton.plan.Plan`. tokens: [statement, 4]"""
    order, chunk_offsets, first_chunk = token_order(tokens, VOCABULARY_SIZE, TOKEN_CHUNK)
    return {
        "tokens": tokens,
        "chunks": np.array([len(chunk_offsets) - 1]),
        "first_chunk": first_chunk,
        "chunk_offsets": chunk_offsets,
        "order": order,
    }


@dataclass(frozen=True, slots=True)
class MessageCapacity:
    """What a plan has room for: most of each, but exactly so many programs.

    Attributes:
        kind: Whose rows.
        rows, edges, programs, steps: Of the batch.
        nodes: Rows of step 0.
        statements: Statements that differ.
    """

    kind: MessageKind
    rows: int
    edges: int
    programs: int
    steps: int
    nodes: int
    statements: int

    @property
    def slots(self) -> int:
        """Messages that a row can send."""
        return 4 if self.kind == "neighbours" else 2

    def sizes(self) -> dict[str, int]:
        """Numbers in each field of a plan, in the order in which they lie in its flat tensor."""
        return {
            "offsets": self.steps + 2,
            "next": self.rows,
            "previous": self.rows,
            "flags": self.rows,
            "arrival_offsets": self.rows + 1,
            "arrivals": self.edges,
            "targets": self.edges,
            "departure_offsets": self.slots * self.rows + 1,
            "departures": self.edges,
            "final": self.programs,
            "target": self.programs,
            "statement": self.nodes,
            "member_offsets": self.statements + 1,
            "members": self.nodes,
            "waves": 2,
            **token_sizes(self.statements),
        }


@dataclass(frozen=True, slots=True)
class MessagePlan:
    """Views of the flat tensor, int32 all; what is beyond a batch's is not read; in `statement` it is 0.

    Attributes:
        flat: The tensor itself.
        capacity: What it has room for.
        offsets: First row of each step, then the number of rows as often as needed. Exits that absorb are the rows of
            the last step that there is room for. [step + 2]
        next, previous: The row of the same node one step later, and earlier; -1 where there is none. [row]
        flags: Bit k: a message leaves in slot k; then `DECIDES`, `EXIT`, `START` and, with a pointer, `RECEIVES`. [row]
        arrival_offsets: What arrives for the update at row r: edges arrival_offsets[r] : [r + 1]. [row + 1]
        arrivals: Where an edge comes from: slots * row + slot. [edge]
        targets: The update an edge goes to: a row. [edge]
        departure_offsets, departures: The edges that leave in each slot of each row. [slots * row + 1], [edge]
        final: The row of each program's exit after the last step. [program]
        target: As in `Batch`. [program]
        statement: Which statement a row of step 0 starts with. [node]
        member_offsets, members: The rows of step 0 that start with each statement. [statement + 1], [node]
        waves: What is executed at once: statements waves[0] : waves[1]. [2]
        tokens: Token ids of the statements. [statement, 4]
        chunks, first_chunk, chunk_offsets, order: As in `ops.pointer.triton.plan.Plan`.
    """

    flat: Tensor
    capacity: MessageCapacity
    offsets: Tensor
    next: Tensor
    previous: Tensor
    flags: Tensor
    arrival_offsets: Tensor
    arrivals: Tensor
    targets: Tensor
    departure_offsets: Tensor
    departures: Tensor
    final: Tensor
    target: Tensor
    statement: Tensor
    member_offsets: Tensor
    members: Tensor
    waves: Tensor
    tokens: Tensor
    chunks: Tensor
    first_chunk: Tensor
    chunk_offsets: Tensor
    order: Tensor

    @staticmethod
    def empty(capacity: MessageCapacity, device: torch.device | str, *, pinned: bool = False) -> "MessagePlan":
        """Room for a plan."""
        flat, parts = lay_out(capacity.sizes(), device, pinned=pinned)
        parts["tokens"] = parts["tokens"].view(capacity.statements, 4)
        return MessagePlan(flat, capacity, **parts)

    @staticmethod
    def build(
        graphs: Graphs, tokens: Tensor, kind: MessageKind, target: Tensor | None = None, *, pinned: bool = False
    ) -> "MessagePlan":
        """The plan of graphs, on the CPU.

        Args:
            graphs: The graphs.
            tokens: Token ids of the statement at each node. [node, 4]
            kind: Whose rows.
            target: The values to predict, for a step that computes the loss; 0 if None. [program]
            pinned: In page-locked memory, from which copies run in the background.
        """
        true, false = graphs.successors.t().contiguous().numpy()
        offsets, node, following, previous, flags, *messages, final = build_message_rows(
            graphs.offsets.numpy(),
            true,
            false,
            graphs.steps.numpy(),
            kind != "neighbours",
            kind == "absorbing",
        )
        arrival_offsets, arrivals, targets, departure_offsets, departures = messages
        steps, rows, nodes = len(offsets) - 2, len(node), int(offsets[1])
        statement, member_offsets, members, distinct = distinct_statements(tokens.numpy()[node[:nodes]])
        room = round_up_capacity(rows, ROOM)
        capacity = MessageCapacity(
            kind=kind,
            rows=room,
            edges=room * max(1, -(-len(arrivals) // room)),
            programs=len(graphs),
            steps=4 * max(1, -(-steps // 4)),
            nodes=round_up_capacity(nodes, ROOM),
            statements=round_up_capacity(len(distinct), ROOM),
        )
        plan = MessagePlan.empty(capacity, "cpu", pinned=pinned)
        plan.offsets.numpy()[:] = rows
        if kind == "absorbing":  # exits are the last step that there is room for, after some that have no rows
            plan.offsets.numpy()[:-1] = offsets[-2]
            offsets = offsets[:-1]
        plan.statement.numpy()[:] = 0
        fill(
            plan,
            offsets=offsets,
            next=following,
            previous=previous,
            flags=flags,
            arrival_offsets=arrival_offsets,
            arrivals=arrivals,
            targets=targets,
            departure_offsets=departure_offsets,
            departures=departures,
            final=final,
            target=np.zeros(len(graphs), np.int64) if target is None else target.numpy(),
            statement=statement,
            member_offsets=member_offsets,
            members=members,
            waves=np.array([0, len(distinct)]),
            **token_fields(distinct),
        )
        return plan


def fill(plan: Any, **fields: NDArray[Any]) -> None:
    """Copy values to the beginnings of a plan's fields."""
    for name, values in fields.items():
        getattr(plan, name).numpy()[: len(values)] = values  # NumPy copies on this thread alone
