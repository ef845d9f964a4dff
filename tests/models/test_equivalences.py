"""What the paper says is equal (sections 4.3 and 4.4), with shared weights."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from ipagnn.data.contract import Batch
from ipagnn.languages.arithmetic.grammar import Grammar, Lengths
from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.languages.arithmetic.sampler import Sampler
from ipagnn.models import GGNN, ProgramModel
from ipagnn.models.message_passing import MessagePassing
from ipagnn.nn.control import InstructionPointer, Neighbours
from ipagnn.nn.execution import GatedUpdate, RunStatement

from ..conftest import Make

EXACT = {"rtol": 1e-9, "atol": 1e-12}
NORMALISED = {"rtol": 1e-4, "atol": 1e-5}  # each division by mass + 1e-7 takes a ten-millionth of the state


def shared(target: ProgramModel, source: ProgramModel) -> ProgramModel:
    """`target` with the weights of `source`, as far as it has them."""
    theirs = source.state_dict()
    target.load_state_dict({key: theirs[key] for key in target.state_dict()})
    return target


def test_saturated_ipa_gnn_is_the_hard_ip_rnn(make: Make, mixed: ProgramTable) -> None:
    soft = make("ipa-gnn")
    hard = make("hard-ip-rnn")
    hard.load_state_dict(soft.state_dict(), assign=True)  # the weights load as they are
    batch = soft.collate(mixed)
    assert not torch.allclose(soft(batch).logits, hard(batch).logits), "nothing would be shown"
    with torch.no_grad():
        soft.control.branch.weight *= 1e8  # type: ignore[union-attr, operator]
    saturated, decided = soft(batch, record=("pointer", "branch")), hard(batch, record=("pointer", "branch"))
    branch, met = saturated["branch"], saturated["pointer"][:-1] > 0
    taken = branch[~branch.isnan() & met]
    assert set(taken.tolist()) == {0.0, 1.0}, "both branches are taken, and fully"
    torch.testing.assert_close(saturated.logits, decided.logits, **EXACT)
    torch.testing.assert_close(saturated["pointer"], decided["pointer"], **EXACT)


def right_decisions(batch: Batch, node_paths: list[list[int]]) -> list[Tensor]:
    """By step: which branch the node that a program is at must take. [node, 2]"""
    longest = max(map(len, node_paths))
    decisions = []
    for t in range(longest):
        b = torch.tensor([1.0, 0.0], dtype=torch.float64).repeat(len(batch.true), 1)
        for path in node_paths:
            if t + 1 < len(path) and batch.true[path[t]] != path[t + 1]:
                b[path[t]] = b[path[t]].flip(0)
        decisions.append(b)
    return decisions


@pytest.mark.parametrize("normalise", [True, False])
def test_hard_ip_rnn_with_right_decisions_is_the_trace_rnn(
    make: Make, monkeypatch: pytest.MonkeyPatch, normalise: bool
) -> None:
    hard = make("hard-ip-rnn", dense=True, normalise=normalise)
    oracle = shared(make("trace-rnn"), hard)
    drawn = Sampler(lengths=Lengths.uniform([10, 15]), seed=2).table(0, 80)
    batch = oracle.collate(drawn)
    lengths = batch.trace_offsets.diff()  # type: ignore[union-attr]
    table = drawn.take(torch.nonzero(lengths <= batch.steps).squeeze(1).numpy())
    batch = oracle.collate(table)
    offsets = batch.trace_offsets.tolist()  # type: ignore[union-attr]
    paths = [batch.trace[first:end].tolist() for first, end in pairwise(offsets)]  # type: ignore[index]
    decisions = right_decisions(batch, [[*path, int(exit)] for path, exit in zip(paths, batch.exits, strict=True)])
    assert len(table) > 20
    assert any((b[:, 1] == 1).any() for b in decisions), "false branches are taken too"
    assert any(len(set(path)) < len(path) for path in paths), "loops go round"
    calls = iter(decisions)
    monkeypatch.setattr("ipagnn.ops.reference.branch_decisions", lambda logits, edges, hard: next(calls, decisions[-1]))
    logits = hard(batch).logits
    torch.testing.assert_close(logits, oracle(batch).logits, **(NORMALISED if normalise else EXACT))


def test_on_straight_lines_trace_rnn_line_rnn_and_ipa_gnn_are_one(make: Make) -> None:
    straight = Grammar(stmt_pass=0, stmt_repeat=0, stmt_if=0, stmt_if_else=0)
    table = Sampler(lengths=Lengths.uniform(range(2, 30)), grammar=straight, seed=3).table(0, 40)
    line = make("line-rnn")
    trace = shared(make("trace-rnn"), line)
    expected = line(line.collate(table)).logits
    torch.testing.assert_close(trace(trace.collate(table)).logits, expected, **EXACT)
    for name in ("ipa-gnn", "hard-ip-rnn"):
        for normalise in (True, False):
            pointed = make(name, normalise=normalise)
            pointed.load_state_dict(line.state_dict(), strict=False)
            logits = pointed(pointed.collate(table)).logits
            torch.testing.assert_close(logits, expected, **(NORMALISED if normalise else EXACT))


class Table(MessagePassing):
    """The column of the IPA-GNN in the paper's table, put together from its control and its execution."""

    records = frozenset({"pointer", "branch", "states"})

    def build(self, generator: torch.Generator) -> None:
        super().build(generator)
        self.control = InstructionPointer(self.config.hidden, generator, normalise=True, exit_keeps=True)
        self.execution = RunStatement()


