"""The IPA-GNN as a layer for anyone's graphs."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from ipagnn.data.graphs import Graphs
from ipagnn.nn.cell import Dense, StatementRNN
from ipagnn.ops import PointerCall, StatementLSTM, walk


class Cell(Protocol):
    """What a node does with a state. One with a method `prepared` may share work between the steps of a pass."""

    def __call__(self, state: Tensor, inputs: Tensor) -> Tensor:
        """From states [row, *state] and what the nodes hold [row, ...] to the states after them [row, *state]."""


class FeatureCell(nn.Module):
    """A gated recurrent unit over features of nodes.

    Shapes:
        state [row, hidden], inputs [row, features] -> [row, hidden]
    """

    def __init__(self, features: int, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        self.state_shape = (hidden,)
        self.gates = Dense(features + hidden, 2 * hidden, generator)
        self.proposal = Dense(features + hidden, hidden, generator)

    def forward(self, state: Tensor, inputs: Tensor) -> Tensor:
        """The state after a node."""
        reset, keep = self.gates(torch.cat([inputs, state], dim=-1)).sigmoid().chunk(2, dim=-1)
        proposal = self.proposal(torch.cat([inputs, reset * state], dim=-1)).tanh()
        after: Tensor = keep * state + (1 - keep) * proposal
        return after


@dataclass(frozen=True, slots=True)
class Walked:
    """What came of a walk.

    Attributes:
        final: The state of each graph at its exit. [graph, *state]
        recorded: Everything that was recorded, by name; see `IPAGNNLayer.forward`.
    """

    final: Tensor
    recorded: dict[str, Tensor]

    @property
    def pointer(self) -> Tensor:
        """p_{t,n}, from before the first step to after the last. [step + 1, node]"""
        return self.recorded["pointer"]

    @property
    def visits(self) -> Tensor:
        """How often each node is expected to run; for an exit, the steps that the pointer rests there. [node]"""
        return self.recorded["pointer"][:-1].sum(dim=0)


class IPAGNNLayer(nn.Module):
    """A soft instruction pointer that walks control flow graphs (section 4.2 of the paper).

        a_{t,n}  = cell(h_{t-1,n}, x_n)                                                (3)
        b_{t,n,:} = Softmax(branch(a_{t,n})) over the successors of n                  (4)
        h_{t,n}  = sum over n' in N_in(n) of p_{t-1,n'} · b_{t,n',n} · a_{t,n'}        (5)
        p_{t,n}  = sum over n' in N_in(n) of p_{t-1,n'} · b_{t,n',n}                   (6)

    p_0 is 1 at each graph's start. The exit is not executed: it absorbs. (5) is divided by (6) plus 1e-7.

    Args:
        features: Width of the features x_n, for the default cell, a `FeatureCell`.
        hidden: Width of its state.
        cell: A cell of yours instead.
        state_shape: Shape of its state; read from its attribute `state_shape` if None.
        branch: From the state after a node to the logits of its successors; a Dense layer over the flat state if None.
        successors: 2 (true, false) or 3 (true, false, error); 1 where nothing is decided, for sequences.
        hard: Decide by arg max, with the gradient of the softmax.
        normalise: Divide by the mass that arrived; False is the literal sum of equation 5.
        generator: Draws the weights of the default cell and branch layer.

    Shapes:
        graphs, inputs [node, ...] -> final [graph, *state], pointer [step + 1, node], visits [node]
    """

    def __init__(
        self,
        features: int | None = None,
        hidden: int = 64,
        *,
        cell: Cell | None = None,
        state_shape: tuple[int, ...] | None = None,
        branch: nn.Module | None = None,
        successors: int = 2,
        hard: bool = False,
        normalise: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if (features is None) == (cell is None):
            raise ValueError("Give either the width of your features, features=16, or a cell of yours, cell=MyCell().")
        if successors not in (1, 2, 3):
            raise ValueError(f"successors is {successors}; a node has 1, 2 (true, false) or 3 (true, false, error).")
        if generator is None and (features is not None or branch is None):
            generator = torch.Generator().manual_seed(0)
        if features is not None:
            assert generator is not None
            cell = FeatureCell(features, hidden, generator)
        assert cell is not None
        self.cell: Cell = cell
        shape = state_shape if state_shape is not None else getattr(self.cell, "state_shape", None)
        if shape is None:
            raise ValueError("The cell has no attribute state_shape; give one, or state_shape=(64,) to the layer.")
        self.state_shape: tuple[int, ...] = tuple(shape)
        self.branch = branch
        if branch is None and successors > 1:
            assert generator is not None
            self.branch = Dense(torch.Size(self.state_shape).numel(), successors, generator)
        self.successors, self.hard, self.normalise = successors, hard, normalise

    def forward(
        self,
        graphs: Graphs,
        inputs: Tensor,
        *,
        state: Tensor | None = None,
        record: Iterable[str] = ("pointer",),
        execution: str = "auto",
        prune: float = 0.0,
    ) -> Walked:
        """Walk the graphs.

        Args:
            graphs: The graphs; `ipagnn.nn.check_graphs` says whether they are what this layer assumes.
            inputs: What the cell reads at each node. [node, ...]
            state: The state at each start; zeros if None. [graph, *state]
            record: What to keep: `pointer` [step + 1, node]; `branch`, the probability of the first successor where
                several are possible, else NaN [step, node]; `states` [step + 1, node, *state]; `dropped`, pointer mass
                that was pruned [graph]. The packed executions leave out (as 0) node-steps from which the exit is out of
                reach; `reference` computes them all.
            execution: How to compute; `auto` takes the fastest way there is. See `ipagnn.ops`.
            prune: At inference, mass below this that arrives at a node is dropped.
        """
        if len(inputs) != graphs.nodes:
            raise ValueError(f"There are inputs of {len(inputs)} nodes, and the graphs have {graphs.nodes}.")
        if 1 < self.successors < graphs.successors.shape[1]:
            raise ValueError(
                f"The graphs have {graphs.successors.shape[1]} successors a node, and the layer decides between "
                f"{self.successors}; make it with successors=3."
            )
        weight = next(self.parameters())
        initial = state
        if initial is None:
            initial = torch.zeros(len(graphs), *self.state_shape, dtype=weight.dtype, device=graphs.device)
        call = PointerCall(
            graphs=graphs,
            initial=initial,
            execute=self._execute(inputs),
            decide=None if self.branch is None else self._decide,
            hard=self.hard,
            normalise=self.normalise,
            prune=prune,
            record=frozenset(record),
            lstm=self._lstm(graphs, inputs) if state is None else None,
        )
        result = walk(call, execution)
        return Walked(result.final, result.recorded)

    def _execute(self, inputs: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        cell = self.cell.prepared() if hasattr(self.cell, "prepared") else self.cell
        return lambda state, node: cell(state, inputs[node])

    def _lstm(self, graphs: Graphs, inputs: Tensor) -> StatementLSTM | None:
        """The weights behind cell and branch layer, if there are compiled executions for them."""
        if type(self.cell) is not StatementRNN or inputs.shape[1:] != (4,) or graphs.successors.shape[1] != 2:
            return None
        branch = self.branch
        return self.cell.weights(inputs, branch) if branch is None or type(branch) is Dense else None

    def _decide(self, state: Tensor, node: Tensor) -> Tensor:
        assert self.branch is not None
        logits: Tensor = self.branch(state.flatten(1))
        return logits
