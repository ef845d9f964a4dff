"""Text to programs and back, and what the parser says to everything else."""

import pickle
import random
import re
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipagnn.languages.arithmetic import (
    ExecutionError,
    Lengths,
    Line,
    Program,
    ProgramError,
    Sampler,
    control_flow_graph,
    execute,
    format_program,
    parse,
    steps,
)
from ipagnn.languages.arithmetic.text import MAX_CHARACTERS, MAX_LINES

PLAIN = "v0 = 12\nv1 = 3\nwhile v1 > 0:\n  v1 -= 1\n  if v0 % 10 <= 4:\n    [MASK]\n  else:\n    v0 *= 2"


def test_lines_are_spelled_out() -> None:
    assert parse(PLAIN).lines == (
        Line(0, "=", 0, 12),
        Line(0, "=", 1, 3),
        Line(0, "while >", 1, 0),
        Line(1, "-=", 1, 1),
        Line(1, "if <= %", 0, 4),
        Line(2, "mask", None, None),
        Line(1, "else", None, None),
        Line(2, "*=", 0, 2),
    )


@pytest.mark.parametrize(
    "source",
    [
        PLAIN + "\n",
        "\ufeff" + PLAIN,
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("\n", "\r"),
        PLAIN.replace("[MASK]", "_"),
        PLAIN.replace("[MASK]", "_ = 0"),
        PLAIN.replace("[MASK]", "_=0"),
        PLAIN.replace("  ", "\t"),
        PLAIN.replace("  ", "    "),
        PLAIN.replace("  ", " "),
        PLAIN.replace("\n", "  \t\n\n   \n# cömment\n\t\t# another\n"),
        PLAIN.replace("\n", "#\x00: (\n"),
        re.sub(r"(?<=\S) (?=[-+*%<>=0-9])", "", PLAIN),
        re.sub(r"(?<=\S) (?=\S)", "   ", PLAIN).replace(":", " : ").replace("[   MASK", "[MASK"),
        "\n\n" + "\n".join("    " + line for line in PLAIN.split("\n")),
        PLAIN.replace("    [MASK]", "         [MASK]").replace("    v0 *=", "   v0 *="),
    ],
)
def test_what_people_write_means_the_same(source: str) -> None:
    assert parse(source) == parse(PLAIN)
    assert format_program(parse(source)) == PLAIN


def test_the_mask_can_be_written_as_the_authors_do() -> None:
    assert format_program(parse("v0 = 1\n_"), mask="_ = 0") == "v0 = 1\n_ = 0"


def test_several_lines_may_be_masked() -> None:
    program = parse("v0 = 1\n_\nif v0 % 10 > 3:\n  _ = 0\n[MASK]")
    assert program.masked_lines == (1, 3, 4)
    assert format_program(program) == "v0 = 1\n[MASK]\nif v0 % 10 > 3:\n  [MASK]\n[MASK]"
    assert control_flow_graph(program).labels == ["v0 = 1", "[MASK]", "if v0 % 10 > 3:", "[MASK]", "[MASK]", "exit"]
    assert steps(program) == 6


def test_another_condition_modulus() -> None:
    source = "v0 = 1\nif v0 % 7 > 3:\n  pass"
    assert format_program(parse(source, condition_modulus=7), condition_modulus=7) == source
    with pytest.raises(ProgramError, match="found `10`; accepted: `7` after `%`"):
        parse(source.replace("7", "10"), condition_modulus=7)


