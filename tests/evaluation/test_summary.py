"""Numbers by hand."""

import dataclasses
import json
import math
from itertools import pairwise

import numpy as np
import pytest

from ipagnn.data import build_test_set
from ipagnn.evaluation import Evaluation, PointerMetrics, evaluate, summarise
from ipagnn.evaluation.answers import Answers
from ipagnn.evaluation.benchmark import build_test_recipe, describe, evaluate_on_test_set
from ipagnn.evaluation.summary import TOP, calibration, share
from ipagnn.languages.arithmetic import AUTHORS, Grammar, ProgramTable
from ipagnn.languages.arithmetic.holes import ceiling
from ipagnn.models import ProgramModel, build_model


def made_up(prediction: list[int], target: list[int], length: list[int]) -> Evaluation:
    count = len(target)
    return Evaluation(
        model="ipa-gnn",
        task="full",
        length=np.array(length, np.int32),
        steps=np.full(count, 10, np.int32),
        correct=np.array(prediction) == np.array(target),
        answers={
            "value": Answers(
                kind="class",
                target=np.array(target, np.int32),
                prediction=np.array(prediction, np.int32),
                rank=np.array([0 if p == t else 4 for p, t in zip(prediction, target, strict=True)], np.int32),
                confidence=np.full(count, 0.5, np.float32),
                margin=np.full(count, 1.0, np.float32),
            )
        },
        trace_length=np.full(count, 7, np.int64),
        loop_depth=np.zeros(count, np.int64),
    )


def test_standard_errors_by_hand() -> None:
    # 3 of 4 right: mean 3/4, squared deviations 3 · (1/4)² + (3/4)² = 3/4, over n - 1 = 3, root, over the root of 4.
    assert share([True, True, True, False]) == {"accuracy": 0.75, "stderr": 0.25, "count": 4}
    # 1 of 2: sqrt(((1/2)² + (1/2)²) / 1) / sqrt(2) = 1/2.
    assert share([1, 0]) == {"accuracy": 0.5, "stderr": pytest.approx(0.5), "count": 2}
    assert share([1, 1, 1]) == {"accuracy": 1.0, "stderr": 0.0, "count": 3}
    assert share([1]) == {"accuracy": 1.0, "stderr": 0.0, "count": 1}
    assert share([]) == {"accuracy": None, "stderr": None, "count": 0}


def test_overall_and_by_length_by_hand() -> None:
    evaluation = made_up([1, 2, 3, 9, 9, 6, 7, 8], [1, 2, 3, 4, 5, 6, 7, 9], [20] * 4 + [30] * 4)
    summary = summarise(evaluation)
    assert summary["overall"]["accuracy"] == 5 / 8
    assert summary["overall"]["stderr"] == pytest.approx(math.sqrt(5 / 8 * 3 / 8 / 7))
    assert summary["by_length"]["20"] == {"accuracy": 0.75, "stderr": 0.25, "count": 4}
    assert summary["by_length"]["30"]["accuracy"] == 0.5
    assert summary["top"] == {"1": 5 / 8, "2": 5 / 8, "3": 5 / 8, "5": 1.0, "10": 1.0}
    assert summary["close"] == 0


def test_accuracy_where_the_trace_fits_and_where_not() -> None:
    evaluation = made_up([1, 2, 3, 9, 9], [1, 2, 4, 4, 9], [20] * 5)
    evaluation = dataclasses.replace(evaluation, trace_length=np.array([10, 11, 3, 99, -1]))
    summary = summarise(evaluation)
    assert summary["trace"]["fits"]["accuracy"] == 0.5  # the first and the third; exactly as many steps fit
    assert summary["trace"]["fits"]["count"] == 2
    assert summary["trace"]["exceeds"] == {"accuracy": 0.5, "stderr": 0.5, "count": 2}


def test_accuracy_by_the_depth_of_loops() -> None:
    evaluation = made_up([1, 2, 3, 9, 9], [1, 2, 4, 4, 9], [20] * 5)
    depths, lengths = np.array([0, 2, 2, 2, -1]), np.array([3, 40, 40, 40, -1])
    summary = summarise(dataclasses.replace(evaluation, loop_depth=depths, trace_length=lengths))
    assert {n: (row["accuracy"], row["count"]) for n, row in summary["by_loops"].items()} == {
        "0": (1.0, 1),
        "2": (pytest.approx(1 / 3), 3),
    }


