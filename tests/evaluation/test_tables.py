"""Evaluating a model that runs over its tables: right answers, wrong facts, and programs that never end."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ipagnn.data import build_test_set
from ipagnn.evaluation import evaluate, summarise
from ipagnn.languages.arithmetic import Lengths, ProgramTable, Sampler, execute, parse
from ipagnn.languages.arithmetic.holes import ceiling
from ipagnn.languages.arithmetic.vocabulary import MULTIPLY, OPERATION_ID, WHILE_GREATER
from ipagnn.models import ProgramModel, build_model
from ipagnn.models.tabulated import TabulatedModel

Make = Callable[..., ProgramModel]


@pytest.mark.parametrize("task", ["full", "partial"])
def test_with_true_facts_every_answer_is_the_best_possible(lookup: Make, task: str) -> None:
    table = build_test_set(task, 20)  # type: ignore[arg-type]
    evaluation = evaluate(lookup(), table)
    assert not evaluation.bounded
    if task == "full":
        assert evaluation.correct.all()
        assert (evaluation.answers["value"].confidence == 1).all()
        assert (evaluation.answers["value"].rank == 0).all()
        assert evaluation.trace_length.tolist() == [execute(program).trace_length for program in table]
        assert np.array_equal(evaluation.steps, evaluation.trace_length)
        assert evaluation.loop_depth.max() > 2
    else:
        best = ceiling(table)
        assert np.array_equal(evaluation.prediction, best.guess)
        assert np.allclose(evaluation.answers["value"].confidence, best.probability)
        assert (evaluation.trace_length == -1).all()
        assert summarise(evaluation, best)["ceiling"]["overall"]["best"] == best.probability.mean()
    summary = summarise(evaluation)
    assert summary["bounded"] is False
    assert "trace" not in summary
    assert ("by_loops" in summary) == (task == "full")


def test_a_wrong_fact_shows_in_answer_rank_and_confidence(lookup: Make) -> None:
    programs = [parse("v0 = 413\nv0 *= 7"), parse("v0 = 412\nv0 *= 7")]
    table = ProgramTable.from_programs(programs, [891, 884])
    evaluation = evaluate(lookup((MULTIPLY, 7, 413, 890)), table)
    assert evaluation.prediction.tolist() == [890, 884]
    assert evaluation.correct.tolist() == [False, True]
    assert evaluation.answers["value"].rank.tolist() == [1000, 0]
    assert evaluation.answers["value"].confidence.tolist() == pytest.approx([0.6, 1.0])
    assert evaluation.answers["value"].margin[0] < evaluation.answers["value"].margin[1]


def test_a_program_that_the_model_does_not_end_counts_as_wrong(lookup: Make) -> None:
    table = ProgramTable.from_programs([parse("v0 = 3\nv1 = 2\nwhile v1 > 0:\n  v1 -= 1\n  v0 += 1")], [5])
    evaluation = evaluate(lookup((OPERATION_ID["-="], 1, 1, 1)), table)
    assert (evaluation.prediction[0], evaluation.correct[0], evaluation.answers["value"].confidence[0]) == (
        -1,
        False,
        0,
    )
    early = evaluate(lookup((WHILE_GREATER, 0, 1, 0)), table)
    assert (early.prediction[0], early.steps[0], early.trace_length[0]) == (4, 6, 9)


def test_statements_are_tabulated_when_met(lookup: Make) -> None:
    model: Any = lookup()
    tabulated = TabulatedModel(model)
    usual = Sampler("full", Lengths.exact(20), seed=1).table(0, 50)
    assert np.array_equal(tabulated.run(usual).value, usual.target)
    assert model.asked == 2
    other = ProgramTable.from_programs([parse("v0 = 40\nv0 += 999\nv3 = 5\nif v3 > 4:\n  v0 -= 0\n  v0 *= 10")])
    for _ in range(2):
        assert tabulated.run(other).value.tolist() == [390]
        assert model.asked == 3
    assert len(TabulatedModel(model).tables_for(other).statements) == 4
    masked = ProgramTable.from_programs([parse("v0 = 40\n_")])
    assert len(TabulatedModel(model).tables_for(masked).statements) == len(model.tabulate().choices)


def test_a_model_without_values_has_no_tables() -> None:
    with pytest.raises(ValueError, match=r"The model 'ipa-gnn' has no semantics to read"):
        build_model("ipa-gnn", hidden=4).tabulate()
    table = ProgramTable.from_programs([parse("v0 = 1")], [1])
    with pytest.raises(ValueError, match="has no semantics to read"):
        evaluate(build_model("ipa-gnn", hidden=4), table, tables=True)
    assert evaluate(build_model("ipa-gnn", hidden=4), table).bounded


def test_longer_programs_than_steps_can_be_counted_for(lookup: Make) -> None:
    table = Sampler("full", Lengths.exact(1000), seed=2).table(0, 3)
    assert evaluate(lookup(), table).correct.all()


def test_with_a_budget_of_steps_the_pointer_is_soft() -> None:
    model = build_model("env-ipa-gnn", hidden=8, width=4)
    table = build_test_set("full", 1)
    soft = evaluate(model, table.slice(0, 2), tables=False)
    assert soft.bounded
    output = model(model.collate(table.slice(0, 2)))
    assert soft.prediction.tolist() == output.logits.argmax(dim=1).tolist()
    assert evaluate(model, table).bounded is False