IF = "v0 = 1\nif v0 % 10 > 3:"
BAD = [
    # text, line, column, found, part of what is accepted
    ("", 1, 1, "an empty program", "at least one line"),
    ("\n \n# nothing\n", 1, 1, "an empty program", "at least one line"),
    ("x = 1", 1, 1, "`x`", "a statement"),
    ("V0 = 1", 1, 1, "`V0`", "a statement"),
    ("v10 = 1", 1, 1, "`v10`", "a variable v0 to v9"),
    ("print(v0)", 1, 1, "`print`", "a statement"),
    ("import os", 1, 1, "`import`", "a statement"),
    ("v0 = 1\nfor i in range(3):\n  pass", 2, 1, "`for`", "while vK > 0"),
    ("v0", 1, 3, "the end of the line", "one of = += -= *="),
    ("v0 =", 1, 5, "the end of the line", "a whole number from 0 to 999"),
    ("v0 = v1", 1, 6, "`v1`", "a whole number from 0 to 999"),
    ("v0 = -5", 1, 6, "`-5`", "a whole number from 0 to 999"),
    ("v0 =-5", 1, 5, "`-5`", "a whole number from 0 to 999"),
    ("v0 = - 5", 1, 6, "`-5`", "a whole number from 0 to 999"),
    ("v0 = -", 1, 6, "`-`", "a whole number from 0 to 999"),
    ("v0 = 1000", 1, 6, "`1000`", "a whole number from 0 to 999"),
    ("v0 = " + "9" * 10_000, 1, 6, "`" + "9" * 40 + "…`", "a whole number from 0 to 999"),
    ("v0 = 007", 1, 6, "`007`", "a whole number from 0 to 999"),
    ("v0 = 0x1F", 1, 6, "`0x1F`", "a whole number from 0 to 999"),
    ("v0 = 3.5", 1, 6, "`3.5`", "a whole number from 0 to 999"),
    ("v0 = 1 + 2", 1, 8, "`+`", "the end of the line"),
    ("v0 = 1;", 1, 7, "`;`", "the end of the line"),
    ("v0 = 1\nv0 /= 2", 2, 4, "`/=`", "one of = += -= *="),
    ("v0 = 1\nv0 **= 2", 2, 4, "`**=`", "one of = += -= *="),
    ("v0 = 1\nv0 %= 2", 2, 4, "`%=`", "one of = += -= *="),
    ("v0 == 1", 1, 4, "`==`", "one of = += -= *="),
    ("v0 = 1\nv0 + = 2", 2, 4, "`+`", "one of = += -= *="),
    ("v0 = 1\nv0++", 2, 3, "`+`", "one of = += -= *="),
    (IF + "\n  pass\nelif v0 % 10 > 2:\n  pass", 4, 1, "`elif`", "`else:` with an `if` in its body"),
    (IF + "\n  pass\nelse if v0 % 10 > 2:\n  pass", 4, 6, "`if`", "`:`"),
    ("v0 = 1\nif v0 % 10 == 3:\n  pass", 2, 12, "`==`", "one of > < >= <="),
    ("v0 = 1\nif v0 = 3:\n  pass", 2, 7, "`=`", "one of > < >= <=, or `% 10`"),
    ("v0 = 1\nif v0 % 7 > 3:\n  pass", 2, 9, "`7`", "`10` after `%`"),
    ("v0 = 1\nif v0 % 10 > v0:\n  pass", 2, 14, "`v0`", "a whole number"),
    ("v0 = 1\nif (v0 > 3):\n  pass", 2, 4, "`(`", "a variable v0 to v9"),
    ("v0 = 1\nif not v0 > 3:\n  pass", 2, 4, "`not`", "a variable v0 to v9"),
    ("v0 = 1\nwhile True:\n  pass", 2, 7, "`True`", "a variable v0 to v9"),
    ("v0 = 1\nif v0 > 3 and v0 < 5:\n  pass", 2, 11, "`and`", "`:`"),
    ("v0 = 1\nif v0 > 3\n  pass", 2, 10, "the end of the line", "`:`"),
    ("v0 = 1\nif v0 > 3: pass", 2, 12, "`pass`", "the body on the next lines"),
    ("v0 = 1\nif v0 > 3::\n  pass", 2, 11, "`:`", "the body on the next lines"),
    ("v0 = 1\nif", 2, 3, "the end of the line", "a variable v0 to v9"),
    ("v0 = 1\npass pass", 2, 6, "`pass`", "the end of the line"),
    ("v0 = 1\npass:", 2, 5, "`:`", "the end of the line"),
    (IF + "\n  pass\nelse\n  pass", 4, 5, "the end of the line", "`:`"),
    (IF, 2, 16, "the end of the program", "an indented body for this `if`"),
    (IF + "  # later\n\n", 2, 16, "the end of the program", "an indented body for this `if`"),
    (IF + "\nv0 += 1", 3, 1, "`v0` with no indentation", "an indented body for the `if` in line 2"),
    (IF + "\n  pass\nelse:\npass", 5, 1, "`pass` with no indentation", "an indented body for the `else` in line 4"),
    ("v0 = 1\n  v0 += 1", 2, 3, "`v0` with 2 spaces", "no indentation, as above"),
    (IF + "\n  pass\n    pass", 4, 5, "`pass` with 4 spaces", "2 spaces, as above"),
    (IF + "\n    pass\n  pass", 4, 3, "`pass` with 2 spaces", "the indentation of an open block"),
    ("  v0 = 1\nv0 += 1", 2, 1, "`v0` with no indentation", "the indentation of an open block, such as 2 spaces"),
    (IF + "\n\tpass\n        pass", 4, 9, "`pass` with 8 spaces", "the line above, which has 1 tab"),
    (IF + "\n \tpass\n\t pass", 4, 3, "`pass` with 1 tab and 1 space", "the line above, which has 1 tab and 1 space"),
    ("else:\n  pass", 1, 1, "`else`", "only after the body of an `if`"),
    ("v0 = 1\nwhile v0 > 3:\n  pass\nelse:\n  pass", 4, 1, "`else`", "only after the body of an `if`"),
    (IF + "\n  pass\nelse:\n  pass\nelse:\n  pass", 6, 1, "`else`", "only after the body of an `if`"),
    (IF + "\n  pass\nv0 = 2\nelse:\n  pass", 5, 1, "`else`", "only after the body of an `if`"),
    (IF + "\n  pass\n  else:\n    pass", 4, 3, "`else`", "only after the body of an `if`"),
    ("v0 = 1\nbreak", 2, 1, "`break`", "inside a `while` loop only"),
    (IF + "\n  continue", 3, 3, "`continue`", "inside a `while` loop only"),
    ("v0 = 1\nwhile v0 > 0:\n  pass\nbreak", 4, 1, "`break`", "inside a `while` loop only"),
    ("v0 = 1\n_ = 1", 2, 5, "`1`", "`0`, for a masked line"),
    ("v0 = 1\n_\n_ = 1", 3, 5, "`1`", "`0`, for a masked line"),
    ("v0 = 1\n_ += 1", 2, 3, "`+=`", "the end of the line"),
    ("v0 = 1\n[mask]", 2, 1, "`[`", "a statement"),
    ("v1 = 1", 1, 1, "the end of a program that never assigns v0", "a line `v0 = N`"),
    ("[MASK]", 1, 1, "the end of a program that never assigns v0", "a line `v0 = N`"),
    ("v0 += 1", 1, 1, "`v0`, which is read before any line assigns it", "a line `v0 = N` above"),
    ("v0 = 1\nwhile v3 > 0:\n  v3 -= 1", 2, 7, "`v3`, which is read before any line assigns it", "`v3 = N` above"),
    ("v0 = 1\x00", 1, 7, "the character U+0000", "plain ASCII"),
    ("v0 = 1\n\x0cv0 = 2", 2, 1, "the character U+000C", "plain ASCII"),
    ("v0 = 1\n\u00a0 v0 = 2", 2, 1, "the character U+00A0", "plain ASCII"),
    ("v0 \uff1d 1", 1, 4, "the character U+FF1D `\uff1d`", "plain ASCII"),
    ("\u03bd0 = 1", 1, 1, "the character U+03BD `\u03bd`", "plain ASCII"),
    ("v0 = \u0663", 1, 6, "the character U+0663 `\u0663`", "plain ASCII"),
    ("v0 \u2212= 1", 1, 4, "the character U+2212 `\u2212`", "plain ASCII"),
    ("v0 = 1\ud800", 1, 7, "the character U+D800", "plain ASCII"),
    ("v0 = 1\u2028v0 = 2", 1, 7, "the character U+2028", "plain ASCII"),
]


