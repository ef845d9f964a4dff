"""Nothing dropped, the same order and the same answers however the programs are batched and executed."""

import dataclasses
import time
from typing import Any

import numpy as np
import pytest
import torch

from ipagnn.data import build_test_set
from ipagnn.data.tasks import FULL
from ipagnn.evaluation import Evaluation, evaluate
from ipagnn.evaluation.batches import BatchRunner
from ipagnn.languages.arithmetic import (
    Lengths,
    ProgramTable,
    Sampler,
    format_program,
    parse,
    steps,
    trace,
    trace_length,
)
from ipagnn.models import MODELS, ProgramModel, build_model, load_model

from ..conftest import memory_taken

ONE_AT_A_TIME = 1


def same_answers(one: Evaluation, other: Evaluation) -> bool:
    exact = ("length", "steps", "target", "prediction", "trace_length", "loop_depth")
    a, b = one.answers["value"], other.answers["value"]
    return (
        all(np.array_equal(getattr(one, name), getattr(other, name)) for name in exact)
        and np.array_equal(a.rank, b.rank)
        and np.allclose(a.confidence, b.confidence, rtol=1e-4, atol=1e-6)
        and np.allclose(one.score.loss, other.score.loss, rtol=1e-4, equal_nan=True)
    )


def by_hand(model: ProgramModel, table: ProgramTable) -> np.ndarray:
    """One program after the other, with the execution that spells the paper."""
    with torch.inference_mode():
        singles = (model.collate(table.slice(i, i + 1)) for i in range(len(table)))
        logits = [model(batch, execution="reference").logits[0] for batch in singles]
    return torch.stack(logits).argmax(dim=1).numpy()


def test_all_programs_of_the_test_set_are_there_in_order() -> None:
    table = build_test_set("full")
    model = build_model("line-rnn", hidden=2)
    done: list[int] = []
    evaluation = evaluate(model, table, progress=done.append)
    assert len(evaluation) == 4500
    assert np.array_equal(evaluation.length, np.repeat(np.arange(20, 101, 10), 500))
    assert np.array_equal(evaluation.target, table.target)
    assert done[-1] == 4500
    assert done == sorted(done)


def test_depth_of_the_loops_on_the_trace() -> None:
    """Against the text: a line stands in the loops above it that are indented less."""
    table = Sampler("full", Lengths.uniform((10, 20, 40)), seed=5).table(0, 150)
    evaluation = evaluate(build_model("line-rnn", hidden=2), table)
    depths = []
    for program in table:
        around: list[int] = []
        standing = []
        for line in format_program(program).splitlines():
            indent = len(line) - len(line.lstrip())
            around = [other for other in around if other < indent]
            around += [indent] * ("while" in line)
            standing.append(len(around))
        depths.append(max(standing[step.line] for step in trace(program)))
    assert evaluation.loop_depth.tolist() == depths
    assert set(depths) >= {0, 1, 2, 3}


def test_a_loop_that_is_not_reached_does_not_count() -> None:
    skipped = parse("v0 = 9\nif v0 % 10 < 5:\n  v1 = 2\n  while v1 > 0:\n    v1 -= 1\n    v0 += 1\nv0 += 1")
    left_at_once = parse("v0 = 9\nv1 = 0\nwhile v1 > 0:\n  v1 -= 1\n  v0 += 1\nv0 += 1")
    table = ProgramTable.from_programs([skipped, left_at_once], [10, 10])
    evaluation = evaluate(build_model("line-rnn", hidden=2), table)
    assert evaluation.loop_depth.tolist() == [0, 1]


@pytest.mark.parametrize("name", ["ipa-gnn", "hard-ip-rnn", "line-rnn", "trace-rnn"])
@pytest.mark.parametrize("batch_bytes", [ONE_AT_A_TIME, 3_000_000, None])
def test_batches_change_nothing(name: str, batch_bytes: int | None) -> None:
    model = build_model(name, hidden=6, seed=3)
    table = Sampler("full", Lengths.uniform((5, 10, 20, 30)), seed=5).table(0, 40)
    evaluation = evaluate(model, table, batch_bytes=batch_bytes)
    assert np.array_equal(evaluation.prediction, by_hand(model, table))


@pytest.mark.parametrize("name", sorted(set(MODELS) - {"ipa-gnn", "hard-ip-rnn", "line-rnn", "trace-rnn"}))
def test_models_without_rows_are_batched_too(name: str) -> None:
    model = build_model(name, hidden=4, seed=3)
    table = Sampler("full", Lengths.uniform((5, 10, 15)), seed=5).table(0, 24)
    assert same_answers(evaluate(model, table, batch_bytes=ONE_AT_A_TIME), evaluate(model, table))


