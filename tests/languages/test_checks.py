"""Nothing but programs of the language comes to compiled code, and all of them do."""

import random
import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipagnn.data import collate
from ipagnn.data.shards import encode_shard
from ipagnn.evaluation import evaluate
from ipagnn.languages.arithmetic import Grammar, Lengths, Program, ProgramTable, Sampler, parse, target
from ipagnn.languages.arithmetic._compiled.check import ANY_TASK, FINE, FULL, PARTIAL, find_problem
from ipagnn.languages.arithmetic._compiled.quick_check import CHUNK, is_surely_fine
from ipagnn.languages.arithmetic.checks import InvalidProgramError, packed
from ipagnn.languages.arithmetic.holes import ceiling
from ipagnn.languages.arithmetic.interpreter import ExecutionError
from ipagnn.languages.arithmetic.program import ProgramKind
from ipagnn.languages.arithmetic.reference import spells_program
from ipagnn.languages.arithmetic.table_run import run_tables
from ipagnn.languages.arithmetic.tables import ValueTables, program_statements
from ipagnn.languages.arithmetic.targets import UNDECIDED, final_values, targets, values_of
from ipagnn.models import build_model

V0 = [1, 1004, 1036, 4]  # v0 = 3
UP = [1, 1001, 1036, 2]  # v0 += 1
WHILE = [1, 1019, 1036, 4]  # while v0 > 3:
ELSE = [1, 1015, 1015, 1]
BREAK = [1, 1035, 1035, 1]
MASK = [1, 1047, 1047, 1]


def table_of(*lines: list[int], target: int = 0) -> ProgramTable:
    return ProgramTable(np.array([0, len(lines)]), np.array(lines, np.int16), np.array([target], np.int64))


def deeper(line: list[int], levels: int = 1) -> list[int]:
    return [line[0] + levels, *line[1:]]


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([ELSE, V0], "program 0, line 1: `else` does not follow the body of an `if`"),
        ([V0, WHILE], "program 0, line 2: an `if`, `else` or `while` has no body"),
        ([V0, WHILE, UP], "program 0, line 3: an `if`, `else` or `while` has no body"),
        ([V0, deeper(UP)], "program 0, line 2: it is indented deeper"),
        ([V0, [1001, *UP[1:]]], "program 0, line 2: its indent is not one of the levels 0 to 999"),
        ([V0, [-5, *UP[1:]]], "program 0, line 2: its indent is not one of the levels 0 to 999"),
        ([V0, [1, 1005, 1036, 2]], "program 0, line 2: its operation is none"),
        ([V0, [1, -1, 1036, 2]], "program 0, line 2: its operation is none"),
        ([V0, [1, 32767, 32767, 1]], "program 0, line 2: its operation is none"),
        ([V0, [1, 1001, 1046, 2]], "program 0, line 2: its variable is not v0 to v9"),
        ([V0, [1, 1033, 1034, 1]], "program 0, line 2: its variable is not v0 to v9"),
        ([V0, [1, 1001, 1036, 0]], "program 0, line 2: its operand is not a number from 0 to 999"),
        ([V0, [1, 1001, 1036, 1001]], "program 0, line 2: its operand is not a number from 0 to 999"),
        ([V0, [1, 1033, 1033, 2]], "program 0, line 2: its operand is not"),
        ([V0, BREAK], "program 0, line 2: `break` and `continue` stand inside a `while` loop only"),
        ([V0, WHILE, deeper(BREAK), UP, BREAK], "program 0, line 5: `break` and `continue`"),
        ([V0, [1, 1001, 1037, 2]], "program 0, line 2: its variable is read before any line assigns it"),
        ([[1, 1004, 1037, 4]], "program 0, line 1: the program ends here and never assigns v0"),
        ([V0] * 10_001, "program 0, line 10001: it is one too many"),
    ],
)
def test_what_is_no_program_is_refused_everywhere(lines: list[list[int]], sentence: str) -> None:
    with pytest.raises(InvalidProgramError, match=f"^{re.escape(sentence)}"):
        table_of(*lines).check()
    with pytest.raises(ValueError, match=re.escape(sentence)):
        collate(table_of(*lines))
    if "never assigns v0" in sentence:  # the result may be another variable in other grammars
        assert len(Program(np.array(lines, np.int16))) == 1
        return
    with pytest.raises(ValueError, match=re.escape(sentence)):
        Program(np.array(lines, np.int16))
    assert not spells_program(lines)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (table_of(V0, target=-100), "program 0: its target is -100; it must be a whole number from 0 to 999, or -1"),
        (table_of(V0, target=10**6), "program 0: its target is 1000000"),
        (ProgramTable(np.array([0, 2]), np.array([V0], np.int16), np.zeros(1, np.int64)), "line_offsets do not rise"),
        (ProgramTable(np.array([0, -1, 1]), np.array([V0], np.int16), np.zeros(2, np.int64)), "do not rise"),
        (ProgramTable(np.array([0, 0, 1]), np.array([V0], np.int16), np.zeros(2, np.int64)), "program 0: there is no"),
        (ProgramTable(np.array([0, 1]), np.array([V0], np.int16), np.zeros(2, np.int64)), "there are 2 targets for 1"),
        (ProgramTable(np.array([0, 1]), np.array([V0]), np.zeros(1, np.int64)), "it must be int16 of 2"),  # type: ignore[arg-type]
        (ProgramTable(np.array([0, 1]), np.array([V0[:3]], np.int16), np.zeros(1, np.int64)), "3 tokens a line"),
    ],
)
def test_tables_that_do_not_fit_together(table: ProgramTable, sentence: str) -> None:
    with pytest.raises(InvalidProgramError, match=re.escape(sentence)):
        collate(table)


