"""What the executions at inference need to know of a batch beforehand: little, whatever the number of steps."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ipagnn.data.graphs import Graphs, Tensors
from ipagnn.ops.pointer.rows import plan_rows

FAR = 2**30
"""More edges than any program has."""


def steps_to_exit(graphs: Graphs) -> Tensor:
    """Fewest edges from each node to its exit; `FAR` or more where there is no way. int32 [node]"""
    successors = graphs.successors.long()
    distance = torch.full_like(graphs.successors[:, 0], FAR).index_fill(0, graphs.exits.long(), 0)
    while True:
        shorter = torch.minimum(distance, 1 + distance[successors].amin(dim=1))
        if torch.equal(shorter, distance):
            return distance
        distance = shorter


@dataclass(frozen=True, slots=True)
class PointerPlan(Tensors):
    """What `kernels.arrive` reads. Nodes are ordered by program, those that run longest first; programs are counted as
    they came.

    Attributes:
        steps: Of the longest program.
        origin: Where each node was in the batch. int32 [node]
        last: The last step from which the exit can just be reached. int32 [node]
        exit_of: Program of an exit, -1 for other nodes. int32 [node]
        owner: Program of a node. int32 [node]
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
    decides: Tensor
    edge_offsets: Tensor
    edges: Tensor
    nodes_at: Tensor
    starts: Tensor


def plan_pointer(graphs: Graphs) -> PointerPlan:
    """The plan of graphs of two successors, on their device."""
    count, device = graphs.nodes, graphs.device
    order = graphs.steps.argsort(descending=True, stable=True)
    sizes, steps = graphs.offsets.diff()[order], graphs.steps[order]
    offsets = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    nodes = torch.arange(count, device=device)
    rank = torch.repeat_interleave(sizes, output_size=count)  # of each node's program
    origin = nodes + (graphs.offsets[order] - offsets[:-1])[rank]
    new = torch.empty_like(origin).index_copy(0, origin, nodes).int()
    true, false = new[graphs.successors[origin].long()].unbind(dim=1)
    exits, start = (new[each.long()].long() for each in (graphs.exits, graphs.start))
    decides, is_exit = true != false, torch.zeros_like(origin, dtype=torch.bool).index_fill(0, exits, True)
    inner, two = nodes[~is_exit].int(), nodes[decides].int()
    target = torch.cat([true[inner], false[two]])
    target, at = target.sort(stable=True)
    owner = order[rank].int()
    last = steps[rank] - steps_to_exit(graphs)[origin]
    begin = start[order]
    longest = int(graphs.steps.max()) if len(graphs) else 0
    running = torch.searchsorted(-steps, -torch.arange(longest + 1, device=device), right=True)
    return PointerPlan(
        steps=longest,
        origin=origin.int(),
        last=last,
        exit_of=torch.where(is_exit, owner, -1),
        owner=owner,
        decides=decides.to(torch.int8),
        edge_offsets=torch.searchsorted(target, torch.arange(count + 1, device=device)).int(),
        edges=torch.cat([2 * inner, 2 * two + 1])[at],
        nodes_at=offsets[running].int(),
        starts=begin[(last[begin] >= 0) & ~is_exit[begin]],
    )


@dataclass(frozen=True, slots=True)
class SequencePlan(Tensors):
    """Sequences of statements, the longest first, so that those still running at any step are the first rows.

    Attributes:
        rank: The row of each program. int64 [program]
        node: Nodes by step, then by row. int32 [statement]
        starts, counts: Step t reads the statements `starts[t] : starts[t] + counts[t]`. int32 [step]
    """

    rank: Tensor
    node: Tensor
    starts: Tensor
    counts: Tensor


def plan_sequences(graphs: Graphs) -> SequencePlan:
    """The plan of graphs in which nothing is decided, so that each is one sequence."""
    rows = graphs.plan(plan_rows)
    device, graph = graphs.device, rows.graph.long()
    lengths = torch.bincount(graph, minlength=len(graphs))
    rank = torch.empty_like(lengths)
    rank[lengths.argsort(descending=True, stable=True)] = torch.arange(len(graphs), device=device)
    offsets = torch.tensor(rows.step_offsets, device=device)
    first = torch.repeat_interleave(offsets[:-1], offsets.diff(), output_size=len(rows))
    node = torch.empty_like(rows.node).index_copy(0, first + rank[graph], rows.node)
    return SequencePlan(rank, node, offsets[:-1].int(), offsets.diff().int())
