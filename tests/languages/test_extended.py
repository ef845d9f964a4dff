"""Languages past the paper's: their text, tokens, exact execution and sampler."""

import random
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipagnn.languages.arithmetic import (
    PAPER,
    Arithmetic,
    ExecutionError,
    Grammar,
    Lengths,
    Line,
    Program,
    ProgramError,
    ProgramTable,
    Sampler,
    StepLimitError,
    control_flow_graph,
    execute,
    format_program,
    parse,
    reference,
    reference_sampler,
    steps,
    target,
    trace,
)
from ipagnn.languages.arithmetic._compiled.graph import static_steps
from ipagnn.languages.arithmetic._compiled.hash import program_hash, program_hashes
from ipagnn.languages.arithmetic._compiled.trace import trace_nodes
from ipagnn.languages.arithmetic.card import FORMS, forms
from ipagnn.languages.arithmetic.membership import outside_grammar
from ipagnn.languages.arithmetic.targets import final_values
from ipagnn.languages.arithmetic.vocabulary import variable_id

from ..conftest import EXTENDED
from ..program_texts import extended_sources
from .conftest import BY_DIGITS, CONDITIONS, LARGE, OPERANDS

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


# --- Execution.
def python_value(program: Program, grammar: Grammar) -> int:
    """What Python itself makes of the program: the one place where generated text is run, and it is ours."""
    variables: dict[str, int] = {}
    text = format_program(program, grammar.condition_modulus)
    if grammar.wrap:
        lines = text.split("\n")
        text = "\n".join(
            f"{line}; {line.split()[0]} %= {grammar.modulus}" if "=" in line and not line.endswith(":") else line
            for line in lines
        )
    exec(text, variables)
    return variables[f"v{grammar.target_variable}"] % grammar.modulus


def test_sampled_programs_have_the_value_of_python(grammar: Grammar) -> None:
    for length in (3, 10, 20, 40):
        table = Sampler(lengths=Lengths.exact(length), grammar=grammar, seed=2, trace_limit=2_000).table(0, 60)
        assert int(table.target.max()) < grammar.modulus
        everything = final_values(table, grammar, threads=2)
        assert everything[:, grammar.target_variable].tolist() == table.target.tolist()
        for i, (program, value) in enumerate(zip(table, table.target.tolist(), strict=True)):
            assert python_value(program, grammar) == value
            assert target(program, grammar) == value
            assert Arithmetic(grammar).run(program).value == value
            last = grammar.variables - 1
            asked = execute(program, grammar.modulus, wrap=grammar.wrap, variable=last).value
            assert int(everything[i, last]) % grammar.modulus == asked


@settings(max_examples=300, deadline=None)
@given(source=extended_sources(), wrap=st.booleans(), modulus=st.sampled_from([10, 1_000, 10**12, 10**18]))
def test_the_interpreters_agree_on_any_program(source: str, wrap: bool, modulus: int) -> None:
    program = parse(source, grammar=EXTENDED)
    assert format_program(program) == source
    limit = 3_000
    for variable in (0, 3):
        walked = list(trace(program, limit, modulus, wrap=wrap, variable=variable))
        graph = control_flow_graph(program)
        nodes, problem = trace_nodes(graph.node_tokens, graph.true, graph.false, 0, modulus, 10, limit, wrap)
        assert problem in (0, 2)
        assert not (wrap and problem)
        lines = [step.line for step in walked]
        assert graph.nodes[nodes].tolist() == (lines if problem == 0 else lines[: len(nodes)])
        if len(walked) == limit:
            with suppress(ExecutionError):  # it may end later, or be known to never end
                assert execute(program, modulus, max_steps=10_000, wrap=wrap, variable=variable).trace_length >= limit
            continue
        assert execute(program, modulus, wrap=wrap, variable=variable) == (walked[-1].v0, len(walked))
        asked = Grammar(modulus=modulus, variables=5, target_variable=variable, wrap=wrap)
        assert python_value(program, asked) == walked[-1].v0


def test_values_that_flow_into_a_comparison_are_kept_exactly() -> None:
    source = "v0 = 1\nv1 = 995\nv2 = 10\nv1 += v2\nif v1 > 1000:\n  v0 = 2"
    program = parse(source, grammar=FIRST)
    assert execute(program).value == 2  # 1,005 is above 1,000
    assert execute(program, wrap=True).value == 1  # 5 is not
    assert [step.v0 for step in trace(program, wrap=True)] == [1] * 5


def test_a_program_that_runs_too_long_is_told() -> None:
    source = "v0 = 1\n" + "\n".join(
        f"{'  ' * d}v{d + 3} = 9\n{'  ' * d}while v{d + 3} > 0:\n{'  ' * d}  v{d + 3} -= 1" for d in range(8)
    )
    table = ProgramTable.from_programs([parse(source, grammar=CONDITIONS)])
    with pytest.raises(StepLimitError, match="program 0 of the table was given up after 1,000,000 steps"):
        final_values(table, CONDITIONS)


