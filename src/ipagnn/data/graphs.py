"""Flat batches of control flow graphs: all that executions along an instruction pointer read of a program's shape."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self, TypeVar

import torch
from torch import Tensor

P = TypeVar("P")


class Tensors:
    """Moves all tensors of a dataclass, and what was planned for it, at once."""

    __slots__ = ()

    def _map(self, function: Callable[[Any], Any]) -> Self:
        values = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        changed = {name: function(x) for name, x in values.items() if isinstance(x, Tensor | Tensors)}
        changed |= {
            name: {key: function(each) for key, each in x.items()}
            for name, x in values.items()
            if isinstance(x, dict) and name != "plans"
        }
        moved = replace(self, **changed)  # type: ignore[type-var]
        if "plans" in values:  # which `replace` leaves out, as they would not be those of other values
            plans: dict[Any, Any] = values["plans"]
            movable = {key: function(plan) for key, plan in plans.items() if isinstance(plan, Tensor | Tensors)}
            moved.plans.update(movable)  # type: ignore[attr-defined]
        return moved

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Self:
        """The same on `device`."""
        return self._map(lambda x: x.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Self:
        """The same in page-locked memory, from which copies to a GPU run in the background."""
        return self._map(lambda x: x.pin_memory())


class Planned:
    """Keeps what is worked out for it."""

    __slots__ = ()
    plans: dict[Any, Any]

    def plan(self, make: Callable[[Self], P]) -> P:
        """What `make` works out; kept, and moved from device to device with the rest.

        Call it in the threads that load data, and training does not wait for it.
        """
        if make not in self.plans:
            self.plans[make] = make(self)
        found: P = self.plans[make]
        return found


@dataclass(frozen=True, slots=True)
class Graphs(Planned, Tensors):
    """Control flow graphs, one after the other; indices of nodes count through all of them.

    Attributes:
        successors: The nodes that may follow: of the true branch, of the false one and, in a third column, of an error
            that the statement raises. A node that repeats an earlier column of its row stands for no edge: where
            nothing is decided, all columns are equal. An exit is its own successor. int32 [node, 2 or 3]
        offsets: Graph i has the nodes offsets[i] : offsets[i + 1]. int32 [graph + 1]
        start: Where each graph's execution begins. int32 [graph]
        exits: Where it ends. int32 [graph]
        steps: How many steps are taken. int32 [graph]
        plans: What executions have worked out for these graphs, by the function that did.
    """

    successors: Tensor
    offsets: Tensor
    start: Tensor
    exits: Tensor
    steps: Tensor
    plans: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def nodes(self) -> int:
        """Number of nodes of all graphs."""
        return len(self.successors)

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.successors.device


def node_graph(graphs: Graphs) -> Tensor:
    """The graph that each node belongs to. int64 [node]"""
    return torch.repeat_interleave(graphs.offsets.diff(), output_size=graphs.nodes).long()


def edge_mask(graphs: Graphs) -> Tensor:
    """Which successors are edges: those that differ from all earlier ones of their node. bool [node, 2 or 3]"""
    successors = graphs.successors
    mask = torch.ones_like(successors, dtype=torch.bool)
    for column in range(1, successors.shape[1]):
        mask[:, column] = (successors[:, :column] != successors[:, column : column + 1]).all(dim=1)
    return mask


def check_graphs(graphs: Graphs) -> None:
    """Hold graphs of a user's against what executions assume.

    Raises:
        ValueError: They are not what `Graphs` says; the sentence names the field.
    """
    count, nodes = len(graphs), graphs.nodes
    for name, shape in (("offsets", (count + 1,)), ("start", (count,)), ("exits", (count,)), ("steps", (count,))):
        tensor = getattr(graphs, name)
        if tensor.dtype != torch.int32 or tuple(tensor.shape) != shape:
            raise ValueError(f"{name} is {tensor.dtype} {list(tensor.shape)}; it must be torch.int32 {list(shape)}.")
    successors = graphs.successors
    if successors.dtype != torch.int32 or successors.ndim != 2 or successors.shape[1] not in (2, 3):
        raise ValueError(
            f"successors is {successors.dtype} {list(successors.shape)}; it must be torch.int32 [node, 2 or 3]."
        )
    offsets = graphs.offsets
    if int(offsets[0]) != 0 or int(offsets[-1]) != nodes or bool((offsets.diff() < 1).any()):
        raise ValueError(
            f"offsets must rise from 0 to {nodes}, the number of nodes, with a node or more in each graph."
        )
    first, end = offsets[:-1], offsets[1:]
    for name in ("start", "exits"):
        node = getattr(graphs, name)
        if bool(((node < first) | (node >= end)).any()):
            raise ValueError(f"{name} names a node of another graph; indices count through all graphs.")
    owner = node_graph(graphs)
    if bool(((successors < first[owner][:, None]) | (successors >= end[owner][:, None])).any()):
        raise ValueError("successors names a node of another graph; indices count through all graphs.")
    if bool((successors[graphs.exits.long()] != graphs.exits[:, None]).any()):
        raise ValueError("successors of an exit are not the exit itself; an exit keeps what arrives.")
    if bool((graphs.steps < 0).any()):
        raise ValueError("steps has a negative number; graphs take no step or more.")
