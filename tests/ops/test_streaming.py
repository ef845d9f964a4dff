"""Inference without unrolled rows: its plans by hand and in plain torch, its kernels in Triton's interpreter."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor

from ipagnn.data.collate import StepBudget, collate
from ipagnn.languages.arithmetic import parse
from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.models import ProgramModel
from ipagnn.models.ipa_gnn import IPAGNN
from ipagnn.models.line_rnn import LineRNN
from ipagnn.models.sequence import SequenceModel
from ipagnn.ops.pointer.equations import branch_decisions, divide, two_edges
from ipagnn.ops.pointer.streaming.plan import FAR, PointerPlan, plan_pointer, plan_sequences, steps_to_exit

from ..conftest import IP_CASES, Make

EXACT = {"rtol": 1e-10, "atol": 1e-12}

LOOP = parse("v0 = 7\nwhile v0 % 10 > 3:\n  v0 -= 1")  # nodes 0, 1, 2 and the exit 3; T = 1 + 1 + 1 + 2 + 2
LINE = parse("v0 = 7")  # node 0 and the exit 1; T = 2


def test_the_plan_of_a_loop_by_hand() -> None:
    """The loop is longer, so that its nodes come first: 0..3, then 4 and 5 for the single line."""
    batch = collate([LINE, LOOP])
    assert batch.steps.tolist() == [2, 7]
    plan = plan_pointer(batch.graphs)
    assert plan.steps == 7
    assert plan.origin.tolist() == [2, 3, 4, 5, 0, 1]
    assert plan.owner.tolist() == [1, 1, 1, 1, 0, 0]
    assert plan.exit_of.tolist() == [-1, -1, -1, 1, -1, 0]
    assert plan.last.tolist() == [7 - 2, 7 - 1, 7 - 2, 7, 2 - 1, 2]
    assert plan.decides.tolist() == [0, 1, 0, 0, 0, 0]
    into = [
        plan.edges[first:end].tolist() for first, end in zip(plan.edge_offsets, plan.edge_offsets[1:], strict=False)
    ]
    assert into == [[], [2 * 0, 2 * 2], [2 * 1], [2 * 1 + 1], [], [2 * 4]]  # exits have no edge to themselves
    assert plan.nodes_at.tolist() == [6] * 3 + [4] * 5
    assert plan.starts.tolist() == [0, 4]


def test_programs_that_cannot_end_in_time_do_not_begin() -> None:
    plan = plan_pointer(collate([LOOP, LINE], budget=StepBudget(factor=0.1)).graphs)
    assert plan.steps == 1
    assert plan.starts.tolist() == [4]  # the loop needs two steps


def test_steps_to_exit_by_hand() -> None:
    assert steps_to_exit(collate([LOOP, LINE]).graphs).tolist() == [2, 1, 2, 0, 1, 0]
    forever = collate([parse("v0 = 1\nwhile v0 > 0:\n  v0 += 1\n  continue\n  v0 = 0\nv0 = 2")])
    assert (steps_to_exit(forever.graphs) < FAR).all(), "the loop may end, as far as the graph can tell"


def test_sequences_by_hand() -> None:
    """Lines of three programs, of 1, 3 and 1 lines: the second comes first, the others in order."""
    batch = collate([LINE, LOOP, LINE])
    sequences = LineRNN.sequences(batch)
    plan = plan_sequences(sequences.graphs)
    assert plan.rank.tolist() == [1, 0, 2]
    assert plan.starts.tolist() == [0, 3, 4]
    assert plan.counts.tolist() == [3, 1, 1]
    lines = batch.line_tokens
    assert torch.equal(sequences.tokens[plan.node], torch.stack([lines[1], lines[0], lines[4], lines[2], lines[3]]))


def follow(model: IPAGNN, plan: PointerPlan, tokens: Tensor, programs: int) -> Tensor:
    """What the kernels do with a plan, in plain torch and over all nodes: the final states."""
    nodes = len(plan.origin)
    target = torch.repeat_interleave(plan.edge_offsets.diff().long())
    source, branch = plan.edges.long() // 2, plan.edges.long() % 2
    exits = (plan.exit_of >= 0).nonzero().squeeze(1)
    state = model.cell.zero_state(nodes)
    mass = state[:, 0].index_fill(0, plan.starts, 1.0)
    final, final_mass = model.cell.zero_state(programs), state.new_zeros(programs)
    for t in range(1, plan.steps + 1):
        a = model.cell(state, tokens)
        shares = branch_decisions(model.control.branch(a), two_edges(plan.decides != 0), hard=model.hard)
        takes_part = (t <= plan.last) & (torch.arange(nodes) < plan.nodes_at[t])
        weight = torch.where(takes_part[target], mass[source] * shares[source, branch], 0.0)
        mass = torch.zeros_like(mass).index_add(0, target, weight)
        state = torch.zeros_like(state).index_add(0, target, weight[:, None] * a[source])
        final = final.index_add(0, plan.exit_of[exits], state[exits])
        final_mass = final_mass.index_add(0, plan.exit_of[exits], mass[exits])
        mass = torch.where(plan.exit_of >= 0, 0.0, mass)
        state = divide(state, mass) if model.config.normalise else state
    return divide(final, final_mass) if model.config.normalise else final


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("name", ["ipa-gnn", "hard-ip-rnn"])
@pytest.mark.parametrize("factor", [0.4, 1.0])
def test_the_plan_leads_to_the_dense_answer(
    make: Make, mixed: ProgramTable, name: str, normalise: bool, factor: float
) -> None:
    model = make(name, normalise=normalise, dense=True, budget=StepBudget(factor=factor)).eval()
    assert isinstance(model, IPAGNN)
    batch = model.collate(mixed)
    plan = plan_pointer(batch.graphs)
    with torch.inference_mode():
        found = model.output(follow(model, plan, batch.node_tokens[plan.origin], len(batch)))
        torch.testing.assert_close(found, model(batch).logits, **EXACT)


@pytest.mark.parametrize("name", ["trace-rnn", "line-rnn"])
def test_sequences_lead_to_the_packed_answer(make: Make, mixed: ProgramTable, name: str) -> None:
    model = make(name).eval()
    assert isinstance(model, SequenceModel)
    batch = model.collate(mixed)
    graphs, tokens = model.walked(batch)
    plan = plan_sequences(graphs)
    with torch.inference_mode():
        state = model.cell.zero_state(len(batch))
        for start, count in zip(plan.starts.tolist(), plan.counts.tolist(), strict=True):
            state[:count] = model.cell(state[:count], tokens[plan.node[start : start + count]])
        torch.testing.assert_close(model.output(state[plan.rank]), model(batch).logits, **EXACT)


KERNELS = """
import json, sys, torch
from ipagnn.models import build_model
from ipagnn.languages.arithmetic import Lengths, Sampler
from ipagnn.ops.pointer.streaming import backend
backend.missing = lambda weight: None  # on a CPU, in the interpreter
name, options = sys.argv[1], json.loads(sys.argv[2])
model = build_model(name, hidden=8, **options, seed=3).eval()
for key, parameter in model.named_parameters():
    parameter.data *= 4 if "branch.weight" in key else 1
