"""Programs for other graph libraries."""

import pytest
import torch

from ipagnn.data import StepBudget, collate
from ipagnn.data.geometric import FALSE, NEXT, TRUE, to_geometric
from ipagnn.languages.arithmetic import Lengths, Sampler, control_flow_graph, format_program, parse, steps

LOOP = parse("v0 = 7\nv1 = 3\nwhile v1 > 0:\n  v1 -= 1\n  v0 *= 2\n")


def test_networkx_gets_all_fields() -> None:
    graph = control_flow_graph(LOOP).to_networkx(target=56)
    assert graph.graph == {"source": format_program(LOOP), "start": 0, "exit": 5, "steps": steps(LOOP), "target": 56}
    assert graph.nodes[2] == {"label": "while v1 > 0:", "line": 2, "tokens": tuple(LOOP.line_tokens[2].tolist())}
    assert graph.nodes[5] == {"label": "exit", "line": None, "tokens": (0, 0, 0, 0)}
    assert [(a, b, branch) for a, b, branch in graph.edges(data="branch")] == [
        (0, 1, None), (1, 2, None), (2, 3, True), (2, 5, False), (3, 4, None), (4, 2, None),
    ]  # fmt: skip


def test_geometric_gets_all_fields() -> None:
    pytest.importorskip("torch_geometric")
    data = to_geometric(LOOP, 56, budget=StepBudget(factor=2.0))
    batch = collate([LOOP], StepBudget(factor=2.0))
    assert torch.equal(data.x, batch.node_tokens.long())
    assert data.edge_index.T.tolist() == [[0, 1], [1, 2], [2, 3], [2, 5], [3, 4], [4, 2]]
    assert data.edge_type.tolist() == [NEXT, NEXT, TRUE, FALSE, NEXT, NEXT]
    assert data.line.tolist() == [0, 1, 2, 3, 4, -1]
    assert (data.start_index.tolist(), data.exit_index.tolist(), data.steps.tolist()) == (
        [0],
        [5],
        batch.steps.tolist(),
    )
    assert (data.y.tolist(), data.source) == ([56], format_program(LOOP))
    assert to_geometric(parse("v0 = 1\n_")).y.tolist() == [-1]


@pytest.mark.filterwarnings("default")
def test_a_batch_of_geometric_is_ours() -> None:
    library = pytest.importorskip("torch_geometric.data")
    table = Sampler("full", Lengths.exact(8), seed=2).table(0, 20)
    joined = library.Batch.from_data_list([to_geometric(p, int(t)) for p, t in zip(table, table.target, strict=True)])
    batch = collate(table)
    assert torch.equal(joined.x, batch.node_tokens.long())
    assert torch.equal(joined.start_index, batch.starts.long())
    assert torch.equal(joined.exit_index, batch.exits.long())
    assert torch.equal(joined.y, batch.target)
    true = joined.edge_index[:, joined.edge_type != FALSE]
    assert torch.equal(batch.true[true[0]].long(), true[1])
