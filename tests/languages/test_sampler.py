"""The sampler's programs: well formed, of the right value, the same everywhere, and obedient to the grammar."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest

from ipagnn.languages.arithmetic._compiled.graph import static_steps
from ipagnn.languages.arithmetic._compiled.hash import WITHHELD_BITS, program_hashes
from ipagnn.languages.arithmetic.grammar import PAPER, Grammar, Lengths
from ipagnn.languages.arithmetic.interpreter import trace_length, value
from ipagnn.languages.arithmetic.program import Line, Program, ProgramKind, ProgramTable
from ipagnn.languages.arithmetic.sampler import CHUNK, Sampler


def enclosing(program: Program) -> Iterator[tuple[Line, list[Line]]]:
    """Every line with the headers it stands under."""
    headers: list[Line] = []
    for line in program.lines:
        headers = [header for header in headers if header.indent < line.indent]
        yield line, list(headers)
        headers.append(line)


def test_programs_are_well_formed() -> None:
    for program in Sampler(lengths=Lengths.exact(60), seed=3).table(0, 300):
        assert len(program) == 60
        lines = program.lines
        for i, (line, headers) in enumerate(enclosing(program)):
            loops = [header.variable for header in headers if header.operation == "while >"]
            assert len(headers) == line.indent
            assert len(set(loops)) == len(loops) <= 9
            if line.operation in ("break", "continue"):
                assert loops
            if line.operation == "while >":
                assert line.operand == 0
                assert lines[i - 1].operation == "="
                assert lines[i - 1].variable == line.variable
                assert lines[i + 1] == Line(line.indent + 1, "-=", line.variable, 1)


# --- Values. Python itself runs what the sampler drew: the one place where generated text is run, and it is ours.
def python_source(program: Program, grammar: Grammar = PAPER, reduce: bool = False) -> str:
    """The program as Python; `reduce` keeps v0 below the modulus, so that long traces do not make huge numbers."""

    def spell(line: Line) -> str:
        if line.variable is None:
            return line.operation + ":" * (line.operation == "else")
        if line.operation.startswith(("if", "while")):
            word, comparison, *modulo = line.operation.split()
            left = f"v{line.variable}" + (f" % {grammar.condition_modulus}" if modulo else "")
            return f"{word} {left} {comparison} {line.operand}:"
        statement = f"v{line.variable} {line.operation} {line.operand}"
        return statement + (f"; v0 %= {grammar.modulus}" if reduce and line.variable == 0 else "")

    return "\n".join("  " * line.indent + spell(line) for line in program.lines)


def python_value(program: Program, grammar: Grammar = PAPER, reduce: bool = False) -> int:
    variables: dict[str, int] = {}
    exec(python_source(program, grammar, reduce), variables)
    return variables["v0"] % grammar.modulus


def assert_values_agree(table: ProgramTable, most_steps: int, grammar: Grammar = PAPER, reduce: bool = False) -> int:
    """Compare all programs whose loops cannot take more than `most_steps`; returns how many these were."""
    scratch = np.empty(int(table.lengths.max()) + 1, np.int64)
    compared = 0
    for program, target in zip(table, table.target.tolist(), strict=True):
        if static_steps(program.line_tokens, scratch) <= most_steps:
            compared += 1
            assert python_value(program, grammar, reduce) == target, python_source(program, grammar)
    return compared


def test_values_agree_with_python() -> None:
    compared = assert_values_agree(Sampler(seed=4).table(0, 19_000), 100_000)
    compared += assert_values_agree(Sampler(lengths=Lengths.uniform([20, 25, 30]), seed=5).table(0, 1_200), 20_000)
    assert compared >= 20_000


def test_values_of_long_programs_agree_with_naive_stepping() -> None:
    table = Sampler(lengths=Lengths.exact(100), seed=6).table(0, 400)
    assert assert_values_agree(table, 1_000_000, reduce=True) >= 300


@pytest.mark.parametrize(("modulus", "condition_modulus"), [(7, 7), (12, 3), (100, 25), (64, 1), (2000, 10), (1, 1)])
def test_values_under_another_modulus(modulus: int, condition_modulus: int) -> None:
    grammar = Grammar(modulus=modulus, condition_modulus=condition_modulus, operands=(0, 30))
    table = Sampler(lengths=Lengths.exact(20), grammar=grammar, seed=7).table(0, 200)
    assert assert_values_agree(table, 20_000, grammar) >= 150
    assert table.target.min() >= 0
    assert table.target.max() < modulus


def test_nine_nested_loops_are_run_exactly_and_at_once() -> None:
    grammar = replace(PAPER, stmt_repeat=1000, stmt_if=0, stmt_if_else=0, loop_counts=(9, 9), stmt_pass=0)
    table = Sampler(lengths=Lengths.exact(29), grammar=grammar).table(0, 1_000)
    deepest = int(np.argmax([program.line_tokens[-1, 0] for program in table]))
    program = table[deepest]
    assert sum(line.operation == "while >" for line in program.lines) == 9
    assert program.lines[-1].indent == 9  # 9 ** 9 rounds: Python would take minutes
    body = program.lines[-1]
    assert body.operation in PAPER.arithmetic_operations
    start, operand, rounds = program.lines[0].operand, body.operand, 9**9
    assert start is not None
    assert operand is not None
    expected = {"+=": start + operand * rounds, "-=": start - operand * rounds}
    expected["*="] = start * pow(operand, rounds, 1000)
    assert table.target[deepest] == expected[body.operation] % 1000


# --- The same programs everywhere.
@pytest.mark.parametrize("task", ["full", "partial"])
def test_threads_and_chunks_do_not_matter(task: ProgramKind) -> None:
    sampler = Sampler(task, seed=9)
    count = 3 * CHUNK + 17
    whole = sampler.table(1_000, count)
    cuts = [0, 1, 5, CHUNK - 3, CHUNK + 1, 2 * CHUNK, count]
    pieces = [sampler.table(1_000 + a, b - a) for a, b in pairwise(cuts)]
    tables = [sampler.table(1_000, count, threads) for threads in (2, 7)]
    for other in (*tables, ProgramTable.concatenate(pieces)):
        assert np.array_equal(other.line_offsets, whole.line_offsets)
        assert np.array_equal(other.line_tokens, whole.line_tokens)
        assert np.array_equal(other.target, whole.target)


def test_one_sampler_serves_many_threads() -> None:
    sampler = Sampler(seed=10)
    with ThreadPoolExecutor(4) as pool:
        tables = list(pool.map(lambda i: sampler.table(500 * (i % 2), 1_000), range(8)))
    for i, table in enumerate(tables):
        assert np.array_equal(table.line_tokens, sampler.table(500 * (i % 2), 1_000).line_tokens)


def test_seeds_and_indices_make_other_programs() -> None:
    programs = {
        Sampler(lengths=Lengths.exact(30), seed=seed).program(i)[0] for seed in (0, 1, 2**64 - 1) for i in range(9)
    }
    assert len(programs) == 27
    assert len(set(Sampler(lengths=Lengths.exact(30)).table(0, 5_000))) == 5_000


def digest(table: ProgramTable) -> str:
    parts = (table.line_offsets.astype("<i8"), table.line_tokens.astype("<i2"), table.target.astype("<i4"))
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()[:16]


GOLDEN = """v0 = 825
v0 -= 5
v3 = 7
while v3 > 0:
  v3 -= 1
  v6 = 2
  while v6 > 0:
    v6 -= 1
    v0 *= 3
