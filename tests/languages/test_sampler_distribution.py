"""The sampler's frequencies against those of its plain twin, and cases worked out by hand."""

import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import cache
from random import Random

import numpy as np
import pytest

from ipagnn.languages.arithmetic import format_program, parse
from ipagnn.languages.arithmetic._compiled.graph import paper_steps
from ipagnn.languages.arithmetic.grammar import PAPER, Grammar, Lengths
from ipagnn.languages.arithmetic.program import Line, Program
from ipagnn.languages.arithmetic.reference import loops_around
from ipagnn.languages.arithmetic.reference_sampler import START, State, draw_program, refinements
from ipagnn.languages.arithmetic.sampler import TRAINING, Sampler

Shape = tuple[tuple[str, int], ...]  # the kind and indentation of each line


def shape_probabilities(length: int, grammar: Grammar = PAPER) -> dict[Shape, Fraction]:
    """The probability of every shape of `length` lines. The number of shapes grows exponentially with `length`."""

    @cache
    def outcomes(state: State) -> dict[Shape, Fraction]:
        if not any(element.is_hole for element in state):
            done = len(state) == length - 1
            return {tuple((element.kind, element.indent) for element in state): Fraction(1)} if done else {}
        total: dict[Shape, Fraction] = {}
        for chance, new in refinements(state, length - 1, grammar):
            for shape, inner in outcomes(new).items():
                total[shape] = total.get(shape, Fraction(0)) + chance * inner
        return total

    reached = outcomes(START)
    accepted = sum(reached.values())
    return {shape: chance / accepted for shape, chance in reached.items()}


def category(line: Line) -> str:
    if line.variable is None:
        return line.operation
    if line.variable == 0:
        return "if" if line.operation.startswith("if") else "arithmetic"
    return {"=": "counter", "-=": "decrement", "while >": "while"}[line.operation]


def shape_of(program: Program) -> Shape:
    return tuple((category(line), line.indent) for line in program.lines[1:])


def assert_frequencies(counts: Counter[object], chances: dict[object, Fraction]) -> None:
    """Chi-square: no outcome outside `chances`, and a sum that lies within 5 standard deviations."""
    assert set(counts) <= set(chances)
    total = counts.total()
    expected = {key: float(total * chance) for key, chance in chances.items()}
    rare = [key for key in chances if expected[key] < 5]
    cells = [(counts[key], expected[key]) for key in chances if expected[key] >= 5]
    if rare and sum(expected[key] for key in rare) >= 5:
        cells.append((sum(counts[key] for key in rare), sum(expected[key] for key in rare)))
    freedom = len(cells) - 1
    assert freedom >= 1
    assert sum((seen - due) ** 2 / due for seen, due in cells) < freedom + 5 * math.sqrt(2 * freedom)


def uniform(values: range) -> dict[object, Fraction]:
    return {value: Fraction(1, len(values)) for value in values}


def test_length_two_is_pass_one_time_in_sixteen() -> None:
    assert shape_probabilities(2) == {(("pass", 0),): Fraction(1, 16), (("arithmetic", 0),): Fraction(15, 16)}


def test_length_three_worked_out_by_hand() -> None:
    # The first STMT may be an `if` (5 of 21) as long as a line is to spare, that is, unless the STMTS after it (chosen
    # first 1 time in 101) has become a statement (9 times in 10).
    if_first = Fraction(100, 101) * Fraction(5, 21) + Fraction(1, 101) * Fraction(1, 10) * Fraction(5, 21)
    two = Fraction(100, 101) * Fraction(16, 21) * Fraction(9, 10) + Fraction(1, 101) * Fraction(9, 10)
    shapes = shape_probabilities(3)
    nested = sum(chance for shape, chance in shapes.items() if shape[0][0] == "if")
    assert nested == if_first / (if_first + two)
    assert len(shapes) == 6


@pytest.mark.parametrize(("length", "count"), [(2, 20_000), (3, 50_000), (4, 50_000), (5, 100_000), (6, 100_000)])
def test_shapes_have_the_frequencies_of_the_refinement_process(length: int, count: int) -> None:
    table = Sampler(lengths=Lengths.exact(length), seed=length).table(0, count)
    counts: Counter[object] = Counter()
    skeletons = table.line_tokens.reshape(count, length, 4).copy()
    skeletons[:, :, 3] = 1  # constants do not matter here: one program stands for all that differ in them alone
    for rows, seen in zip(*np.unique(skeletons, axis=0, return_counts=True), strict=True):
        counts[shape_of(Program(rows))] += int(seen)
    assert_frequencies(counts, dict(shape_probabilities(length)))


def test_long_programs_have_the_statistics_of_the_refinement_process() -> None:
    length, count = 16, 1_500

    def statistics(shapes: list[Shape]) -> tuple[np.ndarray, np.ndarray]:
        names = ("pass", "arithmetic", "if", "else", "while", "break", "continue")
        rows = [
            [*(sum(name == n for name, _ in s) for n in names), sum(d for _, d in s), max(d for _, d in s)]
            for s in shapes
        ]
        values = np.array(rows, float)
        return values.mean(0), values.var(0) / len(shapes)

    choose = Random(0)
    slow, slow_error = statistics([shape_of(draw_program(choose, length)) for _ in range(count)])
    fast, fast_error = statistics([shape_of(p) for p in Sampler(lengths=Lengths.exact(length)).table(0, 6_000)])
    assert (np.abs(fast - slow) < 4.5 * np.sqrt(slow_error + fast_error)).all()