def test_order_of_programs_changes_nothing(ipa_gnn: ProgramModel, full_programs: ProgramTable) -> None:
    order = np.random.default_rng(0).permutation(len(full_programs))
    straight = evaluate(ipa_gnn, full_programs)
    shuffled = evaluate(ipa_gnn, full_programs.take(order))
    for field in ("length", "target", "prediction", "steps", "trace_length"):
        assert np.array_equal(getattr(straight, field)[order], getattr(shuffled, field)), field


def test_tables_one_after_the_other_are_one_set(ipa_gnn: ProgramModel, full_programs: ProgramTable) -> None:
    whole = evaluate(ipa_gnn, full_programs, pointer=True)
    done: list[int] = []
    pieces = [full_programs.slice(0, 3), full_programs.slice(3, 3), full_programs.slice(3, len(full_programs))]
    joined = evaluate(ipa_gnn, iter(pieces), pointer=True, progress=done.append)
    assert same_answers(whole, joined)
    assert whole.pointer is not None
    assert joined.pointer is not None
    assert np.array_equal(whole.pointer.path_length, joined.pointer.path_length)
    assert done[-1] == len(full_programs)


@pytest.mark.parametrize("options", [{"prune": 1e-20}, {"prune": 1e-12}, {"execution": "reference"}])
def test_every_execution_gives_the_same_answers(
    ipa_gnn: ProgramModel, full_programs: ProgramTable, options: dict[str, Any]
) -> None:
    short = full_programs.slice(0, 6)
    usual = evaluate(ipa_gnn, short, pointer=True)
    other = evaluate(ipa_gnn, short, pointer=True, **options)
    assert same_answers(usual, other)
    assert usual.pointer is not None
    assert other.pointer is not None
    for field in dataclasses.fields(usual.pointer):
        assert np.allclose(getattr(usual.pointer, field.name), getattr(other.pointer, field.name), atol=1e-4), (
            field.name
        )


def test_planned_rows_give_the_same_answers(ipa_gnn: ProgramModel, full_programs: ProgramTable) -> None:
    """The way of a GPU, which plans all rows of programs that fit."""
    planned = BatchRunner(ipa_gnn, torch.device("cpu"), None, pointer=False, execution="auto", prune=0.0, tolerance=0.0)
    planned.may_prune = False
    short = full_programs.slice(0, 6)
    assert same_answers(evaluate(ipa_gnn, short), planned.run(short, FULL, lambda _: None))


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


@needs_gpu
@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_gpu_gives_the_same_answers(name: str) -> None:
    model = build_model(name, hidden=40, seed=3).eval()
    table = Sampler("full", Lengths.uniform((5, 10, 20)), seed=5).table(0, 60)
    here, there = evaluate(model, table, pointer=True), evaluate(model, table, pointer=True, device="cuda")
    assert np.array_equal(
        here.prediction[here.answers["value"].margin > 1e-3], there.prediction[here.answers["value"].margin > 1e-3]
    )
    assert np.allclose(here.answers["value"].margin, there.answers["value"].margin, atol=1e-3)
    assert (here.pointer is None) == (there.pointer is None)
    if here.pointer is not None and there.pointer is not None:
        for field in ("decided", "discrete", "exit_mass"):
            assert np.allclose(getattr(here.pointer, field), getattr(there.pointer, field), rtol=1e-2, atol=1e-2)


@needs_gpu
@pytest.mark.parametrize("name", ["ipa-gnn", "hard-ip-rnn"])
def test_a_gpu_agrees_on_200_long_programs(name: str) -> None:
    model = load_model("ipa-gnn-full", name=name)
    table = Sampler("full", Lengths.uniform((20, 30, 40, 50)), seed=5).table(0, 200)
    here, there = evaluate(model, table, device="cpu"), evaluate(model, table, device="cuda")
    # Loops of hundreds of rounds make differences of rounding large: two of 200 answers differed on an H200.
    assert (here.prediction != there.prediction).mean() <= 0.02
    assert np.quantile(np.abs(here.answers["value"].margin - there.answers["value"].margin), 0.9) < 0.01


def test_sizes_and_traces_are_the_programs_own(ipa_gnn: ProgramModel, full_programs: ProgramTable) -> None:
    evaluation = evaluate(ipa_gnn, full_programs)
    assert evaluation.steps.tolist() == [steps(program) for program in full_programs]
    assert evaluation.trace_length.tolist() == [trace_length(program) for program in full_programs]


