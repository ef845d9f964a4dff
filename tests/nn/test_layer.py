"""The IPA-GNN over graphs that come from no language of ours."""

import dataclasses
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ipagnn.nn import Graphs, IPAGNNLayer, check_graphs

EXACT = {"rtol": 1e-9, "atol": 1e-12}
DIAMOND = [(1, 2), (3, 3), (3, 3), (3, 3)]  # 0 branches to 1 and 2, which meet at the exit 3


def graphs_of(*successors: list[tuple[int, ...]], steps: list[int], start: int = 0) -> Graphs:
    """Graphs whose last node is the exit."""
    sizes = torch.tensor([len(each) for each in successors])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
    firsts = offsets[:-1].tolist()
    rows = [[first + node for node in row] for first, each in zip(firsts, successors, strict=True) for row in each]
    return Graphs(
        torch.tensor(rows).int(),
        offsets.int(),
        (offsets[:-1] + start).int(),
        (offsets[1:] - 1).int(),
        torch.tensor(steps).int(),
    )


class Add(torch.nn.Module):
    """Adds the inputs to the state: the sum over a path is known by hand."""

    state_shape = (1,)

    def forward(self, state: Tensor, inputs: Tensor) -> Tensor:
        return state + inputs


class Fixed(torch.nn.Module):
    """The same logits everywhere."""

    def __init__(self, logits: list[float]) -> None:
        super().__init__()
        self.logits = torch.nn.Parameter(torch.tensor(logits, dtype=torch.float64))

    def forward(self, state: Tensor) -> Tensor:
        return self.logits.expand(len(state), -1)


EXECUTIONS = pytest.mark.parametrize("execution", ["rows", "reference"])


@EXECUTIONS
def test_a_diamond_by_hand(execution: str) -> None:
    layer = IPAGNNLayer(cell=Add(), branch=Fixed([0.0, math.log(3.0)]), normalise=False)
    inputs = torch.tensor([[1.0], [10.0], [100.0], [0.0]], dtype=torch.float64)
    walked = layer(graphs_of(DIAMOND, steps=[2]), inputs, record=("pointer", "branch", "states"), execution=execution)
    assert walked.final.tolist() == [[pytest.approx(0.25 * (0.25 + 10) + 0.75 * (0.75 + 100))]]
    assert walked.pointer.tolist() == [[1, 0, 0, 0], [0, *map(pytest.approx, (0.25, 0.75)), 0], [0, 0, 0, 1]]
    assert walked.visits.tolist() == [1, *map(pytest.approx, (0.25, 0.75)), 0]
    assert walked.recorded["branch"][0, 0].item() == pytest.approx(0.25)
    assert walked.recorded["branch"][:, 1:].isnan().all()
    assert walked.recorded["states"][1, 1:3, 0].tolist() == [pytest.approx(0.25), pytest.approx(0.75)]


@EXECUTIONS
def test_an_error_is_a_third_successor(execution: str) -> None:
    """Node 0 goes on to 1 or raises to 2, a handler; neither has a false branch."""
    graphs = graphs_of([(1, 1, 2), (3, 3, 3), (3, 3, 3), (3, 3, 3)], steps=[2])
    layer = IPAGNNLayer(cell=Add(), branch=Fixed([0.0, 50.0, math.log(4.0)]), successors=3)
    inputs = torch.tensor([[1.0], [10.0], [100.0], [0.0]], dtype=torch.float64)
    walked = layer(graphs, inputs, execution=execution)
    assert walked.visits.tolist() == [1, *map(pytest.approx, (0.2, 0.8)), 0]
    assert walked.final.item() == pytest.approx(0.2 * 11 + 0.8 * 101, rel=1e-6)


@st.composite
def some_graphs(draw: st.DrawFn, sides: int) -> Graphs:
    """Any graphs at all: loops, dead ends, edges that meet, exits out of reach, starts that are exits."""
    graphs, steps = [], []
    for _ in range(draw(st.integers(1, 3))):
        size = draw(st.integers(1, 5))
        node = st.integers(0, size - 1)
        graphs.append([tuple(draw(node) for _ in range(sides)) for _ in range(size - 1)] + [(size - 1,) * sides])
        steps.append(draw(st.integers(0, 6)))
    return graphs_of(*graphs, steps=steps)


