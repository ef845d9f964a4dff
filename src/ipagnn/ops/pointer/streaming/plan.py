"""What the executions at inference need to know of a batch beforehand: little, whatever the number of steps."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ipagnn.data.contract import Batch, Rows

FAR = 2**30
"""More edges than any program has."""


def by_steps(batch: Batch) -> tuple[Batch, Tensor, Tensor]:
    """The batch with the programs that run longest first, so that those still running at any step come first.

    Lines and rows are left out, which nobody needs who runs over nodes.

    Returns:
        The batch, and where its programs and its nodes were before. int64 [program], [node]
    """
    order = batch.steps.argsort(descending=True, stable=True)
    sizes = batch.node_offsets.diff()[order]
    offsets = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    nodes = torch.arange(len(batch.true), device=order.device)
    moved = torch.repeat_interleave(batch.starts[order] - offsets[:-1], sizes, output_size=len(nodes))
    origin = nodes + moved
    new = torch.empty_like(origin).index_copy(0, origin, nodes).int()
    ranks = torch.arange(len(order), device=order.device, dtype=torch.int32)
    ordered = Batch(
        target=batch.target[order],
        steps=batch.steps[order],
        line_offsets=torch.zeros_like(batch.line_offsets),
        line_tokens=batch.line_tokens[:0],
        node_offsets=offsets.int(),
        node_tokens=batch.node_tokens[origin],
        node_program=torch.repeat_interleave(ranks, sizes, output_size=len(nodes)),
        node_line=batch.node_line[origin],
        true=new[batch.true[origin]],
        false=new[batch.false[origin]],
    )
    return ordered, order, origin


def first_programs(batch: Batch, programs: int) -> Batch:
    """The first `programs` of a batch of `by_steps`, as views."""
    nodes = int(batch.node_offsets[programs])
    of_nodes = ("node_tokens", "node_program", "node_line", "true", "false")
    return replace(
        batch,
        target=batch.target[:programs],
        steps=batch.steps[:programs],
        line_offsets=batch.line_offsets[: programs + 1],
        node_offsets=batch.node_offsets[: programs + 1],
        **{name: getattr(batch, name)[:nodes] for name in of_nodes},
    )


def steps_to_exit(batch: Batch) -> Tensor:
    """Fewest edges from each node to its exit; `FAR` or more where there is no way. int32 [node]"""
    distance = torch.full_like(batch.true, FAR).index_fill(0, batch.exits.long(), 0)
    while True:
        shorter = torch.minimum(distance, 1 + torch.minimum(distance[batch.true], distance[batch.false]))
        if torch.equal(shorter, distance):
            return distance
        distance = shorter


@dataclass(frozen=True, slots=True)
class PointerPlan:
    """What `static_triton.arrive` reads. Nodes are those of `by_steps`; programs are counted as they came.

    Attributes:
        steps: Of the longest program.
        origin: Where each node was in the batch. int32 [node]
        last: The last step from which the exit can just be reached. int32 [node]
        exit_of: Program of an exit, -1 for other nodes. int32 [node]
        owner: Program of a node. int32 [node]
        tokens: int32 [node, 4]
        decides: Whether a node has two successors. int8 [node]
        edge_offsets, edges: Arrivals by destination: 2 * source + branch. int32 [node + 1], [edge]
        nodes_at: Nodes of the programs of at least so many steps. int32 [step + 1]
        starts: The nodes where programs begin that can reach their exit. int64 [row]
    """

    steps: int
    origin: Tensor
    last: Tensor
    exit_of: Tensor
    owner: Tensor
    tokens: Tensor
    decides: Tensor
    edge_offsets: Tensor
    edges: Tensor
    nodes_at: Tensor
    starts: Tensor

    @staticmethod
    def of(batch: Batch) -> "PointerPlan":
        """The plan of a batch, on its device."""
        ordered, order, origin = by_steps(batch)
        true, false, count = ordered.true, ordered.false, len(origin)
        decides, is_exit = true != false, ordered.node_line < 0
        nodes = torch.arange(count, device=origin.device, dtype=torch.int32)
        inner, two = nodes[~is_exit], nodes[decides]
        target = torch.cat([true[inner], false[two]])
        target, at = target.sort(stable=True)
        owner = order[ordered.node_program].int()
        last = ordered.steps[ordered.node_program] - steps_to_exit(ordered)
        begin = ordered.starts.long()
        steps = int(batch.steps.max()) if len(batch) else 0
        running = torch.searchsorted(-ordered.steps, -torch.arange(steps + 1, device=origin.device), right=True)
        return PointerPlan(
            steps=steps,
            origin=origin.int(),
            last=last,
            exit_of=torch.where(is_exit, owner, -1),
            owner=owner,
            tokens=ordered.node_tokens,
            decides=decides.to(torch.int8),
            edge_offsets=torch.searchsorted(target, torch.arange(count + 1, device=origin.device)).int(),
            edges=torch.cat([2 * inner, 2 * two + 1])[at],
            nodes_at=ordered.node_offsets[running],
            starts=begin[(last[begin] >= 0) & ~is_exit[begin]],
        )


@dataclass(frozen=True, slots=True)
class SequencePlan:
    """Sequences of statements, the longest first, so that those still running at any step are the first rows.

    Attributes:
        rank: The row of each program. int64 [program]
        tokens: Statements by step, then by row. int32 [statement, 4]
        starts, counts: Step t reads the statements `starts[t] : starts[t] + counts[t]`. int32 [step]
    """

    rank: Tensor
    tokens: Tensor
    starts: Tensor
    counts: Tensor

    @staticmethod
    def of(rows: Rows, programs: int) -> "SequencePlan":
        """The plan of rows that walk one sequence for each program."""
        device = rows.program.device
        lengths = torch.bincount(rows.program, minlength=programs)
        rank = torch.empty_like(lengths)
        rank[lengths.argsort(descending=True, stable=True)] = torch.arange(programs, device=device)
        offsets = torch.tensor(rows.step_offsets, device=device)
        first = torch.repeat_interleave(offsets[:-1], offsets.diff(), output_size=len(rows))
        tokens = torch.empty_like(rows.tokens).index_copy(0, first + rank[rows.program], rows.tokens)
        return SequencePlan(rank, tokens, offsets[:-1].int(), offsets.diff().int())
