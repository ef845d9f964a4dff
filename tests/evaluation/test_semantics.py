"""Semantics that a model has learned: counts, wrong facts, and how sure it is of them."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from ipagnn.cli.semantics import _print_proofs
from ipagnn.evaluation.semantics import count_wrong_runs, read_automata, read_semantics
from ipagnn.languages.arithmetic import Grammar
from ipagnn.languages.arithmetic.automata import Automaton, Statement, claim, prove, true_automaton
from ipagnn.languages.arithmetic.tables import grammar_statements
from ipagnn.languages.arithmetic.vocabulary import MULTIPLY, WHILE_GREATER
from ipagnn.models import EnvIPAGNN, ProgramModel, build_model, save_model

Make = Callable[..., ProgramModel]
WRONG = (MULTIPLY, 7, 13, 92)


@pytest.mark.parametrize("grammar", [Grammar(), Grammar(modulus=100, counters=3), Grammar(operands=(1, 19))])
def test_one_wrong_fact_is_read(lookup: Make, grammar: Grammar) -> None:
    found = read_semantics(lookup(WRONG, grammar=grammar)).to_dict()
    assert (found["wrong"], found["by_kind"]["arithmetic"]["wrong"]) == (1, 1)
    fact = found["wrong_facts"][0]
    assert fact["text"] == f"v0 *= 7 at 13: learned 92, true {91 % grammar.modulus}"
    assert (fact["statement"], fact["value"], fact["learned"], fact["probability"]) == (
        "v0 *= 7",
        13,
        92,
        pytest.approx(0.6),
    )
    least = {kind: each["least_probability"] for kind, each in found["by_kind"].items()}
    assert least == {"literal": 1.0, "arithmetic": pytest.approx(0.6), "condition": 1.0, "loop": 1.0}
    assert found["facts"] == sum(each["facts"] for each in found["by_kind"].values())
    assert sum(found["masked_line"].values()) == pytest.approx(1)


def test_no_fact_is_wrong(lookup: Make) -> None:
    found = read_semantics(lookup())
    assert (found.wrong, sum(found.facts.values())) == ([], 68_010)


def test_a_model_without_values_has_no_semantics(run: Any, tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="has no semantics to read"):
        read_semantics(build_model("ipa-gnn", hidden=4))
    result = run("semantics", "ipa-gnn-full")
    assert (result.code, result.out) == (2, "")
    assert "The model 'ipa-gnn' has no semantics to read" in result.err


def test_proved_automata_run_on_long_numbers() -> None:
    proofs = prove([true_automaton(operation, operand) for operation, operand in grammar_statements().tolist()])
    assert count_wrong_runs(proofs, numbers=1) == (0, 68)


def test_the_command_proves_automata_or_finds_where_they_are_wrong(run: Any, tmp_path: Any) -> None:
    grammar = Grammar(modulus=100, initial_values=(0, 3), operands=(1, 1), counters=1, comparisons=("<",))
    model = EnvIPAGNN(hidden=4, width=4, states=3, values="digits", grammar=grammar)
    save_model(model, tmp_path / "m.safetensors", task="full")
    result = run("semantics", tmp_path / "m.safetensors")
    assert result.code == 0
    *_, checked, last = result.out.strip().splitlines()
    assert "random numbers of up to 1,000 digits: 0 wrong." in checked
    assert "statements are equal to the true ones for numbers of any size" in last
    assert "are wrong on numbers that programs of this language hold there, first" in last  # it was never trained
    assert len(read_automata(model)) == len(grammar_statements(grammar)) + len({*range(4), *range(2, 10)})
    assert "differs first at" in result.out
    shown = run("semantics", tmp_path / "m.safetensors", "--automaton", "*= 1")
    assert shown.out.startswith(f"{model.automaton('*= 1')}\n")
    several = run("semantics", tmp_path / "m.safetensors", "--automaton", "all", "--plot", tmp_path / "all.png")
    assert several.out.count("\nstate ") == len(grammar_statements(grammar))
    assert (tmp_path / "all.png").stat().st_size > 1_000
    told = json.loads(run("semantics", tmp_path / "m.safetensors", "--json").out)["automata"]
    assert len(told["by_statement"]) == told["statements"]
    assert 0 <= told["equal"] <= told["holds"] < told["statements"]
    refused = run("semantics", "env-ipa-gnn-full", "--plot", tmp_path / "no.png")
    assert "env-ipa-gnn-full has no automata; choose a model whose values are digits" in refused.err
    drawn = run("semantics", tmp_path / "m.safetensors", "--automaton", "if % 10 < 4", "--dot")
    assert drawn.out.startswith('digraph "if v0 % 10 < 4" {')


def test_what_counts_loops_must_be_right_on_what_loops_count() -> None:
    class Early(EnvIPAGNN):
        name = "early"

        def automata(self, statements: Iterable[Statement]) -> list[Automaton]:
            found = [true_automaton(operation, operand) for operation, operand in statements]
            if found[-1].operation == WHILE_GREATER:
                stops = found[-1].stops.copy()
                stops[0, 0] = True  # decided after one zero
                found[-1] = replace(found[-1], stops=stops)
            return found

    model = Early(hidden=3, width=2, states=2, values="digits", grammar=Grammar(modulus=10**18, operand_variable=1))
    proofs = read_automata(model)
    console = Console(file=StringIO(), width=200)
    _print_proofs(console, proofs)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    first = "equal for 0 to 9, all that loops count; differs first at 10: learned 0, true 1"
    assert first in shown
    assert "equal for numbers of any size, times a digit" in shown
    assert "v0 = v1" in shown
    assert claim(proofs).endswith("every program of this language is executed correctly.")
    wrong, runs = count_wrong_runs(proofs, numbers=2)
    assert (wrong, runs) == (0, 2 * (len(proofs) - 1) + 10)
