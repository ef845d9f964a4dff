"""The loss of decisions along true traces, against the dense form and spelled out."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ipagnn.data.collate import StepBudget
from ipagnn.languages.arithmetic.cfg import control_flow_graph
from ipagnn.languages.arithmetic.interpreter import trace, trace_length
from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.languages.arithmetic.text import parse
from ipagnn.models import ProgramModel
from ipagnn.models.ipa_gnn import batch_labels
from ipagnn.ops.pointer.rows import plan_rows

from ..conftest import EXACT, HOWS, Make, assert_same, reference


def trace_losses(dense: ProgramModel, table: ProgramTable) -> tuple[Tensor, Tensor]:
    """What the dense form loses by final values, and by decisions along the true traces as far as steps allow."""
    batch = dense.collate(table)
    output = dense(batch, record=("pointer", "branch"))
    losses = []
    for index, program in enumerate(table):
        graph, first = control_flow_graph(program), int(batch.node_offsets[index])
        edges = [(graph.true[n], graph.false[n]) for n in range(graph.exit)]
        distance = dict.fromkeys(range(len(graph)), graph.exit) | {graph.exit: 0}
        for _ in edges:
            distance |= {n: 1 + min(distance[int(m)] for m in both) for n, both in enumerate(edges)}
        nodes = [graph.nodes.tolist().index(step.line) for step in trace(program)]
        loss = torch.zeros((), dtype=torch.float64)
        for t, (node, following) in enumerate(pairwise([*nodes, graph.exit])):
            if t + distance[node] > int(batch.steps[index]):
                break
            if graph.true[node] != graph.false[node]:
                share = output["branch"][t, first + node]
                loss = loss - (share if following == graph.true[node] else 1 - share).log()
        losses.append(loss)
    return cross_entropy(output.logits, batch.target, reduction="none"), torch.stack(losses)


@pytest.mark.parametrize("how", HOWS, indirect=True)
@pytest.mark.parametrize("budget", [StepBudget(), StepBudget("trace", 1.25), StepBudget("static")])
@pytest.mark.parametrize("normalise", [True, False])
def test_the_loss_of_decisions_along_the_trace(
    make: Make, some: ProgramTable, how: str, budget: StepBudget, normalise: bool
) -> None:
    some = some.take([i for i, program in enumerate(some) if trace_length(program) <= 100])
    model = make("ipa-gnn", budget=budget, normalise=normalise)
    batch = model.collate(some, trace=True)
    output = model(batch, record=("trace_loss",))
    dense = reference(model)
    value_loss, trace_loss = trace_losses(dense, some)
    torch.testing.assert_close(output["trace_loss"], trace_loss, **EXACT)
    assert (trace_loss > 0.5).sum() > len(some) / 3
    weight = torch.linspace(0.5, 2, len(some), dtype=torch.float64)  # of each program, which gradients must tell apart
    (value_loss + weight * trace_loss).sum().backward()
    (cross_entropy(output.logits, batch.target, reduction="none") + weight * output["trace_loss"]).sum().backward()
    ours, theirs = ({name: x.grad for name, x in each.named_parameters()} for each in (model, dense))
    assert_same(ours, theirs, **EXACT)


def test_batches_tell_the_branches_of_traces_when_asked(make: Make, short: ProgramTable) -> None:
    model = make("ipa-gnn")
    with pytest.raises(ValueError, match="no true traces"):
        model(model.collate(short), record=("trace_loss",))
    loop = parse("v0 = 1\nv1 = 2\nwhile v1 > 0:\n  v1 -= 1\n  v0 += 3\nv0 *= 2")
    batch = make("ipa-gnn", budget=StepBudget("trace")).collate([loop], trace=True)
    rows, labels = batch.graphs.plan(plan_rows), batch.plan(batch_labels)
    passed = {(int(rows.node[row]), int(side)) for row, side in enumerate(labels) if side >= 0}
    assert passed == {(2, 0), (2, 1)}  # into the loop, and past it
    assert (labels == 0).sum() == 2
    assert (labels == 1).sum() == 1
    with pytest.raises(ValueError, match="masked line"):
        model.collate([parse("v0 = 1\n[MASK]")], trace=True)


@pytest.mark.parametrize("name", ["ipa-gnn", "hard-ip-rnn"])
def test_every_execution_has_the_loss(make: Make, short: ProgramTable, name: str) -> None:
    model = make(name)
    batch = model.collate(short, trace=True)
    record = ("trace_loss",)
    found = [model(batch, record=record, execution=how)["trace_loss"] for how in ("compiled", "rows", "reference")]
    gradients = [torch.autograd.grad(loss.sum(), model.cell.hidden_1)[0] for loss in found]
    for loss, gradient in zip(found[1:], gradients[1:], strict=True):
        torch.testing.assert_close(loss, found[0], **EXACT)
        torch.testing.assert_close(gradient, gradients[0], **EXACT)
