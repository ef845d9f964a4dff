"""Exact execution, against Python itself and against numbers worked out by hand."""

import pickle
import time
from itertools import islice
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipagnn.languages.arithmetic import (
    EndlessLoopError,
    ExecutionError,
    Lengths,
    MaskedProgramError,
    Sampler,
    Step,
    StepLimitError,
    execute,
    format_program,
    parse,
    trace,
    trace_length,
    value,
)


class OutOfFuel(Exception):
    pass


def by_python(source: str, modulus: int = 1000, fuel: int | None = None) -> int | None:
    """What Python makes of our own source; None if its loops take more than `fuel` rounds in all."""
    if fuel is not None:
        guarded = []
        for line in source.split("\n"):
            guarded.append(line)
            if line.lstrip().startswith("while"):
                guarded.append(" " * (len(line) - len(line.lstrip()) + 2) + "burn()")
        source = "\n".join(guarded)

    def burn() -> None:
        nonlocal fuel
        assert fuel is not None
        fuel -= 1
        if fuel < 0:
            raise OutOfFuel

    names: dict[str, Any] = {"burn": burn}
    try:
        exec(compile(source, "program", "exec"), names)
    except OutOfFuel:
        return None
    return int(names["v0"] % modulus)


def test_a_trace_by_hand() -> None:
    source = "v0 = 998\nv1 = 2\nwhile v1 > 0:\n  v1 -= 1\n  v0 += 3\n  if v0 % 10 < 4:\n    continue\n  pass\nv0 *= 2"
    program = parse(source)
    assert list(trace(program)) == [
        Step(0, 998, None),
        Step(1, 998, None),
        Step(2, 998, True),
        Step(3, 998, None),
        Step(4, 1, None),
        Step(5, 1, True),
        Step(2, 1, True),
        Step(3, 1, None),
        Step(4, 4, None),
        Step(5, 4, False),
        Step(2, 4, False),
        Step(8, 8, None),
    ]
    assert execute(program) == (8, 12)
    assert list(trace(program, limit=5)) == list(trace(program))[:5]


# Four rounds, each of which counts v2 up from 0 to 6 in an inner loop (or in one inside it) and then adds it to v0.
# From the second round on the inner loops' results are known.
AGAIN = """v0 = 0
v1 = 4
while v1 > 0:
  v1 -= 1
  v2 = 0
  v3 = 3
  while v3 > 0:
    v3 -= 1
    v2 += 2
  while v2 > 0:
    v2 -= 1
    v0 += 1"""
AGAIN_DEEPER = AGAIN.replace("    v2 += 2", "    v4 = 2\n    while v4 > 0:\n      v4 -= 1\n      v2 += 1")

# Five rounds, which differ in v2 alone, and only the inner loops see it.
INSIDE = """v0 = 0
v1 = 1
v2 = 5
while v1 > 0:
  while v2 > 0:
    v2 -= 1
    v0 += 1
    break
  while v2 < 1:
    v1 = 0
    break"""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (INSIDE, 5),
        (AGAIN, 24),
        (AGAIN_DEEPER, 24),
        ("v0 = 3\nv0 -= 5", 998),
        ("v0 = 3\nv0 -= 5\nif v0 > 0:\n  v0 = 7", 998),
        ("v0 = 3\nv0 -= 5\nif v0 % 10 > 7:\n  v0 = 7", 7),
        ("v0 = 999\nv0 *= 999\nif v0 > 999:\n  v0 -= 1", 0),
        ("v0 = 1\nwhile v0 < 500:\n  v0 *= 2", 512),
        ("v0 = 0\nv1 = 5\nwhile v1 > 0:\n  v1 -= 1\n  while v0 > 2:\n    break\n    v0 = 9\n  v0 += 1", 5),
    ],
)
def test_values_by_hand(source: str, expected: int) -> None:
    program = parse(source)
    assert value(program) == expected == by_python(source)
    assert trace_length(program) == len(list(trace(program)))


def test_a_variable_that_no_executed_line_assigned_is_0() -> None:
    assert value(parse("v0 = 1\nif v0 > 1:\n  v2 = 1\nv2 += 4\nwhile v2 > 0:\n  v0 *= 3\n  v2 -= 1")) == 81


def test_twenty_thousand_sampled_programs_agree_with_python() -> None:
    table = Sampler(seed=21).table(0, 20_000)
    for program, target in zip(table, table.target.tolist(), strict=True):
        assert value(program) == target == by_python(format_program(program))


@pytest.mark.parametrize("length", [30, 100, 300])
def test_long_sampled_programs_agree_with_the_compiled_execution(length: int) -> None:
    table = Sampler("full", Lengths.exact(length), seed=22).table(0, 300)
    assert [value(program) for program in table] == table.target.tolist()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), modulus=st.sampled_from([1000, 10, 7, 1]))
def test_any_program_agrees_with_python(sources: st.SearchStrategy[str], data: st.DataObject, modulus: int) -> None:
    source = data.draw(sources)
    program = parse(source)
    expected = by_python(source, modulus, fuel=1_000)
    if expected is None:  # a loop that never ends, or one that ends much later
        try:
            execution = execute(program, modulus, max_steps=20_000)
        except EndlessLoopError:
            assert len(list(trace(program, limit=30_000))) == 30_000
            return
        except StepLimitError:
            return
        expected = by_python(source, modulus, fuel=execution.trace_length) if execution.trace_length < 30_000 else None
        assert expected in (None, execution.value)
    else:
        execution = execute(program, modulus)
        assert execution.value == expected
        walked = list(trace(program, limit=None, modulus=modulus))
        assert len(walked) == execution.trace_length == trace_length(program)
        assert walked[-1].v0 == expected


