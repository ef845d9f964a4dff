"""A model without a wrong fact answers every program correctly: exact tables, and packaged models that have them."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipagnn.evaluation.semantics import read_semantics
from ipagnn.languages.arithmetic import Grammar, Lengths, ProgramTable, Sampler, execute
from ipagnn.languages.arithmetic.table_run import ENDS, GAVE_UP
from ipagnn.models import ProgramModel, load_model
from ipagnn.models.automata import AutomataModel
from ipagnn.models.tabulated import TabulatedModel

Make = Callable[..., ProgramModel]
PACKAGED = ("env-ipa-gnn-full", "env-ipa-gnn-partial", "env-ipa-gnn-any")


@cache
def packaged(name: str) -> TabulatedModel:
    model = load_model(name)
    return TabulatedModel(model if model.trained_digits is None else model.with_digits(3))


@cache
def automata(digits: int) -> AutomataModel:
    return AutomataModel(load_model("env-ipa-gnn-any").with_digits(digits))  # type: ignore[arg-type]


@pytest.fixture(params=["exact", *PACKAGED])
def tabulated(request: pytest.FixtureRequest, lookup: Make) -> TabulatedModel:
    return TabulatedModel(lookup()) if request.param == "exact" else packaged(request.param)


def assert_right(tabulated: TabulatedModel, table: ProgramTable) -> None:
    run = tabulated.run(table)
    assert (run.status == ENDS).all()
    assert np.array_equal(run.value, table.target)
    assert np.array_equal(run.probabilities.argmax(axis=1), table.target)


def test_no_fact_is_wrong(tabulated: TabulatedModel) -> None:
    assert read_semantics(tabulated.model).wrong == []


@settings(max_examples=60, deadline=None)
@given(length=st.integers(1, 300), seed=st.integers(0, 2**32), deep=st.booleans())
def test_every_answer_is_that_of_the_interpreter(lookup: Make, length: int, seed: int, deep: bool) -> None:
    grammar = Grammar(stmt_repeat=20) if deep else Grammar()
    program = Sampler("full", Lengths.exact(max(length, 2)), grammar, seed).program(0)[0]
    if length == 1:
        program = type(program)(program.line_tokens[:1])
    table = ProgramTable.from_programs([program])
    for model in (TabulatedModel(lookup()), *map(packaged, PACKAGED)):
        run = model.run(table)
        assert run.value[0] == execute(program).value
        assert run.trace_length[0] == execute(program).trace_length


@settings(max_examples=60, deadline=None)
@given(length=st.integers(2, 300), seed=st.integers(0, 2**32), digits=st.integers(1, 18))
def test_every_answer_over_automata_is_that_of_the_interpreter(length: int, seed: int, digits: int) -> None:
    model = automata(digits)
    table = Sampler("full", Lengths.exact(length), model.model.config.grammar, seed).table(0, 4)
    run = model.run(table, max_steps=1_000_000)
    ended = run.status == ENDS
    assert np.array_equal(run.results[ended, 0], table.target[ended])
    assert (run.status[~ended] == GAVE_UP).all()  # long traces are given up, not answered wrongly


def test_deep_loops(tabulated: TabulatedModel) -> None:
    table = Sampler("full", Lengths.exact(60), Grammar(stmt_repeat=40), seed=11).table(0, 400)
    run = tabulated.run(table)
    deep = np.flatnonzero(run.loop_depth >= 5)
    assert len(deep) >= 200
    assert run.loop_depth.max() == 9
    assert_right(tabulated, table.take(deep))


@pytest.mark.slow
@pytest.mark.parametrize("length", [200, 500, 1000])
def test_long_programs(tabulated: TabulatedModel, length: int) -> None:
    assert_right(tabulated, Sampler("full", Lengths.exact(length), seed=length).table(0, 500))
