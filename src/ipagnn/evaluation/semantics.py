"""What a model has learned of its language, fact by fact, against the truth."""

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, get_args

import numpy as np

from ipagnn.languages.arithmetic.automata import DIGITS, Proof, grammar_automata, prove
from ipagnn.languages.arithmetic.grammar import PAPER, Grammar
from ipagnn.languages.arithmetic.statements import COMPARISON, MODULAR, apply, compare
from ipagnn.languages.arithmetic.tables import (
    Difference,
    Kind,
    ValueTables,
    differences,
    fact_counts,
    grammar_statements,
    kind_of,
    literal_facts,
    statement_facts,
    statement_text,
)
from ipagnn.languages.arithmetic.vocabulary import MULTIPLY, OPERATION
from ipagnn.models import ProgramModel


@dataclass(frozen=True, eq=False, slots=True)
class Semantics:
    """The facts of a grammar as a model has learned them.

    Attributes:
        model: Name of the model in the registry.
        tables: What it has learned.
        facts: How many facts the grammar has, by kind.
        wrong: Those that are wrong, literals first and then in the order of the grammar's statements.
        least_probability: By kind, the smallest probability of an outcome that the model learned, right or wrong.
    """

    model: str
    tables: ValueTables = field(repr=False)
    facts: dict[Kind, int]
    wrong: list[Difference] = field(repr=False)
    least_probability: dict[Kind, float]

    @property
    def wrong_by_kind(self) -> dict[Kind, int]:
        """How many facts are wrong, by kind."""
        return {kind: sum(difference.kind == kind for difference in self.wrong) for kind in get_args(Kind)}

    def to_dict(self) -> dict[str, Any]:
        """As JSON knows it: what `ipagnn semantics --json` prints.

        `facts` and `wrong` count; `by_kind` does so for each kind, with the least probability; `wrong_facts` lists the
        wrong ones, with the sentence about each under `text`; `masked_line` has the weight of each statement that a
        masked line may be.
        """
        wrong = self.wrong_by_kind
        choices = zip(self.tables.choices.tolist(), self.tables.weights.tolist(), strict=True)
        return {
            "model": self.model,
            "facts": sum(self.facts.values()),
            "wrong": len(self.wrong),
            "by_kind": {
                kind: {"facts": count, "wrong": wrong[kind], "least_probability": self.least_probability.get(kind)}
                for kind, count in self.facts.items()
            },
            "wrong_facts": [asdict(difference) | {"text": str(difference)} for difference in self.wrong],
            "masked_line": {
                statement_text(operation, operand, self.tables.grammar): weight
                for (operation, operand), weight in choices
            },
        }


def read_semantics(model: ProgramModel) -> Semantics:
    """Tabulate what a model has learned and compare it with the truth.

    Args:
        model: A model that can be tabulated.

    Raises:
        ValueError: It cannot.
    """
    tables = model.tabulate()
    grammar = tables.grammar
    least: dict[Kind, float] = {}
    literals = tables.literal_probabilities[literal_facts(grammar)]
    if len(literals):
        least["literal"] = float(literals.min())
    rows = tables.rows
    for operation, operand in grammar_statements(grammar).tolist():
        facts = statement_facts(grammar, operation, operand)
        found = float(np.min(tables.probabilities[rows[operation - OPERATION, operand]], where=facts, initial=1.0))
        kind = kind_of(operation)
        least[kind] = min(least.get(kind, 1.0), found)
    return Semantics(model.name, tables, fact_counts(grammar), differences(tables), least)


def read_automata(model: ProgramModel, statement: str = "") -> list[Proof]:
    """The automata of literals and statements of a model's grammar, each compared with the true one.

    Args:
        model: A model whose values are digits.
        statement: Of this one alone, as in `*= 7`; empty for all.

    Raises:
        ValueError: Its values are no digits.
    """
    grammar = model.config.grammar
    if statement:
        return prove([model.automaton(statement)], grammar)
    return prove(model.automata(grammar_automata(grammar)), grammar)


def count_wrong_runs(
    proofs: Sequence[Proof], grammar: Grammar = PAPER, numbers: int = 3, digits: int = 1_000, seed: int = 0
) -> tuple[int, int]:
    """Run proved automata on random numbers of up to `digits` digits, and compare with Python's integers.

    Args:
        proofs: Of these, automata that are right on numbers of any size are run on such numbers, and those that are
            right on all that loops count on each of these, with leading zeros.
        grammar: The language.
        numbers: How many numbers each is run on.
        digits: Most digits of a number.
        seed: What numbers are drawn from.

    Returns:
        How many results were wrong, and how many there were.
    """
    generator, wrong, count = random.Random(seed), 0, 0
    for proof in proofs:
        if not proof.holds:
            continue
        operation, operand = proof.automaton.operation, proof.automaton.operand
        counted = range(proof.largest + 1) if proof.disagreement is not None and proof.largest is not None else ()
        for given in counted or [None] * numbers:
            width = generator.randint(len(str(given)) if given is not None else 1, digits)
            number = generator.randrange(10**width) if given is None else given
            beside = operand
            if operand is None:
                beside = generator.randrange(DIGITS if operation == MULTIPLY else 10**width)
            assert beside is not None
            if operation in COMPARISON:
                compared = number % grammar.condition_modulus if operation in MODULAR else number
                expected = int(compare(COMPARISON[operation], compared, beside))
            else:
                expected = apply(operation, number, beside) % 10**width
            wrong += proof.automaton.run(number, width, beside) != expected
            count += 1
    return wrong, count
