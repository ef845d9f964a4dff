"""Numbers worked out by hand on graphs of three to five nodes.

The cell is replaced by one a hand can follow: executing a statement with operand k makes 2 h + k of every number in the
state. Every decision is 3/4 true, 1/4 false.
"""

import math

import pytest
import torch
from torch import Tensor

from ipagnn.languages.arithmetic.text import parse
from ipagnn.languages.arithmetic.vocabulary import NUMBER
from ipagnn.models import IPAGNN, build_model
from ipagnn.models.r_gat import RelationalAttention
from ipagnn.nn.cell import StatementRNN
from ipagnn.nn.control import Neighbours
from ipagnn.nn.message_passing import Edges

from ..conftest import reference

IF = "v0 = 1\nif v0 % 10 > 5:\n  v0 += 2\nv0 += 3"
LOOP = "v0 = 1\nwhile v0 > 0:\n  v0 -= 1"


class Doubler(StatementRNN):
    def forward(self, state: Tensor, tokens: Tensor, table: Tensor | None = None) -> Tensor:
        return 2 * state + (tokens[:, 3:] - NUMBER)


def by_hand(**options: object) -> IPAGNN:
    model = reference(build_model("ipa-gnn", hidden=1, **options).double())
    assert isinstance(model, IPAGNN)
    model.cell = Doubler(1, torch.Generator()).double()
    with torch.no_grad():
        model.control.branch.weight.zero_()
        model.control.branch.bias.copy_(torch.tensor([math.log(3), 0.0]))
    return model


def close(found: Tensor, expected: list[float] | list[list[float]]) -> None:
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=1e-6)


def test_pointer_and_states_of_an_if() -> None:
    model = by_hand()
    batch = model.collate([parse(IF)])
    output = model(batch, record=("pointer", "branch", "states"))
    assert batch.steps.tolist() == [5]
    close(
        output["pointer"],
        [[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0.75, 0.25, 0], [0, 0, 0, 0.75, 0.25], *[[0, 0, 0, 0, 1]] * 2],
    )
    assert output["branch"].nan_to_num(-1).tolist() == [[-1, pytest.approx(0.75), -1, -1, -1]] * 5
    # v0 = 1 makes 1; the if, 2·1 + 5 = 7; the body, 2·7 + 2 = 16; the last line 2·7 + 3 = 17 without it, 35 with it.
    close(output["states"][1, 1], [1] * 4)
    close(output["states"][2, 2], [7] * 4)
    close(output["states"][2, 3], [7] * 4)
    close(output["states"][3, 3], [16] * 4)
    close(output["states"][3, 4], [17] * 4)
    close(output["states"][5, 4], [0.25 * 17 + 0.75 * 35] * 4)
    close(output.logits[0], (output["states"][5, 4] @ model.output.weight).tolist())


def test_the_literal_sum_of_equation_5() -> None:
    model = by_hand(normalise=False)
    states = model(model.collate([parse(IF)]), record=("states",))["states"]
    close(states[2, 2], [0.75 * 7] * 4)
    close(states[2, 3], [0.25 * 7] * 4)
    close(states[3, 3], [0.75 * (2 * 5.25 + 2)] * 4)
    close(states[5, 4], [0.25 * (2 * 1.75 + 3) + 0.75 * (2 * 9.375 + 3)] * 4)


def test_a_loop_leaks_mass_to_the_exit_each_round() -> None:
    model = by_hand()
    batch = model.collate([parse(LOOP)])
    output = model(batch, record=("pointer", "branch", "states"))
    assert batch.steps.tolist() == [7]  # 1 for the exit, 1 + 1 + 2 for the lines, 2 for the loop
    close(output["pointer"][:, 3], [0, 0, 0.25, 0.25, 0.4375, 0.4375, 0.578125, 0.578125])
    close(output["pointer"][:, 1], [0, 1, 0, 0.75, 0, 0.5625, 0, 0.421875])
    # The while leaves 2 the first time, 2·(2·2 + 1) = 10 the second, 2·(2·10 + 1) = 42 the third.
    arrived = 0.25 * 2 + 0.1875 * 10 + 0.140625 * 42
    close(output["states"][7, 3], [arrived / 0.578125] * 4)


def test_pruning_drops_what_arrives_below_the_threshold() -> None:
    model = by_hand().eval()
    output = model(model.collate([parse(LOOP)]), record=("pointer", "dropped"), prune=0.6)
    # 3/4 goes round once; of that 9/16 < 0.6 goes round again and is dropped on arrival, 3/16 reaches the exit.
    close(output["dropped"], [0.5625])
    close(output["pointer"][-1], [0, 0, 0, 0.4375])
    expected = (0.25 * 2 + 0.1875 * 10) / 0.4375
    close(output.logits[0], (torch.full((4,), expected, dtype=torch.float64) @ model.output.weight).tolist())


def test_sums_over_all_neighbours() -> None:
    """0 -> 1 -> exit: the exit is its own successor, and its own predecessor in reverse."""
    batch = by_hand().collate([parse("v0 = 1\nv0 += 2")])
    a = torch.tensor([[1.0], [10.0], [100.0]], dtype=torch.float64)
    p = torch.zeros(3, dtype=torch.float64)
    edges = Edges.bidirectional(batch)
    expected = {"one": [10, 101, 210], "root": [10 / 2**0.5, 101 / 3**0.5, 210 / 2], "mass": [10, 50.5, 70]}
    for divisor, sums in expected.items():
        control = Neighbours(divisor)  # type: ignore[arg-type]
        close(control.gather(a[edges.source], a, p, batch, edges)[0].squeeze(1), sums)
    along = Neighbours("mass", bidirectional=False)  # nothing leads to node 0, to the exit node 1 and itself
    edges = along.edges(batch)
    close(along.gather(a[edges.source], a, p, batch, edges)[0].squeeze(1), [0, 1, 55])


def test_attention_without_preference_is_a_mean_and_with_it_a_softmax() -> None:
    batch = by_hand().collate([parse("v0 = 1\nv0 += 2")])
    attention = RelationalAttention(1, 1, 4, torch.Generator()).double()
    x = torch.tensor([[1.0], [10.0], [100.0]], dtype=torch.float64)
    with torch.no_grad():
        attention.kernel.fill_(1.0)
        attention.query.zero_()
        attention.key.zero_()
        attention.bias.fill_(0.5)
        close(attention(x, Edges.bidirectional(batch)).squeeze(1), [10.5, 51, 70.5])
        attention.key.fill_(0.01)  # node 1 hears node 0 with weight e^0.01 and the exit with e^1
        weights = math.exp(0.01), math.exp(1)
        expected = (weights[0] * 1 + weights[1] * 100) / sum(weights) + 0.5
        close(attention(x, Edges.bidirectional(batch))[1], [expected])
