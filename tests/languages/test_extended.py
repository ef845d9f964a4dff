"""Languages past the paper's: their text, tokens and grammar."""

from dataclasses import replace

import numpy as np
import pytest

from ipagnn.languages.arithmetic import (
    PAPER,
    Arithmetic,
    Grammar,
    Lengths,
    Line,
    Program,
    ProgramError,
    ProgramTable,
    Sampler,
    control_flow_graph,
    format_program,
    parse,
    reference,
    steps,
)
from ipagnn.languages.arithmetic._compiled.graph import static_steps
from ipagnn.languages.arithmetic._compiled.hash import program_hash, program_hashes
from ipagnn.languages.arithmetic.card import FORMS, forms
from ipagnn.languages.arithmetic.membership import outside_grammar
from ipagnn.languages.arithmetic.vocabulary import variable_id

from ..conftest import EXTENDED
from .conftest import CONDITIONS, LARGE, OPERANDS

FIRST = replace(EXTENDED, target_variable=0)
SOURCE = """v0 = 123456789012
v12 = 7
v1 = 999
while v12 > 0:
  v12 -= 1
  v0 += v1
  if v1 < v0:
    v1 *= v12
  else:
    v1 = 1000
  if v1 % 10 >= 4:
    v0 -= 1000000"""


# --- Text and tokens.
def test_lines_and_tokens_of_a_program() -> None:
    program = parse(SOURCE, grammar=FIRST)
    assert format_program(program) == SOURCE
    assert program.lines[:6] == (
        Line(0, "=", 0, 123456789012),
        Line(0, "=", 12, 7),
        Line(0, "=", 1, 999),
        Line(0, "while >", 12, 0),
        Line(1, "-=", 12, 1),
        Line(1, "+=", 0, None, 1),
    )
    assert program.line_tokens[:3].tolist() == [
        [1, 1004, 1036, 13, 790, 457, 124],  # 12, 789, 456 and 123, the lowest first
        [1, 1004, 1050, 8, 0, 0, 0],
        [1, 1004, 1037, 1000, 0, 0, 0],
    ]
    assert program.line_tokens[6].tolist() == [2, 1018, 1037, 1036, 0, 0, 0]
    assert int(program.line_tokens.max()) < Arithmetic(EXTENDED).vocabulary == 1058
    assert Arithmetic().vocabulary == 1048


def test_programs_of_the_paper_stay_as_they_were(grammar: Grammar) -> None:
    for program in Sampler(seed=3).table(0, 50):
        assert parse(format_program(program), grammar=replace(grammar, target_variable=0)) == program
        assert program.line_tokens.shape == (len(program), 4)
    assert set(PAPER.to_dict()).isdisjoint(("variables", "wrap", "factors"))
    assert not PAPER.is_extended
    assert grammar.is_extended


def test_a_program_has_one_spelling(grammar: Grammar) -> None:
    table = Sampler(lengths=Lengths.uniform((3, 12, 30)), grammar=grammar, seed=1).table(0, 200)
    assert table.line_tokens.shape[1] == grammar.tokens
    for program in table:
        written = parse(format_program(program), grammar=grammar)
        assert written == program
        assert hash(written) == hash(program)
        assert parse(format_program(program, mask="_ = 0"), grammar=grammar) == program
    again = ProgramTable.from_programs(list(table), table.target.tolist())
    both = ProgramTable.concatenate([again, Sampler(seed=1).table(0, 3)])
    assert [both[i] for i in range(203)] == [*table, *Sampler(seed=1).table(0, 3)]
    hashes = program_hashes(table.line_offsets, table.line_tokens)
    assert hashes.tolist() == [int(program_hash(program.line_tokens)) for program in table]
    assert hashes.tolist() == [reference.program_hash(program) for program in table]