def nest(depth: int) -> str:
    """Loops of nine rounds inside one another, counting with v1 to v9 in turn."""
    lines = ["v0 = 3"]
    for d in range(depth):
        lines += ["  " * d + line for line in (f"v{d + 1} = 9", f"while v{d + 1} > 0:", f"  v{d + 1} -= 1")]
    return "\n".join([*lines, "  " * depth + "v0 += 7"])


def test_a_trace_of_a_billion_steps_is_counted_exactly() -> None:
    length = 1
    for _ in range(9):
        length = 1 + 10 + 9 * (1 + length)  # the count, ten looks at the condition, nine rounds
    assert execute(parse(nest(9))) == ((3 + 7 * 9**9) % 1000, 1 + length)
    small = parse(nest(3))
    assert trace_length(small) == len(list(trace(small))) == 1 + 11 + 9 * (1 + 11 + 9 * (1 + 11 + 9 * 2))


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("v0 = 1\nv1 = 1\nwhile v1 > 0:\n  pass", 3),
        ("v0 = 1\nv1 = 1\nwhile v1 > 0:\n  v0 += 1", 3),
        ("v0 = 1\nv1 = 1\nwhile v1 > 0:\n  v2 = 1\n  v2 += 1", 3),
        ("v0 = 1\nv1 = 1\nv2 = 0\nwhile v1 > 0:\n  v2 += 1", 4),  # v2 never repeats, but nobody looks at it
        ("v0 = 1\nv1 = 5\nwhile v1 > 0:\n  v1 -= 1\n  if v1 < 3:\n    v1 += 1", 3),
        ("v0 = 1\nwhile v0 % 10 < 5:\n  v1 = 3\n  while v1 > 0:\n    v1 -= 1\n  v0 *= 1", 2),
        ("v0 = 1\nv1 = 3\nwhile v1 > 0:\n  v1 -= 1\n  while v0 % 10 > 0:\n    continue\n    v0 = 0", 5),
        ("v0 = 1\nwhile v0 >= 0:\n  while v0 < 5:\n    v0 += 1\n    break", 2),
    ],
)
def test_endless_loops_are_told(source: str, line: int) -> None:
    program = parse(source)
    with pytest.raises(EndlessLoopError, match=r"never ends: its state repeats\.$") as caught:
        value(program)
    assert caught.value.line == line
    assert source.split("\n")[line - 1].strip() in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    with pytest.raises(EndlessLoopError):
        trace_length(program)
    assert len(list(trace(program, limit=100))) == 100
    assert len(list(islice(trace(program, limit=None), 20_000))) == 20_000


MANY_LOOPS = "v0 = 1\nv1 = 1\nwhile v1 > 0:\n  v1 += 1\n" + "  while v0 % 10 > 5:\n    pass\n" * 4_000


@pytest.mark.parametrize(
    "source",
    [
        "v0 = 1\nv1 = 1\nwhile v1 > 0:\n  v1 += 1",
        "v0 = 1\nv1 = 1\nwhile v1 > 0:\n  v1 *= 999",
        "v0 = 2\nwhile v0 > 0:\n  v0 *= 2",
        "v0 = 1\nv1 = 1\nwhile v1 > 0:\n  v1 *= 999\n  v2 = 9\n  while v2 > 0:\n    v2 -= 1\n    v1 *= 999",
        "v0 = 1\n" + "\n".join(" " * d + "while v0 >= 0:" for d in range(500)) + "\n" + " " * 500 + "v0 += 1",
        MANY_LOOPS,
    ],
    ids=range(6),
)
def test_what_cannot_be_told_endless_is_given_up(source: str) -> None:
    start = time.thread_time()
    with pytest.raises(StepLimitError, match="given up after 1,000,000 steps"):
        value(parse(source))
    assert time.thread_time() - start < 10
    with pytest.raises(StepLimitError, match="given up after 50 steps"):
        value(parse(source), max_steps=50)


def test_the_limit_is_the_number_of_steps() -> None:
    program = parse("v0 = 1\nv0 += 1\nv0 += 1")
    assert value(program, max_steps=3) == 3
    with pytest.raises(StepLimitError, match="line 3: the program was given up after 2 steps, here at `v0 \\+= 1`"):
        value(program, max_steps=2)


def test_masked_programs_have_no_value() -> None:
    program = parse("v0 = 1\nif v0 > 3:\n  [MASK]")
    for run in (value, execute, trace_length, trace):
        with pytest.raises(
            MaskedProgramError, match="line 3: the line is masked, so the program has no value"
        ) as caught:
            run(program)  # type: ignore[operator]
        assert isinstance(caught.value, ExecutionError)
        assert isinstance(caught.value, ValueError)


def test_other_moduli() -> None:
    source = "v0 = 5\nif v0 % 3 > 1:\n  v0 *= 100\nv0 += 9"
    program = parse(source, condition_modulus=3)
    assert value(program, modulus=7, condition_modulus=3) == 509 % 7
    with pytest.raises(ValueError, match="both must be at least 1"):
        value(program, modulus=0)