@pytest.mark.parametrize("sides", [2, 3])
@pytest.mark.parametrize("hard", [False, True])
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_rows_and_reference_agree_on_any_graph(sides: int, hard: bool, data: st.DataObject) -> None:
    graphs = data.draw(some_graphs(sides))
    check_graphs(graphs)
    draws = torch.Generator().manual_seed(1)
    layer = IPAGNNLayer(3, 4, successors=sides, hard=hard, generator=draws).double()
    found = []
    for execution in ("rows", "reference"):
        inputs = torch.randn(graphs.nodes, 3, dtype=torch.float64, generator=draws.manual_seed(2)).requires_grad_()
        state = torch.randn(len(graphs), 4, dtype=torch.float64, generator=draws).requires_grad_()
        walked = layer(graphs, inputs, state=state, record=("pointer", "states"), execution=execution)
        exits = graphs.exits.long()
        shown = (walked.final, walked.pointer[:, exits], walked.recorded["states"][:, exits])
        loss = sum((x * torch.randn(x.shape, dtype=x.dtype, generator=draws)).sum() for x in shown)
        gradients = torch.autograd.grad(loss, [inputs, state, *layer.parameters()], allow_unused=True)  # type: ignore[arg-type]
        found.append([*shown, *(torch.zeros(()) if g is None or not g.any() else g for g in gradients)])
        assert all(x.isfinite().all() for x in found[-1])
        mass = walked.pointer.sum(dim=1)
        assert ((mass < len(graphs) + 1e-9) if execution == "rows" else ((mass - len(graphs)).abs() < 1e-9)).all()
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, **EXACT)


def test_gradients_flow_through_visits() -> None:
    graphs = graphs_of([(1, 2), (0, 0), (2, 2)], steps=[9])  # a loop that is left when node 0 says so
    layer = IPAGNNLayer(2, 3).double()
    inputs = torch.randn(3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: layer(graphs, x).visits, [inputs])
    layer(graphs, inputs).visits[1].backward()
    assert inputs.grad is not None
    assert inputs.grad[0].abs().max() > 0


class Slots(torch.nn.Module):
    """A state with a shape of its own, and a matrix for each node that moves its slots."""

    state_shape = (3, 2)

    def forward(self, state: Tensor, inputs: Tensor) -> Tensor:
        return torch.einsum("rij,rjk->rik", inputs, state)


@EXECUTIONS
def test_states_have_any_shape_and_a_beginning(execution: str) -> None:
    layer = IPAGNNLayer(cell=Slots()).double()
    draws = torch.Generator().manual_seed(0)
    moves = torch.randn(6, 3, 3, dtype=torch.float64, generator=draws)
    state = torch.randn(2, 3, 2, dtype=torch.float64, generator=draws)
    chain = [(1, 1), (2, 2), (2, 2)]
    walked = layer(graphs_of(chain, chain, steps=[2, 2]), moves, state=state, execution=execution)
    torch.testing.assert_close(walked.final[0], moves[1] @ moves[0] @ state[0], rtol=1e-6, atol=0)
    torch.testing.assert_close(walked.final[1], moves[4] @ moves[3] @ state[1], rtol=1e-6, atol=0)


def test_plans_are_made_once_and_move_along() -> None:
    graphs = graphs_of(DIAMOND, steps=[2])
    layer = IPAGNNLayer(2)
    layer(graphs, torch.zeros(4, 2))
    made = dict(graphs.plans)
    assert made
    layer(graphs, torch.zeros(4, 2))
    assert all(graphs.plans[key] is plan for key, plan in made.items())
    assert graphs.to("meta").plans.keys() == made.keys()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"steps": torch.tensor([-1]).int()}, "steps has a negative number"),
        ({"steps": torch.tensor([1, 2]).int()}, r"offsets is torch.int32 \[2\]; it must be torch.int32 \[3\]"),
        ({"start": torch.tensor([4]).int()}, "start names a node of another graph"),
        ({"offsets": torch.tensor([0, 3]).int()}, "offsets must rise from 0 to 4"),
        ({"successors": torch.zeros(4, 2)}, "successors is torch.float32"),
        ({"successors": torch.full((4, 2), 9).int()}, "successors names a node of another graph"),
        ({"exits": torch.tensor([1]).int()}, "successors of an exit are not the exit itself"),
    ],
)
def test_graphs_that_are_none_are_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        check_graphs(dataclasses.replace(graphs_of(DIAMOND, steps=[2]), **changes))


def test_layers_refuse_what_they_cannot_do() -> None:
    with pytest.raises(ValueError, match="either the width of your features"):
        IPAGNNLayer()
    with pytest.raises(ValueError, match="successors is 4"):
        IPAGNNLayer(3, successors=4)
    with pytest.raises(ValueError, match="no attribute state_shape"):
        IPAGNNLayer(cell=lambda state, inputs: state)
    layer, graphs = IPAGNNLayer(2), graphs_of(DIAMOND, steps=[2])
    with pytest.raises(ValueError, match="inputs of 3 nodes, and the graphs have 4"):
        layer(graphs, torch.zeros(3, 2))
    with pytest.raises(ValueError, match="make it with successors=3"):
        layer(graphs_of([(1, 1, 1), (1, 1, 1)], steps=[1]), torch.zeros(2, 2))
    with pytest.raises(ValueError, match=r"no execution 'refrence'. Did you mean 'reference'\?"):
        layer(graphs, torch.zeros(4, 2), execution="refrence")
    with pytest.raises(ValueError, match="'rows' cannot run this: it plans all rows beforehand"):
        layer(graphs, torch.zeros(4, 2), execution="rows", prune=0.1)