@pytest.mark.parametrize(
    "use",
    [
        targets,
        lambda table: final_values(table, Grammar()),
        lambda table: values_of(table, 1000),
        ceiling,
        program_statements,
        lambda table: run_tables(ValueTables.exact(), table),
        encode_shard,
        lambda table: evaluate(build_model("env-ipa-gnn", hidden=4), table),
        lambda table: evaluate(build_model("ipa-gnn", hidden=4), table),
    ],
)
@pytest.mark.parametrize(
    "lines", [[ELSE] * 50, [V0, *([30_000 - k, *WHILE[1:]] for k in range(60))], [V0, *[[1, 1001, -30_000, 3]] * 60]]
)
def test_no_table_that_is_none_comes_to_compiled_code(
    use: Callable[[ProgramTable], object], lines: list[list[int]]
) -> None:
    """Without the check these tables write outside of memory, which may end the process."""
    with pytest.raises(InvalidProgramError, match="program 0, line"):
        use(table_of(*lines))


@pytest.mark.parametrize("tokens", [[[1, 1004, 1036, 65536 + 4]], [[1.0, 1004, 1036, 4]], [[1, 1004, 1036]], []])
def test_numbers_that_are_no_token_ids(tokens: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="line_tokens has"):
        Program(tokens)  # type: ignore[arg-type]


def test_the_task_is_part_of_the_check() -> None:
    for line, task, wrong, why in (
        (UP, "full", "partial", "no line is masked"),
        (MASK, "partial", "full", "masked"),
    ):
        table_of(V0, line).check(task=task)  # type: ignore[arg-type]
        with pytest.raises(InvalidProgramError, match=why):
            table_of(V0, line).check(task=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidProgramError, match=r"its target is -1; it must be a whole number from 0 to 999\.$"):
        table_of(V0, target=-1).check(modulus=1000, known=True)


def damaged(tokens: np.ndarray, draw: random.Random) -> np.ndarray:
    """Program tokens with a few of them changed; often still a program."""
    tokens = tokens.copy()
    ids = [0, 1, 2, 3, 999, 1000, 1001, 1004, 1005, 1015, 1019, 1036, 1037, 1045, 1046, 1047, 1048, -1, 32767, -32768]
    alone = [(1015, 1015, 1), (1033, 1033, 1), (1034, 1034, 1), (1035, 1035, 1), (1047, 1047, 1), (1047, 1046, 1)]
    for _ in range(draw.choice((0, 1, 1, 2, 3))):
        i, k = draw.randrange(len(tokens)), draw.randrange(5)
        if k == 0:
            tokens[i, draw.randrange(4)] = draw.choice(ids)
        elif k == 1 and len(tokens) > 1:
            tokens = np.delete(tokens, i, 0)
        elif k == 2:
            tokens[[i, draw.randrange(len(tokens))]] = tokens[[draw.randrange(len(tokens)), i]]
        elif k == 3:
            tokens[i, 0] += draw.choice((-1, 1))
        else:
            tokens[i, 1:] = draw.choice(alone)
    return tokens


