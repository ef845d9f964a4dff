"""What the pointer did, on graphs small enough to follow by hand."""

import numpy as np
import pytest
import torch

from ipagnn.data import collate
from ipagnn.evaluation import evaluate
from ipagnn.evaluation.pointer import PointerMetrics, measure_pointer
from ipagnn.languages.arithmetic import PAPER, Lengths, ProgramTable, Sampler, parse, trace_length
from ipagnn.models import ProgramModel, build_model

NAN = float("nan")
BRANCH = "v0 = 1\nif v0 % 10 > 0:\n  v0 += 1"  # nodes 0, 1, 2 and the exit 3; T(x) = 4; true trace 0 1 2
LOOP = "v0 = 1\nv1 = 2\nwhile v1 > 0:\n  v1 -= 1"  # nodes 0 1 2 3, exit 4; true trace 0 1 2 3 2 3 2


def always(model: ProgramModel, *, true: bool) -> ProgramModel:
    """Decide every branch the same way."""
    with torch.no_grad():
        model.control.branch.weight.zero_()
        model.control.branch.bias.copy_(torch.tensor([40.0, -40.0] if true else [-40.0, 40.0]))
    return model.eval()


def table_of(*sources: str) -> ProgramTable:
    return ProgramTable.from_programs([parse(source) for source in sources], [0] * len(sources))


def taken_with(true: float) -> PointerMetrics:
    """What is measured of BRANCH where the body is taken with this probability, and all leave in time."""
    pointer = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, true, 1 - true], [0, 0, 0, 1], [0, 0, 0, 1.0]])
    branch = torch.full((4, 4), NAN)
    branch[1, 1] = true
    return measure_pointer(pointer, branch, collate([parse(BRANCH)]), PAPER, traced=True)


def test_a_soft_branch_by_hand() -> None:
    metrics = taken_with(0.75)
    assert metrics.decided.tolist() == [1.0]
    assert metrics.discrete.tolist() == [0.0]
    assert metrics.exit_mass.tolist() == [1.0]
    assert metrics.exit_step.tolist() == [3]
    assert metrics.path_length.tolist() == [3]
    assert metrics.path_prefix.tolist() == [3]
    assert metrics.path_exact.tolist() == [True]


def test_the_wrong_branch_by_hand() -> None:
    metrics = taken_with(0.002)
    assert metrics.discrete.tolist() == [1.0]
    assert metrics.exit_step.tolist() == [2]
    assert metrics.path_length.tolist() == [2]
    assert metrics.path_prefix.tolist() == [2]  # it agrees as far as it goes, but leaves too early
    assert metrics.path_exact.tolist() == [False]


def test_decisions_that_cannot_matter_do_not_count() -> None:
    batch = collate([parse(LOOP)])
    assert batch.steps.tolist() == [8]
    model = always(build_model("ipa-gnn", hidden=2), true=True)  # never leaves the loop
    metrics = evaluate(model, table_of(LOOP), pointer=True, execution="reference").pointer
    assert metrics is not None
    # The head is at steps 2, 4, 6 and then at step 8, when nothing is left: three decisions can still matter.
    assert metrics.decided.tolist() == pytest.approx([3.0])
    assert metrics.exit_step.tolist() == [-1]
    assert metrics.path_length.tolist() == [-1]


@pytest.mark.parametrize("execution", ["reference", "auto"])
def test_leaving_a_loop_at_once_is_a_short_cut(execution: str) -> None:
    model = always(build_model("ipa-gnn", hidden=2), true=False)
    evaluation = evaluate(model, table_of(LOOP, BRANCH), pointer=True, execution=execution)
    metrics = evaluation.pointer
    assert metrics is not None
    assert evaluation.trace_length.tolist() == [7, 3]
    assert metrics.exit_step.tolist() == [3, 2]
    assert metrics.path_prefix.tolist() == [3, 2]
    assert metrics.path_exact.tolist() == [False, False]


def test_straight_lines_and_true_conditions_are_followed_exactly() -> None:
    model = always(build_model("ipa-gnn", hidden=2), true=True)
    sources = ["v0 = 5", "v0 = 5\nv0 += 1\npass\nv0 *= 2", BRANCH, "v0 = 3\nif v0 % 10 >= 3:\n  v0 -= 1\nelse:\n  pass"]
    evaluation = evaluate(model, table_of(*sources), pointer=True)
    metrics = evaluation.pointer
    assert metrics is not None
    assert metrics.path_exact.all()
    assert metrics.exit_step.tolist() == [trace_length(parse(source)) for source in sources]
    assert np.allclose(metrics.exit_mass, 1)


def test_a_hard_pointer_is_discrete_and_reaches_the_exit_by_its_path() -> None:
    model = build_model("hard-ip-rnn", hidden=6, seed=2)
    table = Sampler("full", Lengths.uniform((10, 20)), seed=1).table(0, 60)
    metrics = evaluate(model, table, pointer=True).pointer
    assert metrics is not None
    assert np.array_equal(metrics.discrete, metrics.decided)
    assert np.array_equal(metrics.exit_step, metrics.path_length)
    assert set(np.unique(metrics.exit_mass)) <= {0.0, 1.0}


def test_partial_programs_have_no_trace_to_agree_with(ipa_gnn: ProgramModel, partial_programs: ProgramTable) -> None:
    evaluation = evaluate(ipa_gnn, partial_programs.slice(0, 4), pointer=True)
    assert evaluation.pointer is not None
    assert (evaluation.pointer.path_prefix == -1).all()
    assert (evaluation.trace_length == -1).all()
    assert (evaluation.pointer.exit_mass > 0).all()


def test_models_without_a_pointer_have_none_to_measure(full_programs: ProgramTable) -> None:
    model = build_model("line-rnn", hidden=2)
    assert evaluate(model, full_programs.slice(0, 2), pointer=True).pointer is None