def test_an_edited_grammar_has_the_frequencies_of_the_refinement_process() -> None:
    # Without plain blocks nothing fits into a BLOCK outside loops.
    grammar = replace(PAPER, counters=1, block_plain=0, stmt_repeat=40, stmts_nothing=5, hole_stmts=30, block_break=9)
    table = Sampler(lengths=Lengths.exact(6), grammar=grammar, seed=5).table(0, 20_000)
    chances = dict(shape_probabilities(6, grammar))
    assert_frequencies(Counter(map(shape_of, table)), dict(chances))
    choose = Random(1)
    assert_frequencies(Counter(shape_of(draw_program(choose, 6, grammar)) for _ in range(1_000)), dict(chances))


def test_counters_of_plain_programs_are_those_not_in_use() -> None:
    choose = Random(2)
    grammar = replace(PAPER, counters=3, stmt_repeat=40)
    drawn = [draw_program(choose, 14, grammar) for _ in range(200)]
    for program in drawn:
        assert parse(format_program(program)) == program
        lines = program.lines
        for around in loops_around(program):
            assert len({lines[i].variable for i in around}) == len(around) <= 3
    assert any(len(around) == 3 for program in drawn for around in loops_around(program))


def test_constants_operators_and_counters_are_uniform() -> None:
    table = Sampler(seed=1).table(0, 20_000)
    lines = [line for program in table for line in program.lines]
    arithmetic = [line for line in lines if line.variable == 0 and line.operation in PAPER.arithmetic_operations]
    conditions = [line for line in lines if line.operation.startswith("if")]
    counters = [line for line in lines if line.operation == "=" and line.variable != 0]
    first = [program.lines[0].operand for program in table]
    assert_frequencies(Counter(value // 10 for value in first if value is not None), uniform(range(100)))
    assert {min(first, key=int), max(first, key=int)} == {0, 999}  # type: ignore[arg-type]
    assert_frequencies(Counter(line.operand for line in arithmetic), uniform(range(1, 10)))
    assert_frequencies(Counter(line.operand for line in conditions), uniform(range(10)))
    assert_frequencies(Counter(line.operand for line in counters), uniform(range(2, 10)))
    assert_frequencies(Counter(line.variable for line in counters), uniform(range(1, 10)))
    for operations, chosen in (
        (("+=", "-=", "*="), arithmetic),
        (("if > %", "if < %", "if >= %", "if <= %"), conditions),
    ):
        chances: dict[object, Fraction] = {name: Fraction(1, len(operations)) for name in operations}
        assert_frequencies(Counter(line.operation for line in chosen), chances)


def test_training_lengths_and_mean_steps() -> None:
    table = Sampler().table(0, 100_000)
    chances: dict[object, Fraction] = {
        length: Fraction(weight, 1280) for length, weight in zip(TRAINING.lengths, TRAINING.weights, strict=True)
    }
    assert_frequencies(Counter(table.lengths.tolist()), chances)
    scratch = np.empty(20, np.int64)
    offsets = table.line_offsets
    steps = [paper_steps(table.line_tokens[offsets[i] : offsets[i + 1]], scratch) for i in range(len(table))]
    assert np.mean(steps) == pytest.approx(14.75, abs=0.1)
    assert max(steps) == 32


# --- Partial programs.
def test_partial_programs_mask_one_arithmetic_line_uniformly() -> None:
    """The same stream with and without masking differs in one line, and in nothing of the target."""
    lengths = Lengths.exact(12)
    full = Sampler("full", lengths, seed=8).table(0, 20_000)
    partial = Sampler("partial", lengths, seed=8).table(0, 20_000)
    places: Counter[object] = Counter()
    for complete, masked, same in zip(full, partial, full.target == partial.target, strict=True):
        arithmetic = [i for i, name in enumerate(map(category, complete.lines[1:]), 1) if name == "arithmetic"]
        if not arithmetic:
            continue  # drawn again
        assert same
        (line,) = masked.masked_lines
        assert masked.line_tokens[line].tolist() == [complete.line_tokens[line, 0], 1047, 1047, 1]
        assert np.array_equal(np.delete(masked.line_tokens, line, 0), np.delete(complete.line_tokens, line, 0))
        places[len(arithmetic), arithmetic.index(line)] += 1
    four = {place: seen for (several, place), seen in places.items() if several == 4}  # type: ignore[misc]
    assert_frequencies(Counter(four), uniform(range(4)))


def test_partial_programs_without_a_line_to_mask_are_drawn_again() -> None:
    table = Sampler("partial", Lengths.exact(2)).table(0, 500)
    assert all(program.masked_lines == (1,) for program in table)