def verdict(tokens: np.ndarray) -> bool:
    """Whether token ids are a program; the quick check accepts no other."""
    offsets = np.array((0, len(tokens)))
    fine = bool(find_problem(offsets, tokens, ANY_TASK)[2] == FINE)
    for task in (ANY_TASK, FULL, PARTIAL):
        if is_surely_fine(offsets, packed(tokens), task):
            assert find_problem(offsets, tokens, task)[2] == FINE, tokens
    return fine


def test_accepted_is_what_the_parser_accepts() -> None:
    draw, seen = random.Random(2), [0, 0]
    for task in ("full", "partial"):
        table = Sampler(task, Lengths.uniform((2, 5, 10, 20)), seed=3).table(0, 800)  # type: ignore[arg-type]
        table.check(task=task, modulus=1000, known=True)  # type: ignore[arg-type]
        for program in table:
            tokens = damaged(program.line_tokens, draw)
            fine = verdict(tokens)
            assert fine == spells_program(tokens.tolist()), tokens
            seen[fine] += 1
    assert min(seen) > 300


@pytest.mark.parametrize("task", ["full", "partial"])
def test_the_quick_check_accepts_the_samplers_programs(task: ProgramKind) -> None:
    """All at once, so that blocks, masks and variables of one program would be seen in the next."""
    table = Sampler(task, Lengths.uniform((2, 5, 10, 20, 100)), seed=4).table(0, 5_000)
    number = {"full": FULL, "partial": PARTIAL}
    assert len(table.line_tokens) > 20 * CHUNK
    assert is_surely_fine(table.line_offsets, packed(table.line_tokens), ANY_TASK)
    assert is_surely_fine(table.line_offsets, packed(table.line_tokens), number[task])
    assert not is_surely_fine(
        table.line_offsets, packed(table.line_tokens), number["full" if task == "partial" else "partial"]
    )


def test_one_wrong_line_among_many_is_not_accepted_quickly() -> None:
    table = Sampler("full", Lengths.uniform((5, 20, 60)), seed=6).table(0, 300)
    draw, refused = random.Random(7), 0
    for _ in range(2_000):
        tokens = table.line_tokens.copy()
        tokens[draw.randrange(len(tokens)), draw.randrange(4)] = draw.choice((0, 1, 2, 1015, 1019, 1035, 1037, 1047))
        if find_problem(table.line_offsets, tokens, FULL)[2] != FINE:
            refused += 1
            assert not is_surely_fine(table.line_offsets, packed(tokens), FULL)
    assert refused > 1_000


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_program_is_accepted(sources: st.SearchStrategy[str], data: st.DataObject) -> None:
    program = parse(data.draw(sources))
    assert spells_program(program.line_tokens.tolist())


@settings(max_examples=300, deadline=None)
@given(
    lines=st.lists(st.tuples(*[st.integers(-32768, 32767) | st.sampled_from([1, 2, 1004, 1019, 1036])] * 4), min_size=1)
)
def test_any_tokens_are_refused_or_run(lines: list[tuple[int, ...]]) -> None:
    tokens = np.array(lines, np.int16)
    fine = verdict(tokens)
    assert fine == spells_program(tokens.tolist())


@pytest.mark.parametrize("grammar", [Grammar(), Grammar(block_limit=20), Grammar(modulus=7, condition_modulus=7)])
def test_targets_of_the_sampler(grammar: Grammar) -> None:
    task: ProgramKind = "full"
    for lengths in (Lengths.training(10), Lengths.uniform((20, 60))):
        table = Sampler(task, lengths, grammar, seed=5).table(0, 200)
        np.testing.assert_array_equal(targets(table, grammar), table.target)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_targets_of_any_program(sources: st.SearchStrategy[str], data: st.DataObject) -> None:
    program = parse(data.draw(sources))
    grammar = data.draw(st.sampled_from([Grammar(), Grammar(block_limit=5)]))
    found = int(targets(ProgramTable.from_programs([program]), grammar)[0])
    try:
        assert found == target(program, grammar)
    except ExecutionError:
        assert found == UNDECIDED or grammar.block_limit
