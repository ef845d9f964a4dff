"""Languages past the paper's: exact execution, and the sampler."""

import random
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipagnn.languages.arithmetic import (
    Arithmetic,
    ExecutionError,
    Grammar,
    Lengths,
    Line,
    Program,
    ProgramTable,
    Sampler,
    StepLimitError,
    control_flow_graph,
    execute,
    format_program,
    parse,
    reference_sampler,
    target,
    trace,
)
from ipagnn.languages.arithmetic._compiled.hash import program_hashes
from ipagnn.languages.arithmetic._compiled.trace import trace_nodes
from ipagnn.languages.arithmetic.targets import final_values

from ..conftest import EXTENDED
from ..program_texts import extended_sources
from .conftest import BY_DIGITS, CONDITIONS, LARGE, OPERANDS

FIRST = replace(EXTENDED, target_variable=0)


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
