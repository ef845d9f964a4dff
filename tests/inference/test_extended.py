"""Languages past the paper's in all that people touch: answers, values by step, evaluation, files."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ipagnn import embed, explain, predict
from ipagnn.data.generate import generate
from ipagnn.data.program_files import ProgramFile
from ipagnn.evaluation import evaluate
from ipagnn.inference.loaded import LoadedModel
from ipagnn.languages.arithmetic import Grammar, Lengths, Sampler, format_program
from ipagnn.languages.arithmetic.automata import Automaton, Statement, true_automaton
from ipagnn.languages.arithmetic.interpreter import trace_values
from ipagnn.models import EnvIPAGNN

from ..conftest import EXTENDED

SOURCE = """v3 = 123456789012
v0 = 999999
v9 = 9
v12 = 9
while v12 > 0:
  v12 -= 1
  v3 += v0
  v0 *= v9
  if v3 < v0:
    v3 = 1000000
  v0 += 300000000"""


class Exact(EnvIPAGNN):
    """A model whose automata are the true ones."""

    name = "exact-automata"

    def automata(self, statements: Iterable[Statement]) -> list[Automaton]:
        return [true_automaton(operation, operand) for operation, operand in statements]


@pytest.fixture(scope="module")
def exact() -> Exact:
    return Exact(hidden=3, width=2, states=2, values="digits", grammar=EXTENDED).eval()  # type: ignore[return-value]


def python_values(source: str) -> dict[str, int]:
    """What Python itself makes of a program of ours, with results modulo the modulus."""
    lines = source.split("\n")
    wrapped = [f"{x}; {x.split()[0]} %= {10**12}" if "=" in x and not x.endswith(":") else x for x in lines]
    values: dict[str, int] = {}
    exec("\n".join(wrapped), {}, values)
    return values


def test_answers_are_those_of_python(exact: Exact) -> None:
    sampler = Sampler(lengths=Lengths.uniform((6, 25)), grammar=EXTENDED, seed=4, trace_limit=1_000)
    sources = [SOURCE, *(format_program(program) for program in sampler.table(0, 25))]
    for source, answer in zip(sources, predict(sources, exact), strict=True):
        assert answer.value == answer.true_value == python_values(source)["v3"]
        assert answer.warnings == []
    assert embed(sources[:2], exact).shape[0] == 2


def test_values_by_step_and_the_trace_are_those_of_the_language(exact: Exact) -> None:
    explanation = explain(SOURCE, exact)
    assert explanation.beliefs is not None
    assert explanation.beliefs.variables == [0, 3, 9, 12]
    assert explanation.beliefs.parts is None
    assert explanation.shortcuts == []
    program = LoadedModel("exact", exact).parse(SOURCE)
    states = list(trace_values(program, 100, 10**12, wrap=True))
    assert explanation.beliefs.values[1:].tolist() == [[state[k] for k in (0, 3, 9, 12)] for state in states]
    assert explanation.trace is not None
    assert [step.v0 for step in explanation.trace] == [state[3] for state in states]
    assert any(step.branch for step in explanation.trace)


@pytest.mark.parametrize("with_source", [False, True])
def test_data_sets_of_the_language_are_evaluated(exact: Exact, tmp_path: Path, with_source: bool) -> None:
    lengths = Lengths.uniform((10, 40))
    generate(tmp_path, split="test", count=60, lengths=lengths, grammar=EXTENDED, with_source=with_source)
    [table] = ProgramFile(tmp_path, grammar=EXTENDED)
    found = evaluate(exact, table)
    assert found.correct.all()
    assert (found.steps == found.trace_length).all()
    assert found.loop_depth.max() >= 1
    wide = Grammar(modulus=10**12)
    with pytest.raises(ValueError, match="spell no program" if not with_source else "accepted"):
        list(ProgramFile(tmp_path, grammar=wide))


def test_commands_take_settings_of_the_language(run: Any, tmp_path: Path) -> None:
    settings = [each for key, x in EXTENDED.to_dict().items() for each in ("--set", f"{key}={json.dumps(x)}")]
    drawn = run("sample", "--count", 3, "--length", 12, "--json", *settings)
    sources = [json.loads(line) for line in drawn.out.splitlines()]
    for each in sources:
        assert each["target"] == python_values(each["source"])["v3"]
    file = tmp_path / "program.py"
    file.write_text(SOURCE)
    seen = json.loads(run("inspect", file, "--json", *settings).out)
    assert seen["value"] == python_values(SOURCE)["v3"]
    assert seen["lines"] == SOURCE.split("\n")
    refused = run("inspect", file)
    assert (refused.code, refused.out) == (2, "")
    assert "found `123456789012`; accepted: a whole number from 0 to 999" in refused.err
    unknown = run("sample", "--set", "operand_variables=1")
    assert "'operand_variables' is not a setting. Did you mean 'operand_variable'?" in unknown.err
    many = run("ceiling", *settings, "--count", 2)
    assert "a masked line may be any of too many statements to try them all" in many.err
    few = json.loads(run("ceiling", "--set", "modulus=10", "--lengths", "8", "--count", 20, "--json").out)
    assert few["overall"]["count"] == 20
    made = run("generate", tmp_path / "data", "--split", "test", "--lengths", "9", "--count", 20, *settings)
    assert "20 full programs" in made.out
    [table] = ProgramFile(tmp_path / "data", grammar=EXTENDED)
    assert table.line_tokens.shape[1] == EXTENDED.tokens == 7
