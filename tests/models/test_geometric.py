"""GGNN and R-GAT against the layers of torch-geometric, where those compute the same."""

import pytest
import torch

from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.models import GGNN
from ipagnn.models.r_gat import RGAT
from ipagnn.nn.execution import GatedUpdate
from ipagnn.nn.message_passing import Edges

from ..conftest import Make

pytestmark = pytest.mark.slow


def test_one_edge_type_of_the_ggnn_is_gated_graph_conv(make: Make, short: ProgramTable) -> None:
    """With one Dense for all types, without bias, and before the division, a round is a GatedGraphConv layer."""
    nn = pytest.importorskip("torch_geometric.nn")
    model = make("ggnn")
    assert isinstance(model, GGNN)
    execution, hidden = model.execution, model.config.hidden
    assert isinstance(execution, GatedUpdate)
    batch = model.collate(short)
    edges = Edges.bidirectional(batch)
    layer = nn.GatedGraphConv(hidden, num_layers=1).double()
    with torch.no_grad():
        for dense in execution.dense:
            dense.load_state_dict(execution.dense[0].state_dict())
        layer.weight.copy_(execution.dense[0].weight[None])
        layer.rnn.weight_ih.copy_(execution.gru.input.T)
        layer.rnn.weight_hh.copy_(execution.gru.hidden.T)
        layer.rnn.bias_ih.copy_(execution.gru.bias)
        layer.rnn.bias_hh.zero_()
    model.control.divisor = "one"  # type: ignore[assignment]
    h = execution.start(model.cell, batch)
    p = torch.zeros_like(h[:, 0])
    proposal, _, _ = model.control.gather(execution.messages(h, edges), h, p, batch, edges)
    ours = execution.update(h, proposal)
    index = torch.stack([edges.source, edges.target]).long()
    for mine, part in zip(ours.chunk(4, dim=1), h.chunk(4, dim=1), strict=True):
        torch.testing.assert_close(mine, layer(part, index))


@pytest.mark.parametrize("heads", [1, 2])
def test_a_round_of_attention_is_rgat_conv(make: Make, short: ProgramTable, heads: int) -> None:
    """RGATConv has one query and one key for all types; ours has one for each, here made equal."""
    nn = pytest.importorskip("torch_geometric.nn")
    model = make("r-gat", hidden=6, heads=heads)
    assert isinstance(model, RGAT)
    batch = model.collate(short)
    edges = Edges.bidirectional(batch)
    attention = model.attention
    width = 6 // heads
    layer = nn.RGATConv(
        6,
        width,
        num_relations=4,
        heads=heads,
        mod=None,
        attention_mechanism="across-relation",
        attention_mode="additive-self-attention",
    ).double()
    with torch.no_grad():
        layer.weight.copy_(attention.kernel)
        layer.q.zero_()
        layer.k.zero_()
        for head in range(heads):
            rows = slice(head * width, (head + 1) * width)
            for theirs, ours in ((layer.q, attention.query), (layer.k, attention.key)):
                ours[:] = ours[:1].clone()
                theirs[rows, head] = ours[0, head]
        attention.bias.normal_(generator=torch.Generator().manual_seed(0))
        layer.bias.copy_(attention.bias)
    x = torch.randn(len(batch.true), 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    index = torch.stack([edges.source, edges.target]).long()
    torch.testing.assert_close(attention(x, edges), layer(x, index, edges.kind.long()))