def test_rank_confidence_and_margin_by_hand() -> None:
    model = build_model("line-rnn", hidden=2)
    with torch.no_grad():
        model.output.weight.zero_()
        model.output.bias.zero_()
        model.output.bias[7], model.output.bias[3], model.output.bias[5] = 3.0, 2.5, 2.5
    programs = [parse(f"v0 = {n}") for n in (7, 3, 5, 0, 1)]
    evaluation = evaluate(model, ProgramTable.from_programs(programs, [7, 3, 5, 0, 1]))
    assert evaluation.prediction.tolist() == [7] * 5
    assert evaluation.answers["value"].rank.tolist() == [0, 1, 2, 3, 4]  # of equals the smaller value comes first
    total = np.exp(3.0) + 2 * np.exp(2.5) + 997
    assert evaluation.answers["value"].confidence == pytest.approx([np.exp(3.0) / total] * 5)
    assert evaluation.answers["value"].margin == pytest.approx([0.5] * 5)


def test_tiny_numbers_cost_no_time_and_the_caller_keeps_them(full_programs: ProgramTable) -> None:
    tiny = torch.full((100_000,), 1e-39)
    seen = []

    class Watching(MODELS["line-rnn"]):  # type: ignore[misc]
        def forward(self, batch: Any, *, record: Any = frozenset()) -> Any:
            seen.append(int((tiny * 0.5 == 0).sum()))
            return super().forward(batch, record=record)

    model = build_model("line-rnn", hidden=2)
    model.__class__ = Watching
    evaluate(model, full_programs.slice(0, 2))
    assert seen == [100_000]
    assert not (tiny * 0.5 == 0).any()


def test_training_mode_is_restored(ipa_gnn: ProgramModel, full_programs: ProgramTable) -> None:
    ipa_gnn.train()
    evaluate(ipa_gnn, full_programs.slice(0, 1))
    assert ipa_gnn.training
    ipa_gnn.eval()


def test_bad_sets_are_refused(
    ipa_gnn: ProgramModel, full_programs: ProgramTable, partial_programs: ProgramTable
) -> None:
    with pytest.raises(ValueError, match="no programs to evaluate"):
        evaluate(ipa_gnn, full_programs.slice(0, 0))
    with pytest.raises(ValueError, match="Program 1 has no target"):
        evaluate(ipa_gnn, ProgramTable.from_programs([parse("v0 = 1"), parse("v0 = 2")], [1, None]))
    mixed = ProgramTable.concatenate([full_programs.slice(0, 2), partial_programs.slice(0, 2)])
    with pytest.raises(ValueError, match="Program 2 is partial and those before it are not"):
        evaluate(ipa_gnn, mixed)
    with pytest.raises(ValueError, match="Program 2 is partial; all must be full, as the programs before it are"):
        evaluate(ipa_gnn, iter([full_programs.slice(0, 2), partial_programs.slice(0, 2)]))
    with pytest.raises(ValueError, match="Program 0 is partial; all must be full, which is what trace-rnn reads"):
        evaluate(build_model("trace-rnn", hidden=2), partial_programs)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ipa-gnn", "trace-rnn", "ggnn"])
def test_memory_stays_below_two_gigabytes_at_length_100(name: str) -> None:
    script = f"""
import torch
from ipagnn.data import recipe
from ipagnn.evaluation import evaluate
from ipagnn.models import build_model
from ipagnn.languages.arithmetic import Lengths
torch.set_num_threads(2)
table = recipe("test", "full", 12, 1, Lengths.exact(100)).table(0, 12)
evaluate(build_model({name!r}, hidden=200), table, pointer=True)
"""
    assert memory_taken("", script) < 2e9


@pytest.mark.slow
def test_fifty_programs_of_each_length_take_less_than_two_minutes_of_cpu() -> None:
    model = build_model("ipa-gnn", hidden=32, seed=1)
    evaluate(model, build_test_set("full", 1), pointer=True)  # compiles
    start = time.process_time()
    assert len(evaluate(model, build_test_set("full", 50), pointer=True)) == 450
    assert time.process_time() - start < 120


def test_progress_is_that_of_the_work(ipa_gnn: ProgramModel) -> None:
    short, long = (Sampler("full", Lengths.exact(n), seed=1).table(0, count) for n, count in ((2, 7), (30, 1)))
    done: list[int] = []
    evaluate(ipa_gnn, ProgramTable.concatenate([long, short]), batch_bytes=1, progress=done.append)
    assert done == sorted(done)
    assert done[6] < 4  # seven of eight programs, and a small part of the work
    assert done[-1] == 8