def test_calibration_by_hand() -> None:
    # Bins (0, 1/2] and (1/2, 1]: mean confidence 0.3 against 1/2 right, 0.9 against 2/2 right.
    metrics = calibration([0.2, 0.4, 0.8, 1.0], [True, False, True, True], bins=2)
    assert metrics["ece"] == pytest.approx(0.5 * 0.2 + 0.5 * 0.1)
    assert [b["count"] for b in metrics["bins"]] == [2, 2]
    assert [b["high"] for b in metrics["bins"]] == [0.5, 1.0]
    assert calibration([0.5], [True], bins=2)["bins"][0]["high"] == 0.5  # an edge belongs to the bin below


def test_pointer_numbers_by_hand() -> None:
    metrics = PointerMetrics(
        decided=np.array([1.0, 3.0, 0.0]),
        discrete=np.array([1.0, 1.0, 0.0]),
        exit_mass=np.array([1.0, 0.4, 1.0]),
        exit_step=np.array([5, -1, 9]),
        path_length=np.array([7, -1, 9]),
        path_prefix=np.array([7, 0, 3]),
        path_exact=np.array([True, False, False]),
    )
    evaluation = dataclasses.replace(made_up([1, 2, 3], [1, 2, 3], [20] * 3), pointer=metrics)
    found = summarise(evaluation)["pointer"]
    assert found["discrete"] == 0.5  # of the mass, 2 of 4; not of the programs
    assert found["decisions"] == pytest.approx(4 / 3)
    assert found["reached"] == pytest.approx(2 / 3)
    assert found["exit_step"] == 7.0
    assert found["trace_length"] == 7.0
    assert found["shorter"] == 0.5
    assert found["path_exact"] == pytest.approx(1 / 3)
    assert found["path_prefix"] == pytest.approx((1 + 0 + 3 / 7) / 3)


def test_counts_add_up(ipa_gnn: ProgramModel, full_programs: ProgramTable) -> None:
    summary = summarise(evaluate(ipa_gnn, full_programs))
    total = summary["overall"]["count"]
    assert total == len(full_programs)
    assert sum(row["count"] for row in summary["by_length"].values()) == total
    assert sum(row["count"] for row in summary["trace"].values()) == total
    assert sum(row["count"] for row in summary["calibration"]["bins"]) == total
    assert all(summary["top"][str(a)] <= summary["top"][str(b)] for a, b in pairwise(TOP))
    right = sum(row["accuracy"] * row["count"] for row in summary["by_length"].values())
    assert right == pytest.approx(summary["overall"]["accuracy"] * total)


def test_a_perfect_guesser_is_at_the_ceiling() -> None:
    table = build_test_set("partial", 3)
    best = ceiling(table)
    evaluation = dataclasses.replace(
        made_up(best.guess.tolist(), table.target.tolist(), table.lengths.tolist()), task="partial"
    )
    metrics = summarise(evaluation, best)["ceiling"]
    assert metrics["overall"]["best"] == pytest.approx(best.accuracy)
    assert metrics["overall"]["distance"] == pytest.approx(best.accuracy - best.correct.mean())
    assert set(metrics["by_length"]) == {str(n) for n in range(20, 101, 10)}
    with pytest.raises(ValueError, match="compute both for the same programs"):
        summarise(evaluation, ceiling(table.slice(0, 2)))


def test_the_test_set_is_named_if_it_is_the_papers() -> None:
    assert describe(build_test_recipe("full"))["name"] == "D_test"
    assert describe(build_test_recipe("partial"))["count"] == 4500
    assert describe(build_test_recipe("full", count=499))["name"] == "test"
    assert describe(build_test_recipe("full", seed=1))["name"] == "test"
    assert describe(build_test_recipe("full", grammar=Grammar(modulus=10)))["name"] == "test"
    for limited in (
        describe(build_test_recipe("full", grammar=AUTHORS)),
        describe(build_test_recipe("partial", grammar=AUTHORS)),
    ):
        assert limited["name"] == "D_test with the authors' labels"
        assert limited["grammar"]["block_limit"] == 200
    assert describe(build_test_recipe("full", count=499, grammar=AUTHORS))["name"] == "test"
    assert describe(build_test_recipe("full", grammar=Grammar(block_limit=100)))["name"] == "test"
    assert "block_limit" not in describe(build_test_recipe("full", grammar=Grammar(modulus=10)))["grammar"]  # as ever
    table, again = build_test_set("full", 2), build_test_recipe("full", count=2)
    assert np.array_equal(table.line_tokens, again.table(0, again.count).line_tokens)


def test_summaries_are_json_and_tell_the_ceiling_of_partial_programs() -> None:
    model = build_model("line-rnn", hidden=2)
    summary = evaluate_on_test_set(model, build_test_recipe("partial", (5, 10), 4))
    assert json.loads(json.dumps(summary)) == summary
    assert set(summary["ceiling"]["by_length"]) == {"5", "10"}
    assert summary["set"]["lengths"] == [5, 10]
    assert "trace" not in summary
