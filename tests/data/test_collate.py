from dataclasses import fields
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ipagnn.data import StepBudget, check_batch, collate
from ipagnn.data.collate import STEP_LIMIT
from ipagnn.languages.arithmetic import (
    PAPER,
    Lengths,
    Program,
    ProgramTable,
    Sampler,
    parse,
    steps,
    trace,
    trace_length,
)

BRANCH = "v0 = 7\nif v0 % 10 > 4:\n  v0 += 1\nelse:\n  v0 -= 1\nv0 *= 2"
LOOP = "v0 = 1\nv1 = 2\nwhile v1 > 0:\n  v1 -= 1\n  v0 += 3"


def test_traces_follow_the_interpreter(mixed: ProgramTable) -> None:
    batch = collate(mixed, trace=True, trace_limit=10_000)
    check_batch(batch)
    assert batch.trace_offsets is not None
    assert batch.trace is not None
    lines = batch.node_line[batch.trace]
    for program, (first, end) in zip(mixed, pairwise(batch.trace_offsets.tolist()), strict=True):
        assert lines[first:end].tolist() == [step.line for step in trace(program, limit=10_000)]


def test_traces_of_any_program_that_ends(sources: Any) -> None:
    @settings(max_examples=60, deadline=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        program = parse(data.draw(sources))
        try:
            batch = collate([program], trace=True, trace_limit=300)
        except ValueError as error:
            assume("2**40" not in str(error))  # refused, and rightly so; the next test has the reason
            raise
        assert batch.trace is not None
        lines = batch.node_line[batch.trace].tolist()
        assert lines == [step.line for step in trace(program, limit=300)]

    check()


def test_traces_that_need_exact_large_numbers_are_refused() -> None:
    # A plain comparison needs v1 as it is, which compiled code holds up to 2**40; a remainder needs no such thing.
    text = "v0 = 1\nv1 = 999\nv1 *= 999\nv1 *= 999\nv1 *= 999\nv1 *= 999\nif v1{} > 5:\n  v0 += 1"
    with pytest.raises(ValueError, match=r"Program 0 of the batch compares a value beyond 2\*\*40"):
        collate([parse(text.format(""))], trace=True)
    assert collate([parse(text.format(" % 10"))], trace=True).trace is not None


def test_traces_are_cut_at_the_limit() -> None:
    endless = parse("v0 = 1\nv1 = 1\nwhile v1 > 0:\n  v0 += 1")
    batch = collate([endless, parse(LOOP)], trace=True, trace_limit=100)
    assert batch.trace_offsets is not None
    assert batch.trace_offsets.diff().tolist() == [100, 3 + 2 * 3]  # head again, then out


def test_traces_of_masked_programs_are_refused() -> None:
    with pytest.raises(ValueError, match="Program 1 of the batch has a masked line"):
        collate([parse(LOOP), parse("v0 = 1\n_")], trace=True)


def test_batch_holds_the_graphs_of_its_programs(reference_records: list[dict[str, Any]]) -> None:
    programs = [Program(np.array(record["line_tokens"], np.int16)) for record in reference_records]
    table = ProgramTable.from_programs(programs, [record["target"] for record in reference_records])
    batch = collate(table)
    check_batch(batch)
    for i, record in enumerate(reference_records):
        first, end = batch.node_offsets[i : i + 2].tolist()
        assert batch.node_tokens[first:end].tolist() == record["node_tokens"]
        assert (batch.true[first:end] - first).tolist() == record["true_branch"]
        assert (batch.false[first:end] - first).tolist() == record["false_branch"]
        assert batch.node_line[first : end - 1].tolist() == record["node_lines"]
        assert batch.node_program[first:end].unique().tolist() == [i]
        assert (batch.steps[i], batch.target[i]) == (record["steps"], record["target"])
    assert batch.node_line[batch.exits.long()].unique().tolist() == [-1]
    assert (batch.starts == batch.node_offsets[:-1]).all()


def test_steps_are_those_of_the_paper_times_the_factor(mixed: ProgramTable) -> None:
    counted = [steps(program) for program in mixed]
    assert collate(mixed).steps.tolist() == counted
    assert collate(mixed, budget=StepBudget(factor=1.5)).steps.tolist() == [-(-3 * n // 2) for n in counted]


def test_static_budget_covers_the_true_trace(mixed: ProgramTable) -> None:
    batch = collate(mixed, budget=StepBudget("static", cap=STEP_LIMIT))
    lengths = np.array([trace_length(program) for program in mixed])
    assert lengths.max() > collate(mixed).steps.max()  # the paper's budget would not
    assert (batch.steps.numpy() >= np.minimum(lengths, STEP_LIMIT)).all()


def test_static_budget_is_capped() -> None:
    deep = "v0 = 1" + "".join(f"\n{'  ' * k}v{k + 1} = 9\n{'  ' * k}while v{k + 1} > 0:" for k in range(9))
    program = parse(deep + f"\n{'  ' * 9}v0 += 1")
    assert collate([program], budget=StepBudget("static")).steps.tolist() == [10_000]
    with pytest.raises(ValueError, match=r"Program 0 .* at most 1,000,000"):
        collate([program], budget=StepBudget(factor=1e4))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "paperr"}, "choose 'paper', 'static' or 'trace'"),
        ({"factor": 0.0}, "positive number"),
        ({"factor": float("nan")}, "positive number"),
        ({"cap": 0}, "cap lies in"),
    ],
)
def test_bad_budgets_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StepBudget(**fields)