def test_the_column_of_the_table_is_the_ipa_gnn_to_the_last_bit(make: Make, mixed: ProgramTable) -> None:
    """And the IPA-GNN is `IPAGNNLayer`, so that the layer has the paper's numbers."""
    ipa = make("ipa-gnn")
    table = shared(Table(ipa.config).double(), ipa)
    batch, record = ipa.collate(mixed), ("pointer", "branch", "states")
    ours, theirs = ipa(batch, record=record, execution="reference"), table(batch, record=record)
    assert torch.equal(ours.logits, theirs.logits)
    for name in record:
        assert torch.equal(ours[name].nan_to_num(-1), theirs[name].nan_to_num(-1)), name
    ours.logits.square().sum().backward()
    theirs.logits.square().sum().backward()
    for one, other in zip(ipa.parameters(), table.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-12, atol=1e-14)


def test_ipa_gnn_with_both_replacements_is_the_ggnn(make: Make, mixed: ProgramTable) -> None:
    ipa, ggnn = Table(make("ipa-gnn").config).double(), make("ggnn")
    assert isinstance(ggnn, GGNN)
    batch = ggnn.collate(mixed)
    expected = ggnn(batch).logits
    ipa.load_state_dict(ggnn.state_dict(), strict=False)
    ipa.control = Neighbours("root")
    ipa.execution = GatedUpdate(ipa.config.hidden, 4, torch.Generator()).double()
    assert not torch.allclose(ipa(batch).logits, expected)
    ipa.execution.load_state_dict(ggnn.execution.state_dict())
    assert torch.equal(ipa(batch).logits, expected)


def test_ablations_differ_from_the_ipa_gnn_by_one_column_each(make: Make) -> None:
    ipa = Table(make("ipa-gnn").config)
    ggnn, no_control, no_execute = (make(n) for n in ("ggnn", "no-control", "no-execute"))
    for model, control, execution in ((no_control, ggnn, ipa), (no_execute, ipa, ggnn)):
        assert type(model.control) is type(control.control)
        assert type(model.execution) is type(execution.execution)


def torchs_gru(execution: GatedUpdate) -> torch.nn.GRUCell:
    """torch's own GRU, with the weights of ours."""
    gru = torch.nn.GRUCell(*[len(execution.gru.hidden)] * 2).double()
    with torch.no_grad():
        gru.weight_ih.copy_(execution.gru.input.T)
        gru.weight_hh.copy_(execution.gru.hidden.T)
        gru.bias_ih.copy_(execution.gru.bias)
        gru.bias_hh.zero_()
    return gru


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("absorb", [True, False])
def test_no_execute_one_node_at_a_time(make: Make, short: ProgramTable, absorb: bool, normalise: bool) -> None:
    """NoExecute again, written with loops over nodes and torch's own GRU."""
    model = make("no-execute", absorbing_exit=absorb, normalise=normalise)
    execution, hidden = model.execution, model.config.hidden
    gru = torchs_gru(execution)
    batch = model.collate(short.slice(0, 4))
    logits = []
    for i, (first, end) in enumerate(pairwise(batch.node_offsets.tolist())):
        h = [model.cell(model.cell.zero_state(1), batch.node_tokens[n : n + 1])[0] for n in range(first, end)]
        p, last = [1.0] + [0.0] * (end - first - 1), end - first - 1
        absorbed = torch.zeros(4 * hidden, dtype=torch.float64)
        for _ in range(int(batch.steps[i])):
            total, mass = [torch.zeros_like(absorbed) for _ in h], [0.0] * len(h)
            for n in range(len(h)):
                true, false = int(batch.true[first + n]) - first, int(batch.false[first + n]) - first
                shares = model.control.branch(h[n]).softmax(0)
                for to, kind, share in (
                    [(true, 0, shares[0]), (false, 1, shares[1])] if true != false else [(true, 0, 1)]
                ):
                    weight = p[n] * share
                    mass[to] += weight
                    if not (absorb and n == last):
                        total[to] = total[to] + weight * execution.dense[kind](h[n].view(4, hidden)).flatten()
            absorbed = absorbed + total[last]
            if normalise:
                total = [t / (m + 1e-7) if m > 0 else t for t, m in zip(total, mass, strict=True)]
            h = [gru(t.view(4, hidden), x.view(4, hidden)).flatten() for t, x in zip(total, h, strict=True)]
            p = mass
        divided = absorbed / (p[last] + 1e-7) if normalise else absorbed
        logits.append(model.output(divided if absorb else h[last]))
    torch.testing.assert_close(model(batch).logits, torch.stack(logits), **EXACT)


def test_ggnn_one_node_at_a_time(make: Make, short: ProgramTable) -> None:
    """The GGNN again, written with loops over nodes and edges and torch's own GRU."""
    model = make("ggnn")
    assert isinstance(model, GGNN)
    execution, hidden = model.execution, model.config.hidden
    assert isinstance(execution, GatedUpdate)
    gru = torchs_gru(execution)
    batch = model.collate(short.slice(0, 4))
    logits = []
    for i, (first, end) in enumerate(pairwise(batch.node_offsets.tolist())):
        h = [
            model.cell(model.cell.zero_state(1), batch.node_tokens[n : n + 1]).view(4, hidden)
            for n in range(first, end)
        ]
        edges = []
        for n in range(first, end):
            true, false = int(batch.true[n]), int(batch.false[n])
            edges.append((n - first, true - first, 0))
            if true != false:
                edges.append((n - first, false - first, 1))
        for _ in range(int(batch.steps[i])):
            new = []
            for n in range(end - first):
                arriving = [execution.dense[kind](h[s]) for s, t, kind in edges if t == n]
                back = [execution.dense[kind + 2](h[t]) for s, t, kind in edges if s == n]
                new.append(gru(sum(arriving + back) / (2 + len(arriving)) ** 0.5, h[n]))
            h = new
        logits.append(model.output(h[-1].flatten()))
    torch.testing.assert_close(model(batch).logits, torch.stack(logits), **EXACT)