# --- The sampler.
def assignments(program: Program, grammar: Grammar) -> list[Line]:
    return [line for line in program.lines if line.variable is not None and line.variable < grammar.variables]


def test_every_option_is_obeyed() -> None:
    table = Sampler(lengths=Lengths.uniform((2, 8, 25)), grammar=EXTENDED, seed=4).table(0, 400)
    used = Counter[int]()
    forms = Counter[tuple[str, bool]]()
    for program in table:
        lines = program.lines
        declared = [line.variable for line in lines[: next((i for i, x in enumerate(lines) if x.operation != "="), 99)]]
        assert declared[0] == 3
        for line in assignments(program, EXTENDED):
            assert line.variable in {line.variable for line in lines if line.operation == "="}
            forms[line.operation, line.source is not None] += 1
            digit = line.variable is not None and line.variable >= 7
            if digit and not line.operation.startswith("if"):
                assert line.operation == "="
                assert 0 <= (line.operand or 0) <= 9
            if line.operation == "*=":
                assert line.source is None or 7 <= line.source < 10
                assert line.operand is None or 0 <= line.operand <= 9
            if line.operation in ("+=", "-="):
                assert line.source != line.variable
                assert line.operand is None or 0 <= line.operand <= 10**9
            if line.operation.startswith("if"):
                assert (line.source is None) == line.operation.endswith("%")
                assert line.source is None or (line.source != line.variable and line.source < 10)
        counters = {line.variable for line in lines if line.operation == "while >"}
        assert counters <= set(range(10, 19))
        used[len({line.variable for line in lines if line.variable is not None} - counters)] += 1
    for operation in ("+=", "-=", "*="):
        assert forms[operation, True] > 20
        assert forms[operation, False] > 20
    assert all(forms[f"if {name}", True] for name in ("<", ">", "<=", ">="))
    assert all(forms[f"if {name} %", False] for name in ("<", ">", "<=", ">="))
    assert set(used) == set(range(1, 11))
    assert any(line.source is not None and line.source >= 10 for p in table for line in p.lines)  # a counter


def test_numbers_of_a_uniform_number_of_digits() -> None:
    table = Sampler(lengths=Lengths.exact(2), grammar=BY_DIGITS, seed=5).table(0, 18_000)
    counts = Counter(len(str(program.lines[0].operand)) for program in table)
    assert set(counts) == set(range(1, 19))
    assert all(abs(count - 1_000) < 5 * 1_000**0.5 for count in counts.values())
    wide = Sampler(lengths=Lengths.exact(2), grammar=LARGE, seed=5).table(0, 2_000)
    assert np.mean([len(str(program.lines[0].operand)) for program in wide]) > 11.8
    assert max(program.lines[0].operand or 0 for program in wide) > 0.99 * 10**12


@pytest.mark.parametrize("length", [3, 5, 9])
def test_the_sampler_draws_what_its_twin_draws(length: int) -> None:
    for grammar in (OPERANDS, EXTENDED):
        count = 4_000
        drawn = Sampler(lengths=Lengths.exact(length), grammar=grammar, seed=6).table(0, count)
        generator = random.Random(7)
        plain = [reference_sampler.draw_program(generator, length, grammar) for _ in range(count)]

        def features(programs: list[Program]) -> Counter[object]:
            found: Counter[object] = Counter()
            for program in programs:
                for line in program.lines:
                    found[line.operation, line.source is not None] += 1
                    found["indent", line.indent] += 1
                    found["variable", line.variable] += 1
                    found["source", line.source] += 1
                    found["digits", None if line.operand is None else len(str(line.operand))] += 1
            return found

        ours, theirs = features(list(drawn)), features(plain)
        assert set(ours) == set(theirs)
        for key, number in ours.items():
            # Lines of one program depend on each other, so counts spread more than independent ones: 3 times at most.
            assert abs(number - theirs[key]) < 5 * (3 * (number + theirs[key])) ** 0.5 + 5, key


def test_threads_and_starts_do_not_matter(grammar: Grammar) -> None:
    sampler = Sampler("partial", Lengths.uniform((5, 20)), grammar, seed=8, masked_lines=2)
    whole = sampler.table(100, 5_000)
    parts = ProgramTable.concatenate([sampler.table(100, 1_234), sampler.table(1_334, 3_766)])
    for other in (parts, sampler.table(100, 5_000, threads=3)):
        assert np.array_equal(other.line_tokens, whole.line_tokens)
        assert np.array_equal(other.target, whole.target)
    assert all(len(program.masked_lines) == 2 for program in whole.slice(0, 300))


def test_sides_of_the_hash(grammar: Grammar) -> None:
    for withheld in (False, True):
        table = Sampler(lengths=Lengths.exact(6), grammar=grammar, seed=9, withheld=withheld).table(0, 200)
        assert ((program_hashes(table.line_offsets, table.line_tokens) >> np.uint64(58) == 0) == withheld).all()


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