@pytest.mark.parametrize(("source", "line", "column", "found", "accepted"), BAD)
def test_errors_name_the_place(source: str, line: int, column: int, found: str, accepted: str) -> None:
    with pytest.raises(ProgramError) as caught:
        parse(source)
    error = caught.value
    assert (error.line, error.column, error.found) == (line, column, found)
    assert accepted in error.accepted
    assert str(error) == f"line {line}, column {column}: found {found}; accepted: {error.accepted}."
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_ten_thousand_lines() -> None:
    source = "v0 = 1\n" + "v0 += 1\n" * (MAX_LINES - 1)
    assert MAX_LINES == 10_000
    program = parse(source)
    assert len(program) == MAX_LINES
    assert format_program(program) + "\n" == source
    assert len(control_flow_graph(program)) == MAX_LINES + 1
    assert steps(program) == MAX_LINES + 1
    assert execute(program) == (0, MAX_LINES)
    with pytest.raises(ProgramError, match="line 10001, column 1: found line 10,001; accepted: a program of at most"):
        parse(source + "v0 += 1")


@pytest.mark.parametrize("depth", [200, 999])
def test_deep_nesting(depth: int) -> None:
    headers = ["if v0 % 10 > 0:", "while v0 % 10 > 0:"]
    source = "v0 = 11\n" + "\n".join("  " * d + headers[d % 2] for d in range(depth)) + "\n" + "  " * depth + "v0 -= 1"
    program = parse(source)
    assert format_program(program) == source
    assert execute(program).value == 10


def test_deeper_than_the_vocabulary() -> None:
    source = "v0 = 1\n" + "\n".join(" " * d + "if v0 > 0:" for d in range(1001))
    with pytest.raises(
        ProgramError, match="found `if` with 1000 spaces; accepted: blocks nested at most 999"
    ) as caught:
        parse(source)
    assert (caught.value.line, caught.value.column) == (1002, 1001)


