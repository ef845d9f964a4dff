"""The grammar and the lengths: defaults, validation, dictionaries."""

import dataclasses
import json

import pytest

from ipagnn.languages.arithmetic.grammar import PAPER, Grammar, Lengths


def test_the_defaults_are_the_papers_language() -> None:
    assert Grammar() == PAPER
    assert (PAPER.modulus, PAPER.condition_modulus, PAPER.counters) == (1000, 10, 9)
    assert (PAPER.initial_values, PAPER.operands, PAPER.condition_operands) == ((0, 999), (1, 9), (0, 9))
    assert PAPER.loop_counts == (2, 9)


def test_a_dictionary_survives_json() -> None:
    grammar = Grammar(modulus=60, condition_modulus=12, operands=(2, 5), comparisons=("<",), stmt_repeat=0)
    assert Grammar.from_dict(json.loads(json.dumps(grammar.to_dict()))) == grammar
    names = {field.name for field in dataclasses.fields(Grammar)}
    assert set(PAPER.to_dict()) < names
    assert Grammar.from_dict(PAPER.to_dict()) == PAPER


def test_missing_keys_keep_the_papers_values() -> None:
    assert Grammar.from_dict({"modulus": 100}) == Grammar(modulus=100)


def test_an_unknown_key_names_the_near_miss() -> None:
    with pytest.raises(ValueError, match=r"'modulos' is not a setting. Did you mean 'modulus'\?"):
        Grammar.from_dict({"modulos": 100})
    with pytest.raises(ValueError, match=r"'xyzzy' is not a setting. The settings are modulus, "):
        Grammar.from_dict({"xyzzy": 1})


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"modulus": 0}, "modulus is 0; it must be a whole number from 1 to 1000000000000000000"),
        ({"modulus": True}, "modulus is True"),
        ({"modulus": 10.0}, r"modulus is 10\.0"),
        ({"condition_modulus": 7}, "condition_modulus is 7, which does not divide modulus, 1000"),
        ({"modulus": 5, "condition_modulus": 10}, "condition_modulus is 10; it must be a whole number from 1 to 5"),
        ({"loop_counts": (0, 1000)}, "loop_counts is .* from 0 to 999"),
        ({"modulus": 10**18 + 1}, "modulus is"),
        ({"modulus": 10**12, "condition_modulus": 10**6}, "condition_modulus is 1000000; .* from 1 to 100000"),
        ({"operands": (5, 4)}, "operands is"),
        ({"operands": (-1, 4)}, "operands is"),
        ({"operands": 3}, "operands is 3"),
        ({"condition_operands": (0, 1, 2)}, "condition_operands is"),
        ({"loop_counts": ("2", "9")}, "loop_counts is"),
        ({"counters": 10}, "counters is 10; it must be a whole number from 0 to 9"),
        ({"arithmetic_operations": ("+=", "/=")}, r"arithmetic_operations is .* one or more of \+=, -=, \*="),
        ({"arithmetic_operations": ()}, "arithmetic_operations is"),
        ({"comparisons": (">", ">")}, "comparisons is .* each at most once"),
        ({"hole_stmts": 0}, "hole_stmts is 0; it must be a whole number from 1 to"),
        ({"stmt_if": -1}, "stmt_if is -1; it must be a whole number from 0 to"),
        ({"block_plain": 1.5}, r"block_plain is 1\.5"),
        ({"stmts_nothing": 10**9}, "stmts_nothing is 1000000000"),
        ({"block_limit": -1}, "block_limit is -1; it must be a whole number from 0 to 1000000"),
        ({"block_limit": 200.0}, r"block_limit is 200\.0"),
        ({"block_limit": True}, "block_limit is True"),
        ({"block_limit": "200"}, "block_limit is '200'"),
        ({"stmt_pass": 0, "stmt_arithmetic": 0}, "no program could ever end"),
    ],
)
def test_bad_grammars_are_refused_with_a_sentence(edit: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(PAPER, **edit)  # type: ignore[arg-type]


def test_training_lengths_are_the_papers() -> None:
    assert Lengths.training(10) == Lengths((10, 9, 8, 7, 6, 5, 4, 3, 2), (1152, 64, 32, 16, 8, 4, 2, 1, 1))
    assert Lengths.training(4) == Lengths((4, 3, 2), (18, 1, 1))
    assert Lengths.training(3) == Lengths((3, 2), (9, 1))
    assert Lengths.training(2) == Lengths.exact(2)


@pytest.mark.parametrize("longest", [3, 10, 19, 30, 100])
def test_training_lengths_put_nine_tenths_on_the_longest_and_halve(longest: int) -> None:
    lengths = Lengths.training(longest)
    assert lengths.longest == lengths.lengths[0] == longest
    assert 10 * lengths.weights[0] == 9 * sum(lengths.weights)
    assert lengths.lengths[-1] == 2
    assert all(a == 2 * b for a, b in zip(lengths.weights[1:-1], lengths.weights[2:-1], strict=False))


def test_exact_and_uniform_lengths() -> None:
    assert Lengths.exact(20) == Lengths((20,), (1,))
    assert Lengths.uniform([20, 30]) == Lengths((20, 30), (1, 1))


@pytest.mark.parametrize(
    ("lengths", "weights", "message"),
    [
        ((), (), "0 lengths and 0 weights"),
        ((5, 6), (1,), "2 lengths and 1 weights"),
        ((1,), (1,), "A length is 1; it must be a whole number from 2 to 1000"),
        ((1001,), (1,), "A length is 1001"),
        ((5,), (0,), "The weight of a length is 0"),
        ((5, 5), (1, 1), "A length is named twice"),
        ((5, 6), (2**31 - 1, 1), "sum to 2147483648"),
    ],
)
def test_bad_lengths_are_refused_with_a_sentence(
    lengths: tuple[int, ...], weights: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Lengths(lengths, weights)