v0 -= 1
# 579
v0 = 254
if v0 % 10 <= 5:
  v9 = 7
  while v9 > 0:
    v9 -= 1
    if v0 % 10 <= 7:
      if v0 % 10 <= 1:
        v0 *= 1
    if v0 % 10 > 1:
      v0 *= 3
# 498
v0 = 944
v0 -= 2
v0 -= 2
v0 *= 2
if v0 % 10 >= 1:
  v0 += 2
  if v0 % 10 >= 0:
    if v0 % 10 <= 8:
      v0 *= 3
# 880"""


def test_the_first_programs_are_these() -> None:
    """Literal, so that a change of platform, of the generator or of the order of its draws is noticed."""
    programs = [Sampler().program(i) for i in range(3)]
    assert "\n".join(f"{python_source(program)}\n# {target}" for program, target in programs) == GOLDEN


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [
        (Sampler(), "532e553a57668f77"),
        (Sampler("partial", seed=1), "bfeae7c0d59a0643"),
        (Sampler(lengths=Lengths.uniform([20, 60, 100]), seed=2**64 - 1), "1df2816bac5c348f"),
        (Sampler(grammar=Grammar(modulus=50, condition_modulus=5, counters=2)), "636e4f1a90f3c83e"),
    ],
)
def test_streams_are_the_same_on_every_machine(sampler: Sampler, expected: str) -> None:
    assert digest(sampler.table(2**40, 1_000)) == expected


# --- Users change the language.
def sampled_lines(**edits: object) -> list[Line]:
    grammar = replace(PAPER, **edits)  # type: ignore[arg-type]
    table = Sampler(lengths=Lengths.exact(15), grammar=grammar, seed=11).table(0, 300)
    return [line for program in table for line in program.lines]


def test_programs_that_run_too_long_are_drawn_again_and_no_others() -> None:
    free = Sampler(withheld=False, seed=5)
    limited = replace(free, trace_limit=15)
    before, after = free.table(0, 600), limited.table(0, 600)
    lengths = [trace_length(program) for program in before]
    kept = [i for i, length in enumerate(lengths) if length <= 15]
    assert 300 < len(kept) < 550
    assert all(before[i] == after[i] for i in kept)
    assert max(trace_length(program) for program in after) == 15
    assert after.target.tolist() == [value(program) for program in after]
    masked = replace(limited, task="partial")
    assert masked.program(7) == (masked.table(0, 9)[7], int(masked.table(0, 9).target[7]))
    with pytest.raises(ValueError, match=r"no program of 10 lines and at most 3 statements"):
        Sampler(lengths=Lengths.exact(10), grammar=replace(PAPER, stmt_if=0, stmt_if_else=0), trace_limit=3).table(0, 1)