def test_an_empty_batch_and_programs_without_targets() -> None:
    for traced in (False, True):
        check_batch(collate([], trace=traced))
    assert collate([parse(LOOP)]).target.tolist() == [-1]


def test_other_languages_have_other_traces() -> None:
    program = parse("v0 = 7\nif v0 % 4 > 4:\n  v0 += 1\nv0 *= 2", condition_modulus=4)
    traces = [collate([program], trace=True, modulus=PAPER.modulus, condition_modulus=m).trace for m in (4, 10)]
    assert [each.tolist() for each in traces if each is not None] == [[0, 1, 3], [0, 1, 2, 3]]


def test_moving_a_batch_keeps_it() -> None:
    batch = collate([parse(LOOP)], trace=True)
    moved = batch.to("meta")
    assert moved.trace is not None
    assert moved.trace.device == moved.line_tokens.device == torch.device("meta")
    assert batch.to("cpu").line_tokens.equal(batch.line_tokens)


def test_without_indentation_only_the_first_tokens_differ() -> None:
    table = Sampler(lengths=Lengths.exact(20), seed=5).table(0, 20)
    given, plain = collate(table, trace=True), collate(table, trace=True, indent=False)
    check_batch(plain)
    for field in fields(given):
        one, other = getattr(given, field.name), getattr(plain, field.name)
        if field.name.endswith("tokens"):
            assert torch.equal(one[:, 1:], other[:, 1:])
            assert set(other[:, 0].tolist()) <= {0, 1}  # 0 is the exit's
            assert torch.equal(one[:, 0] == 0, other[:, 0] == 0)
            assert one[:, 0].max() > 2
        elif isinstance(one, torch.Tensor):
            assert torch.equal(one, other), field.name
    assert (table.line_tokens[:, 0] > 2).any()  # the programs themselves stay as they are


def test_trace_budget_is_what_the_trace_has_and_two_more(mixed: ProgramTable) -> None:
    wanted = [min(int(np.ceil(1.5 * (trace_length(program) + 2))), 40) for program in mixed]
    assert collate(mixed, budget=StepBudget("trace", 1.5, cap=40)).steps.tolist() == wanted
    masked = parse("v0 = 1\n_ = 0")
    with pytest.raises(ValueError, match="has a masked line, so its trace cannot be followed"):
        collate([masked], budget=StepBudget("trace"))