@pytest.mark.parametrize(
    "source",
    [
        "\x00" * 10_000_000,
        "(" * MAX_CHARACTERS,
        " " * MAX_CHARACTERS,
        "\n" * MAX_CHARACTERS,
        "v0 = 1 " + "pass " * (MAX_CHARACTERS // 5 - 2),
        "v0 = 1\n" + " " * (MAX_CHARACTERS // 2) + "v0 = 2",
        "v" * MAX_CHARACTERS,
        "9" * MAX_CHARACTERS,
        "#" * MAX_CHARACTERS,
        "v0 = 1\r" * (MAX_CHARACTERS // 7),
    ],
    ids=range(10),
)
def test_megabytes_of_garbage_get_an_answer_soon(source: str) -> None:
    start = time.thread_time()
    with pytest.raises(ProgramError) as caught:
        parse(source)
    assert time.thread_time() - start < 5
    assert len(str(caught.value)) < 400


@given(data=st.data())
def test_text_to_program_to_text(sources: st.SearchStrategy[str], data: st.DataObject) -> None:
    source = data.draw(sources)
    program = parse(source)
    assert format_program(program) == source
    assert parse(format_program(program)) == program


@pytest.mark.parametrize("task", ["full", "partial"])
def test_tokens_to_program_to_text_and_back(task: str) -> None:
    for length in (2, 10, 60):
        sampler = Sampler(task, Lengths.exact(length), seed=7)  # type: ignore[arg-type]
        for program in sampler.table(0, 300):
            assert Program(program.line_tokens) == program
            written = parse(format_program(program))
            np.testing.assert_array_equal(written.line_tokens, program.line_tokens)
            assert parse(format_program(program, mask="_ = 0")) == program


CHARACTERS = "v0123456789=+-*%<>:_[]()#.,; \t\n\r\0é" + "ifwhileelsepassbreakcontinueMASK"
WORDS = [
    *("if", "while", "else", "else:", "pass", "break", "continue", "elif", "v0", "v1", "v9", "v10", "_", "[MASK]", ":"),
    *("=", "+=", "-=", "*=", "/=", "==", ">", "<", ">=", "<=", "%", "10", "0", "9", "999", "1000", "-1"),
    *("\n", "\t", "  "),
]


def mutate(source: str, generator: random.Random) -> str:
    """One small change to the characters, the words or the lines."""
    unit = generator.choice(["character", "word", "line"])
    pattern = {"character": r"(?s).", "word": r"\s+|\w+|[^\w\s]+", "line": r"[^\n]*\n?"}[unit]
    parts = re.findall(pattern, source) or [""]
    i, j = generator.randrange(len(parts)), generator.randrange(len(parts))
    change = generator.choice(["delete", "duplicate", "swap", "insert", "replace"])
    new = generator.choice({"character": CHARACTERS, "word": WORDS, "line": parts}[unit])
    if change == "delete":
        del parts[i]
    elif change == "duplicate":
        parts.insert(j, parts[i])
    elif change == "swap":
        parts[i], parts[j] = parts[j], parts[i]
    elif change == "insert":
        parts.insert(i, new)
    else:
        parts[i] = new
    return "".join(parts)


def judge(source: str) -> str:
    """Whether a text has a value, or what kind of sentence says why not."""
    try:
        program = parse(source)
    except ProgramError as error:
        refused = error
    else:
        assert parse(format_program(program)) == program
        assert steps(program) > len(program)
        try:
            assert 0 <= execute(program, max_steps=3_000).value < 1000
        except ExecutionError as error:
            stopped = error
        else:
            return "value"
        assert 1 <= stopped.line <= len(program)
        assert str(stopped).endswith(".")
        return "stopped"
    rows = re.split("\r\n|\r|\n", source)
    assert 1 <= refused.line <= len(rows)
    assert 1 <= refused.column <= len(rows[refused.line - 1]) + 1
    assert str(refused).endswith(".")
    return "refused"


def fuzz(count: int, seed: int) -> None:
    generator = random.Random(seed)
    programs = [*Sampler("full", seed=seed).table(0, 500), *Sampler("partial", seed=seed).table(0, 500)]
    originals = list(map(format_program, programs))
    verdicts = Counter[str]()
    for _ in range(count):
        source = generator.choice(originals)
        for _ in range(generator.choice([1, 1, 1, 2, 4])):
            source = mutate(source, generator)
        verdicts[judge(source)] += 1
    assert min(verdicts[verdict] for verdict in ("value", "refused", "stopped")) > count / 20


def test_mutated_programs_give_values_or_sentences() -> None:
    fuzz(3_000, seed=11)


@pytest.mark.slow
def test_a_hundred_thousand_mutated_programs_give_values_or_sentences() -> None:
    fuzz(100_000, seed=12)
