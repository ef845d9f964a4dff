import numpy as np
import pytest

from ipagnn.languages.arithmetic import PAPER, EndlessLoopError, Grammar, Lengths, ProgramTable, Sampler, parse
from ipagnn.languages.arithmetic._compiled.holes import likeliest
from ipagnn.languages.arithmetic.holes import ceiling, hole_distribution


def probabilities(source: str, grammar: Grammar = PAPER) -> dict[int, float]:
    found = hole_distribution(parse(source), grammar)
    assert found.samples == 0
    return found.probabilities


def test_distribution_by_hand() -> None:
    # On 0 the nine products all make 0.
    assert probabilities("v0 = 0\n_") == {
        0: 9 / 27,
        **dict.fromkeys(range(1, 10), 1 / 27),
        **dict.fromkeys(range(991, 1000), 1 / 27),
    }
    assert probabilities("v0 = 0\n_\nv0 *= 0") == {0: 1.0}
    assert list(probabilities("v0 = 0\n_\nif v0 % 10 > 0:\n  v0 = 5\n")) == [5, 0]


def test_distribution_counts_statements_that_agree() -> None:
    # On 5: `+= 5` and `*= 2` make 10; `-= 4` and nothing else makes 1.
    distribution = probabilities("v0 = 5\n[MASK]")
    assert sum(distribution.values()) == pytest.approx(1)
    assert (distribution[10], distribution[1]) == (2 / 27, 1 / 27)
    assert next(iter(distribution)) == 5 + 5


def test_fillings_that_run_beyond_the_limit_give_1() -> None:
    # The hole decides the rounds of the loop: a digit above 4 leaves at once. The others take 10 blocks.
    source = "v0 = 10\n_\nv1 = 3\nwhile v1 > 0:\n  v1 -= 1\n  if v0 % 10 > 4:\n    break\n  v0 += 10"
    long = {value for value in probabilities(source) if value % 10 <= 4}
    assert long
    for limit, expected in ((11, False), (10, True)):
        grammar = Grammar(block_limit=limit)
        table = ProgramTable.from_programs([parse(source)])
        distribution = probabilities(source, grammar)
        assert (1 in distribution) == expected
        assert bool(long & set(distribution)) != expected
        found = ceiling(table, grammar)
        assert (found.guess[0], found.probability[0]) == next(iter(distribution.items()))


def test_ties_go_to_the_smallest() -> None:
    assert likeliest(np.array([7, 3, 7, 3, 9])) == (3, 2)
    assert likeliest(np.array([9, 8, 7, 6, 5])) == (5, 1)
    assert likeliest(np.array([2, 2, 2, 1, 1])) == (2, 3)
    assert likeliest(np.array([4])) == (4, 1)


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
        distribution = hole_distribution(program, grammar).probabilities
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
        assert found.correct[chosen].mean() == (found.guess == table.target)[chosen].mean()
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


def test_two_masked_lines_by_hand() -> None:
    # On 0, 729 pairs: 0 comes from 81 pairs of products, 9 of a sum and its difference each way, and 9 * 9 sums or
    # differences never; a product after a sum is never 0, and a sum or difference after a product is its operand.
    found = probabilities("v0 = 0\n_\n_")
    by_hand: dict[int, int] = {}
    for first, a in ((o, a) for o in "+-*" for a in range(1, 10)):
        for second, b in ((o, b) for o in "+-*" for b in range(1, 10)):
            v = {"+": a, "-": -a, "*": 0}[first]
            v = {"+": v + b, "-": v - b, "*": v * b}[second] % 1000
            by_hand[v] = by_hand.get(v, 0) + 1
    assert found == {value: count / 729 for value, count in by_hand.items()}
    assert found[0] == (81 + 2 * 9) / 729
    table = ProgramTable.from_programs([parse("v0 = 0\n_\n_")])
    best = ceiling(table)
    assert (best.guess[0], best.probability[0], best.stderr[0]) == (0, 99 / 729, 0)


def test_two_masked_lines_of_the_sampler() -> None:
    table = Sampler("partial", Lengths.uniform((8, 20)), seed=3, masked_lines=2).table(0, 25)
    found = ceiling(table, threads=2)
    for i, program in enumerate(table):
        assert len(program.masked_lines) == 2
        distribution = hole_distribution(program)
        assert (found.guess[i], found.probability[i]) == next(iter(distribution.probabilities.items()))
        assert distribution.probabilities[int(table.target[i])] > 0
    assert not found.stderr.any()


def test_more_masked_lines_are_sampled_unless_few_statements_are_possible() -> None:
    few = Grammar(operands=(1, 2))  # 6 statements, 216 fillings of three lines
    table = Sampler("partial", Lengths.exact(10), few, seed=4, masked_lines=3).table(0, 40)
    exact, sampled = ceiling(table, few), ceiling(table, few, samples=100)
    assert not exact.stderr.any()
    error = float(np.sqrt((sampled.stderr**2).sum()) / len(sampled.stderr))
    assert error > 0
    assert sampled.stderr == pytest.approx(np.sqrt(sampled.probability * (1 - sampled.probability) / 100))
    # A guess from samples is at most as good as the best one, and often the same.
    same = exact.guess == sampled.guess
    assert same.sum() > 10
    assert abs(sampled.probability - exact.probability)[same] == pytest.approx(0, abs=5 * 0.05)
    assert sampled.accuracy < exact.accuracy + 4 * error
    assert np.array_equal(sampled.probability, ceiling(table, few, threads=2, samples=100).probability)
    assert not np.array_equal(sampled.probability, ceiling(table, few, samples=100, seed=1).probability)


def test_the_distribution_of_many_masked_lines_is_sampled() -> None:
    program = parse("v0 = 0\n_\n_\n_\nv0 *= 0\n_")
    found = hole_distribution(program, samples=1_000)
    truth = hole_distribution(parse("v0 = 0\n_")).probabilities
    assert found.samples == 1_000
    assert sum(found.probabilities.values()) == pytest.approx(1)
    assert found.stderr(0) == pytest.approx((found.probabilities[0] * (1 - found.probabilities[0]) / 1_000) ** 0.5)
    for value, probability in truth.items():
        error = (probability * (1 - probability) / 1_000) ** 0.5
        assert found.probabilities.get(value, 0) == pytest.approx(probability, abs=5 * error)
    assert hole_distribution(program, samples=1_000) == found
    assert hole_distribution(program, samples=1_000, seed=1) != found


def test_programs_without_a_hole_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Program 1 of the table has 0 masked lines; .* have one or more"):
        ceiling(ProgramTable.from_programs([parse("v0 = 1\n_"), parse("v0 = 1")]))
    with pytest.raises(ValueError, match="0 masked lines"):
        hole_distribution(parse("v0 = 1"))
    with pytest.raises(ValueError, match="at least one"):
        ceiling(ProgramTable.from_programs([]))


def test_endless_programs_are_told() -> None:
    with pytest.raises(EndlessLoopError):
        hole_distribution(parse("v0 = 1\n_\nv1 = 1\nwhile v1 > 0:\n  pass"))
