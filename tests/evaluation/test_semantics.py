"""Semantics that a model has learned: counts, wrong facts, and how sure it is of them."""

from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch

from ipagnn.data import Batch
from ipagnn.evaluation.semantics import read_semantics
from ipagnn.languages.arithmetic import Grammar
from ipagnn.languages.arithmetic.tables import StatementArray, ValueTables
from ipagnn.languages.arithmetic.vocabulary import MULTIPLY, OPERATION
from ipagnn.models import Output, ProgramModel, build_model


class Lookup(ProgramModel):
    """A model that is nothing but tables, with one wrong fact."""

    name: ClassVar[str] = "lookup"
    can_tabulate: ClassVar[bool] = True
    wrong = True

    def build(self, generator: torch.Generator) -> None:
        self.nothing = torch.nn.Parameter(torch.zeros(1))

    def tabulate(self, statements: StatementArray | None = None) -> ValueTables:
        tables = ValueTables.exact(self.config.grammar, statements)
        outcomes, probabilities = tables.outcomes.copy(), tables.probabilities.copy()
        if self.wrong:
            row = tables.rows[MULTIPLY - OPERATION, 7]
            outcomes[row, 13], probabilities[row, 13] = 92, 0.75
        return replace(tables, outcomes=outcomes, probabilities=probabilities)

    def forward(self, batch: Batch, *, record: frozenset[str] = frozenset()) -> Output:
        raise NotImplementedError


@pytest.mark.parametrize("grammar", [Grammar(), Grammar(modulus=100, counters=3), Grammar(operands=(1, 19))])
def test_one_wrong_fact_is_read(grammar: Grammar) -> None:
    found = read_semantics(Lookup(grammar=grammar)).to_dict()
    assert (found["wrong"], found["by_kind"]["arithmetic"]["wrong"]) == (1, 1)
    fact = found["wrong_facts"][0]
    assert fact["text"] == f"v0 *= 7 at 13: learned 92, true {91 % grammar.modulus}"
    assert (fact["statement"], fact["value"], fact["learned"], fact["probability"]) == ("v0 *= 7", 13, 92, 0.75)
    least = {kind: each["least_probability"] for kind, each in found["by_kind"].items()}
    assert least == {"literal": 1.0, "arithmetic": 0.75, "condition": 1.0, "loop": 1.0}
    assert found["facts"] == sum(each["facts"] for each in found["by_kind"].values())
    assert sum(found["masked_line"].values()) == pytest.approx(1)


def test_no_fact_is_wrong() -> None:
    model = Lookup()
    model.wrong = False
    found = read_semantics(model)
    assert (found.wrong, sum(found.facts.values())) == ([], 68_010)


def test_a_model_without_values_has_no_semantics(run: Any, tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="has no semantics to read"):
        read_semantics(build_model("ipa-gnn", hidden=4))
    result = run("semantics", "ipa-gnn-full")
    assert (result.code, result.out) == (2, "")
    assert "The model 'ipa-gnn' has no semantics to read" in result.err