def test_the_hash_reads_every_digit() -> None:
    sources = [f"v3 = 0\nv0 = {n}" for n in (1, 1001, 1_000_001, 1_001_001, 2001, 1_000, 1_000_000)]
    sources += ["v3 = 1\nv1 = 2\nv3 += v1", "v3 = 1\nv1 = 2\nv3 += v3", "v10 = 1\nv3 = 1"]
    hashes = [reference.program_hash(parse(source, grammar=EXTENDED)) for source in sources]
    assert len(set(hashes)) == len(hashes)
    assert hashes == [int(program_hash(parse(source, grammar=EXTENDED).line_tokens)) for source in sources]


def test_graph_and_steps_of_a_program() -> None:
    program = parse(SOURCE, grammar=FIRST)
    graph = control_flow_graph(program)
    assert graph.labels[5:8] == ["v0 += v1", "if v1 < v0:", "v1 *= v12"]
    assert reference.control_flow(program) == (graph.nodes.tolist(), graph.true.tolist(), graph.false.tolist())
    assert steps(program) == 1 + 4 + 2 + 8 * 2
    assert static_steps(program.line_tokens, np.empty(20, np.int64)) == reference.static_steps(program)
    by_variable = parse("v0 = 5\nv1 = v0\nwhile v1 > 0:\n  v1 -= 1", grammar=FIRST)  # the count cannot be seen
    assert static_steps(by_variable.line_tokens, np.empty(20, np.int64)) == 1 + 3 + 2 + 2
    assert reference.static_steps(by_variable) == 8


@pytest.mark.parametrize(
    ("source", "grammar", "column", "found", "accepted"),
    [
        ("v0 = 1000", PAPER, 6, "`1000`", "a whole number from 0 to 999"),
        ("v0 = 1000000000000000000", LARGE, 6, "`1000000000000000000`", "a whole number from 0 to 999999999999999999"),
        ("v0 = v1", LARGE, 6, "`v1`", "a whole number from 0 to 999999999999999999"),
        ("v0 = -5", OPERANDS, 6, "`-5`", "a whole number from 0 to 999 or a variable v0 to v12"),
        ("v13 = 5", OPERANDS, 1, "`v13`", "a variable v0 to v12"),
        ("v01 = 5", OPERANDS, 1, "`v01`", "a variable v0 to v12"),
        ("x = 5", OPERANDS, 1, "`x`", "a statement, which is `vK = N or vJ`, `vK += N or vJ`"),
        ("x = 5", EXTENDED, 1, "`x`", "with K from 0 to 18"),
        ("v0 = v3", OPERANDS, 6, "`v3`, which is read before any line assigns it", "a line `v3 = N` above"),
        ("v0 = v20", OPERANDS, 6, "`v20`", "a variable v0 to v12"),
        ("if v0 < v1:", OPERANDS, 9, "`v1`", "a whole number from 0 to 999"),
        ("if v0 % 10 < v1:", CONDITIONS, 14, "`v1`", "a whole number from 0 to 999"),
        ("if v0 < :", CONDITIONS, 9, "`:`", "a whole number from 0 to 999 or a variable v0 to v11"),
        ("v0 += v0", CONDITIONS, 7, "`v0`", "a whole number from 0 to 999"),
    ],
)
def test_what_a_grammar_cannot_draw_is_refused(
    source: str, grammar: Grammar, column: int, found: str, accepted: str
) -> None:
    with pytest.raises(ProgramError) as caught:
        parse(source, grammar=grammar)
    assert (caught.value.column, caught.value.found) == (column, found)
    assert accepted in caught.value.accepted


