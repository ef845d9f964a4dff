import numpy as np
import pytest

from ipagnn.languages.arithmetic import EndlessLoopError, Grammar, Lengths, ProgramTable, Sampler, parse
from ipagnn.languages.arithmetic._compiled.holes import likeliest
from ipagnn.languages.arithmetic.holes import ceiling, hole_distribution


def test_distribution_by_hand() -> None:
    # On 0 the nine products all make 0.
    assert hole_distribution(parse("v0 = 0\n_")) == {
        0: 9 / 27,
        **dict.fromkeys(range(1, 10), 1 / 27),
        **dict.fromkeys(range(991, 1000), 1 / 27),
    }
    assert hole_distribution(parse("v0 = 0\n_\nv0 *= 0")) == {0: 1.0}
    assert list(hole_distribution(parse("v0 = 0\n_\nif v0 % 10 > 0:\n  v0 = 5\n"))) == [5, 0]


def test_distribution_counts_statements_that_agree() -> None:
    # On 5: `+= 5` and `*= 2` make 10; `-= 4` and nothing else makes 1.
    distribution = hole_distribution(parse("v0 = 5\n[MASK]"))
    assert sum(distribution.values()) == pytest.approx(1)
    assert (distribution[10], distribution[1]) == (2 / 27, 1 / 27)
    assert next(iter(distribution)) == 5 + 5


def test_fillings_that_run_beyond_the_limit_give_1() -> None:
    # The hole decides the rounds of the loop: a digit above 4 leaves at once. The others take 10 blocks.
    source = "v0 = 10\n_\nv1 = 3\nwhile v1 > 0:\n  v1 -= 1\n  if v0 % 10 > 4:\n    break\n  v0 += 10"
    long = {value for value in hole_distribution(parse(source)) if value % 10 <= 4}
    assert long
    for limit, expected in ((11, False), (10, True)):
        grammar = Grammar(block_limit=limit)
        table = ProgramTable.from_programs([parse(source)])
        distribution = hole_distribution(parse(source), grammar)
        assert (1 in distribution) == expected
        assert bool(long & set(distribution)) != expected
        found = ceiling(table, grammar)
        assert (found.guess[0], found.probability[0]) == next(iter(distribution.items()))


def test_ties_go_to_the_smallest() -> None:
    values = np.array([[7, 3, 7, 3, 9], [9, 8, 7, 6, 5], [2, 2, 2, 1, 1]], np.int32)
    guess, count = np.empty(3, np.int32), np.empty(3, np.int32)
    likeliest(values, 10, guess, count)
    assert guess.tolist() == [3, 5, 2]
    assert count.tolist() == [2, 1, 3]


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar(),
        Grammar(modulus=60, condition_modulus=6, operands=(0, 4), counters=2),
        Grammar(block_limit=12),
        Grammar(modulus=1, condition_modulus=1, block_limit=5),
    ],
)
def test_compiled_ceiling_agrees_with_the_interpreter(grammar: Grammar) -> None:
    table = Sampler("partial", Lengths.uniform((2, 6, 12, 25)), grammar, seed=3).table(0, 60)
    found = ceiling(table, grammar, threads=2)
    for i, program in enumerate(table):
        distribution = hole_distribution(program, grammar)
        guess, probability = next(iter(distribution.items()))
        assert (found.guess[i], found.probability[i]) == (guess, pytest.approx(probability))
        assert distribution[int(table.target[i])] > 0  # what was masked is one of the statements
    assert found.correct.tolist() == (found.guess == table.target).tolist()


def test_summaries_are_means_by_length() -> None:
    table = Sampler("partial", Lengths.uniform((5, 9)), seed=1).table(0, 300)
    found = ceiling(table)
    assert found.accuracy == pytest.approx(found.probability.mean())
    for length in (5, 9):
        chosen = table.lengths == length
        assert found.by_length[length] == pytest.approx(found.probability[chosen].mean())
        assert found.correct_by_length[length] == pytest.approx((found.guess == table.target)[chosen].mean())
    assert np.array_equal(found.probability, ceiling(table, threads=3).probability)


def test_ceiling_at_training_lengths() -> None:
    found = ceiling(Sampler("partial", seed=5).table(0, 20_000), threads=2)
    assert found.accuracy == pytest.approx(0.395, abs=0.01)
    assert found.correct.mean() == pytest.approx(found.accuracy, abs=0.015)


def test_ceiling_at_test_lengths() -> None:
    expected = {20: 0.52, 30: 0.60, 40: 0.62, 50: 0.66, 60: 0.68, 70: 0.70, 80: 0.72, 90: 0.74, 100: 0.75}
    tables = [Sampler("partial", Lengths.exact(n), seed=5).table(0, 2_000) for n in expected]
    found = ceiling(ProgramTable.concatenate(tables), threads=2)
    # Both sides are means of 2,000 programs whose probabilities spread by about 0.33.
    assert found.by_length == pytest.approx(expected, abs=0.03)
    assert found.accuracy == pytest.approx(0.666, abs=0.012)


def test_programs_without_one_hole_are_refused() -> None:
    with pytest.raises(ValueError, match="Program 1 of the table has 0 masked lines"):
        ceiling(ProgramTable.from_programs([parse("v0 = 1\n_"), parse("v0 = 1")]))
    with pytest.raises(ValueError, match="0 masked lines"):
        hole_distribution(parse("v0 = 1"))
    with pytest.raises(ValueError, match="at least one"):
        ceiling(ProgramTable.from_programs([]))


def test_endless_programs_are_told() -> None:
    with pytest.raises(EndlessLoopError):
        hole_distribution(parse("v0 = 1\n_\nv1 = 1\nwhile v1 > 0:\n  pass"))