table = Sampler("full", Lengths.uniform((3, 7)), seed=5).table(0, 3)
batch = model.collate(table)
with torch.inference_mode():
    record = model.records & {"pointer", "branch"}
    expected = model(batch, record=record, execution="rows")
    found = model(batch, record=record, execution="streaming")
    torch.testing.assert_close(found.logits, expected.logits, rtol=1e-4, atol=1e-6)
    if record and name != "trace-rnn":
        torch.testing.assert_close(found["pointer"], expected["pointer"], rtol=1e-4, atol=1e-6)
        shown = ~found["branch"].isnan()
        assert not (expected["pointer"][:-1][~shown & ~expected["branch"].isnan()] > 0).any()
        torch.testing.assert_close(found["branch"][shown], expected["branch"][shown], rtol=1e-4, atol=1e-6)
    if model.can_prune and not options:
        expected = model(batch, record=["dropped"], prune=0.3, execution="pruned")
        found = model(batch, record=["dropped"], prune=0.3, execution="streaming")
        assert expected["dropped"].max() > 0.3 or model.hard
        torch.testing.assert_close(found.logits, expected.logits, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(found["dropped"], expected["dropped"], rtol=1e-4, atol=1e-6)
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), IP_CASES)
def test_kernels_agree_with_packed_rows(name: str, options: dict) -> None:
    """In Triton's interpreter, which needs no GPU; it must be asked for before Triton is imported."""
    command = [sys.executable, "-c", KERNELS, name, json.dumps(options)]
    done = subprocess.run(
        command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def on_gpu(model: ProgramModel, table: ProgramTable, execution: str) -> tuple[Tensor, Tensor]:
    """Logits in float64 on the CPU, and in float32 on the GPU."""
    with torch.inference_mode():
        expected = model(model.collate(table)).logits
        model = model.float().cuda()
        return expected, model(model.collate(table).to("cuda"), execution=execution).logits.cpu().double()


@gpu
@pytest.mark.parametrize("execution", ["auto", "streaming", "rows", "reference"])
@pytest.mark.parametrize(("name", "options"), IP_CASES)
def test_captured_steps_agree_with_float64(
    make: Make, mixed: ProgramTable, name: str, options: dict, execution: str
) -> None:
    model = make(name, hidden=40, **options).eval()
    expected, found = on_gpu(model, mixed, execution)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