# --- The grammar.
def test_a_dictionary_keeps_what_goes_past_the_paper() -> None:
    values = EXTENDED.to_dict()
    assert Grammar.from_dict(values) == EXTENDED
    assert values["variables"] == 10
    assert "digit_variables" in values
    assert "condition_number" not in values


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"variables": 11}, "variables is 11; it must be a whole number from 1 to 10"),
        ({"digit_variables": 1}, "digit_variables is 1; it must be a whole number from 0 to 0"),
        ({"variables": 3, "digit_variables": 1, "target_variable": 2}, "target_variable is 2; .* from 0 to 1"),
        ({"operand_number": 0}, "operand_number and operand_variable are both 0"),
        ({"condition_variable": 1, "variables": 2}, "condition_variable is above 0 and wrap is false"),
        ({"wrap": 1}, "wrap is 1; it must be true or false"),
        ({"wrap": True, "modulus": 8, "condition_modulus": 4}, "loops cannot count so far"),
        ({"variables": 2, "block_limit": 200}, "block_limit is 200; it is for the authors' labels"),
        ({"operands": (0, 10**18)}, "operands is .* from 0 to 999999999999999999"),
        ({"factors": (3, 2)}, "factors is"),
        ({"stmt_assign": -1}, "stmt_assign is -1"),
    ],
)
def test_bad_grammars_are_refused(edit: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Grammar(**edit)  # type: ignore[arg-type]


# --- What people see of it.
def test_a_grammar_can_draw_what_it_draws(grammar: Grammar) -> None:
    for task in ("full", "partial"):
        sampler = Sampler(task, Lengths.uniform((8, 25)), grammar, seed=10)  # type: ignore[arg-type]
        assert [found for program in sampler.table(0, 150) for found in outside_grammar(program, grammar)] == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("v0 = 5\nv3 = 1\nv0 += 1", ["line 1: `v0 = 5`; trained on a first line `v3 = N`"]),
        ("v3 = 5\nv8 = 12\nv3 += 1", ["line 2: v8 = 12; trained on 0 to 9"]),
        ("v3 = 5\nv3 += 2\nv4 = 2", ["line 3: v4 is not set in the first lines; trained on variables that are"]),
        ("v3 = 5\nv8 = 1\nv8 += 1", ["line 3: `v8 += 1`; trained on arithmetic with v0 to v6 only"]),
        ("v3 = 5\nv4 = 1\nv3 *= v4", ["line 3: `v3 *= v4`; trained on products with v7 to v9, which hold digits"]),
        ("v3 = 5\nv3 += v3", ["line 2: `v3 += v3`; trained on another variable on the right"]),
        ("v3 = 5\nv3 *= 10", ["line 2: operand 10; trained on 0 to 9"]),
        ("v3 = 5\nif v3 > 4:\n  pass", [
            "line 2: `if v3 > 4`; trained on conditions of v0 to v9 % 10 and between two of them"]),
        ("v3 = 5\nv12 = v3\nwhile v12 > 0:\n  v12 -= 1\n  pass", [
            "line 3: `while v12 > 0`; trained on loops `vK = N`, `while vK > 0`, with K from 10 on"]),
        ("v3 = 5\nv19 = 2\nwhile v19 > 0:\n  v19 -= 1\n  pass", ["line 3: v19 counts a loop; trained on v10 to v18"]),
    ],
)  # fmt: skip
def test_what_lies_outside_is_named(source: str, expected: list[str]) -> None:
    program = parse(source, grammar=EXTENDED) if "v19" not in source else _with_v19(source)
    assert outside_grammar(program, EXTENDED) == expected


def _with_v19(source: str) -> Program:
    tokens = parse(source.replace("v19", "v18"), grammar=EXTENDED).line_tokens.copy()
    tokens[tokens == variable_id(18)] = variable_id(19)
    return Program(tokens)


def test_the_card_is_that_of_the_grammar() -> None:
    assert forms() == FORMS
    told = {form.text: form.meaning for form in forms(EXTENDED)}
    assert list(told) == [
        *("v3 = 7", "v3 += 3", "v0 += v1", "if v3 % 10 > 5:", "if v0 < v1:", "else:", "while v10 > 0:", "break"),
        *("# text", "v3 *= 3"),
    ]
    assert "a number, 0 to 10^18 - 1, to a variable, v0 to v18; the first line assigns v3" in told["v3 = 7"]
    assert told["v3 += 3"].endswith("v0 to v9 with operands 0 to 10^9")
    assert told["v3 *= 3"] == "every assignment takes its result modulo 10^12"
    few = forms(Grammar(counters=0, arithmetic_operations=("-=",), operands=(2, 123)))
    assert few[1].meaning == "subtract. Models are trained on v0 with operands 2 to 123"
    assert not [form for form in few if form.text.startswith("while")]