def test_an_edited_grammar_is_obeyed() -> None:
    lines = sampled_lines(
        initial_values=(40, 41),
        operands=(20, 22),
        condition_operands=(3, 4),
        loop_counts=(1, 2),
        counters=3,
        arithmetic_operations=("+=", "*="),
        comparisons=("<=",),
    )
    of_v0 = [line for line in lines if line.variable == 0]
    assert {line.operand for line in of_v0 if line.operation == "="} == {40, 41}
    assert {line.operand for line in of_v0 if line.operation in ("+=", "*=")} == {20, 21, 22}
    assert {line.operand for line in of_v0 if line.operation == "if <= %"} == {3, 4}
    assert {line.operation for line in of_v0} == {"=", "+=", "*=", "if <= %"}
    loops = [line for line in lines if line.operation == "=" and line.variable != 0]
    assert {line.operand for line in loops} == {1, 2}
    assert {line.variable for line in loops} == {1, 2, 3}


@pytest.mark.parametrize(
    ("edits", "absent"),
    [
        ({"stmt_repeat": 0}, {"while >", "break", "continue"}),
        ({"counters": 0}, {"while >", "break", "continue"}),
        ({"stmt_if": 0, "stmt_if_else": 0}, {"if > %", "if < %", "if >= %", "if <= %", "else"}),
        ({"stmt_if_else": 0}, {"else"}),
        ({"stmt_pass": 0}, {"pass"}),
        ({"block_break": 0}, {"break"}),
        ({"block_continue": 0}, {"continue"}),
    ],
)
def test_a_weight_of_zero_removes_its_choice(edits: dict[str, int], absent: set[str]) -> None:
    everything = {line.operation for line in sampled_lines()}
    assert everything - {line.operation for line in sampled_lines(**edits)} == absent


def test_one_counter_allows_no_nested_loops() -> None:
    table = Sampler(lengths=Lengths.exact(30), grammar=Grammar(counters=1)).table(0, 200)
    nested = [headers for p in table for _, headers in enclosing(p) if sum("while" in h.operation for h in headers) > 1]
    assert not nested


def test_operands_may_be_wide() -> None:
    assert max(line.operand or 0 for line in sampled_lines(operands=(1, 999)) if line.operation == "*=") > 900


# --- Masked lines.
def test_several_lines_are_masked() -> None:
    table = Sampler("partial", Lengths.uniform((6, 20)), seed=3, masked_lines=3).table(0, 300)
    for program in table:
        assert len(program.masked_lines) == 3
        assert 0 not in program.masked_lines


def test_all_choices_of_lines_are_equally_likely() -> None:
    grammar = replace(PAPER, stmt_if=0, stmt_if_else=0, stmt_repeat=0, stmt_pass=0)  # four lines that can be masked
    table = Sampler("partial", Lengths.exact(5), grammar, masked_lines=2).table(0, 6_000)
    chosen = Counter(program.masked_lines for program in table)
    assert set(chosen) == set(combinations(range(1, 5), 2))
    assert all(count == pytest.approx(1_000, abs=5 * 1_000**0.5) for count in chosen.values())


def test_masks_are_withheld_by_what_is_seen() -> None:
    for withheld in (False, True):
        table = Sampler("partial", seed=8, withheld=withheld, masked_lines=2).table(0, 300)
        hashes = program_hashes(table.line_offsets, table.line_tokens)
        assert ((hashes >> np.uint64(64 - WITHHELD_BITS) == 0) == withheld).all()


# --- What is hard to draw.
def test_blocks_that_only_a_loop_can_fill_do_not_hang() -> None:
    """Without plain blocks an `if` outside a loop has no body, so it never appears there."""
    table = Sampler(lengths=Lengths.exact(10), grammar=replace(PAPER, block_plain=0)).table(0, 200)
    outside = [line.operation for p in table for line, headers in enclosing(p) if not headers]
    assert not any(operation.startswith("if") for operation in outside)
    assert any(operation == "while >" for operation in outside)


def test_the_longest_programs_are_drawn() -> None:
    table = Sampler(lengths=Lengths.exact(1000)).table(0, 20)
    assert set(table.lengths) == {1000}
    assert (table.target >= 0).all()


def test_an_empty_table_is_a_table() -> None:
    table = Sampler().table(5, 0)
    assert len(table) == 0
    assert table.line_tokens.shape == (0, 4)


def test_the_last_index_has_a_program() -> None:
    assert len(Sampler(lengths=Lengths.exact(4)).program(2**63 - 1)[0]) == 4
