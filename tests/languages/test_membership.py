"""Which programs a grammar can draw, and what the messages say of the others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipagnn.languages.arithmetic import PAPER, Grammar, Lengths, Sampler, parse
from ipagnn.languages.arithmetic.membership import outside_grammar
from ipagnn.languages.arithmetic.program import ProgramKind

SMALL = Grammar(
    modulus=100, initial_values=(1, 5), operands=(2, 3), condition_operands=(4, 6), loop_counts=(2, 3), counters=2,
    arithmetic_operations=("+=",), comparisons=("<", ">="),
)  # fmt: skip


@pytest.mark.parametrize("task", ["full", "partial"])
@pytest.mark.parametrize("grammar", [PAPER, SMALL])
@pytest.mark.parametrize("length", [2, 3, 6, 10, 30])
def test_a_grammar_can_draw_what_its_sampler_draws(task: ProgramKind, grammar: Grammar, length: int) -> None:
    for program in Sampler(task, Lengths.exact(length), grammar, seed=4).table(0, 300):
        assert outside_grammar(program, grammar) == []


def test_another_grammar_cannot_draw_them_all() -> None:
    drawn = list(Sampler("full", Lengths.exact(10), PAPER, seed=4).table(0, 300))
    assert sum(bool(outside_grammar(program, SMALL)) for program in drawn) > 290


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("v0 = 1\nv0 += 999", ["line 2: operand 999; trained on 1 to 9"]),
        ("v0 = 1\nv0 *= 0", ["line 2: operand 0; trained on 1 to 9"]),
        ("v0 = 1", ["the program has one line; trained on 2 or more"]),
        ("v3 = 1\nv0 = 2", [
            "line 1: `v3 = 1`; trained on a first line `v0 = N`",
            "line 2: `v0 = 2`; trained on v0 set in the first line only",
        ]),
        ("v0 = 1\nif v0 > 50:\n  v0 += 1", ["line 2: `if v0 > 50`; trained on conditions of v0 % 10"]),
        ("v0 = 1\nif v0 % 10 > 12:\n  pass",
         ["line 2: `if v0 % 10 > 12`; trained on comparisons with 0 to 9"]),
        ("v0 = 1\nv1 = 20\nwhile v1 > 0:\n  v1 -= 1\n  v0 += 1",
         ["line 3: a loop of 20 rounds; trained on 2 to 9"]),
        ("v0 = 1\nv1 = 3\nwhile v1 > 0:\n  v1 -= 1",
         ["line 4: a loop without a statement after its decrement; trained on loops with one or more"]),
        ("v0 = 1\nv1 = 3\nwhile v1 > 0:\n  v0 += 1\n  v1 -= 1", [
            "line 4: `v0 += 1` first in a loop; trained on loops that begin with `v1 -= 1`",
            "line 5: `v1 -= 1`; trained on arithmetic with v0 only",
        ]),
        ("v0 = 9\nwhile v0 > 3:\n  v0 -= 1",
         ["line 2: `while v0 > 3`; trained on loops `vK = N`, `while vK > 0`, with K from 1 on"]),
        ("v0 = 1\nv1 = 5\nv0 += 1", ["line 2: `v1 = 5` begins no loop; trained on v0 and loop counters only"]),
        ("v0 = 1\nv1 = 2\nwhile v1 > 0:\n  v1 -= 1\n  break\n  v0 += 1",
         ["line 6: `v0 += 1` after `break`; trained on `break` as the last line of a block"]),
        ("v0 = 1\nv1 = 2\nwhile v1 > 0:\n  v1 -= 1\n  v1 = 3\n  while v1 > 0:\n    v1 -= 1\n    v0 += 1",
         ["line 6: v1 counts an outer loop already; trained on a variable for each"]),
    ],
)  # fmt: skip
def test_what_lies_outside_is_named(source: str, expected: list[str]) -> None:
    assert outside_grammar(parse(source)) == expected


def test_nesting_and_length_are_no_limits() -> None:
    lines = ["v0 = 1"]
    for k in range(1, 10):
        pad = "  " * (k - 1)
        lines += [f"{pad}v{k} = 2", f"{pad}while v{k} > 0:", f"{pad}  v{k} -= 1"]
    lines += ["  " * 9 + "v0 += 1"] * 200
    assert outside_grammar(parse("\n".join(lines))) == []


@given(data=st.data())
def test_any_program_is_told_of(data: st.DataObject, sources: st.SearchStrategy[str]) -> None:
    program = parse(data.draw(sources))
    for found in outside_grammar(program):
        assert "; trained on " in found
