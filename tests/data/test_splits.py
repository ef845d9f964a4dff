from collections import Counter
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from ipagnn.data import TEST_LENGTHS, Recipe, build_test_set, build_validation_set, recipe, training_sampler
from ipagnn.data.manifest import Manifest
from ipagnn.languages.arithmetic import AUTHORS, Grammar, Lengths, ProgramKind, ProgramTable, Sampler
from ipagnn.languages.arithmetic._compiled.hash import WITHHELD_BITS, program_hash, program_hashes
from ipagnn.languages.arithmetic._compiled.sampler import mask_lines

TASKS: list[ProgramKind] = ["full", "partial"]
TINY = Grammar(initial_values=(0, 5), operands=(1, 3), condition_operands=(0, 1), comparisons=(">",))
"""Few short programs: every one of them is drawn again and again."""


def programs(table: ProgramTable) -> list[bytes]:
    return [program.line_tokens.astype("<i2").tobytes() for program in table]


def same(a: ProgramTable, b: ProgramTable) -> bool:
    return all(np.array_equal(getattr(a, f), getattr(b, f)) for f in ("line_offsets", "line_tokens", "target"))


@pytest.mark.parametrize("task", TASKS)
def test_training_and_validation_share_no_program(task: ProgramKind) -> None:
    # Programs of three lines of a tiny language: without the rule, all of them would be in both.
    lengths = Lengths.exact(3)
    everything = set(programs(Sampler(task, lengths, TINY, seed=9).table(0, 20_000)))
    train = set(programs(recipe("train", task, 20_000, 5, lengths, TINY).table(0, 20_000)))
    validation = set(programs(recipe("validation", task, 2_000, 5, lengths, TINY).table(0, 2_000)))
    assert validation
    assert not train & validation
    assert train | validation == everything


def test_one_program_in_64_is_withheld() -> None:
    table = Sampler(seed=3).table(0, 100_000)
    hashes = program_hashes(table.line_offsets, table.line_tokens)
    share = (hashes >> np.uint64(64 - WITHHELD_BITS) == 0).mean()
    assert share == pytest.approx(1 / 64, abs=5 * (1 / 64 / 100_000) ** 0.5)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("withheld", [False, True])
def test_a_side_holds_its_programs_only_and_keeps_the_lengths(task: ProgramKind, withheld: bool) -> None:
    count = 5_000 if withheld else 50_000
    table = Sampler(task, seed=8, withheld=withheld).table(0, count, threads=2)
    hashes = program_hashes(table.line_offsets, table.line_tokens)
    assert ((hashes >> np.uint64(64 - WITHHELD_BITS) == 0) == withheld).all()
    # Lengths are drawn before the side is known, so they are those of the sampler without sides, one by one.
    assert np.array_equal(table.lengths, Sampler(task, seed=8).table(0, count).lengths)


def test_hash_reads_every_token_and_the_order_of_lines() -> None:
    table = Sampler(seed=2).table(0, 300)
    hashes = program_hashes(table.line_offsets, table.line_tokens)
    known = dict(zip(programs(table), hashes.tolist(), strict=True))
    assert len(set(known.values())) == len(known)
    tokens = table[0].line_tokens.copy()
    seen = {int(program_hash(tokens))}
    for index in np.ndindex(tokens.shape):
        changed = tokens.copy()
        changed[index] += 1
        seen.add(int(program_hash(changed)))
    seen.add(int(program_hash(tokens[::-1].copy())))
    seen.add(int(program_hash(tokens[:-1].copy())))
    assert len(seen) == tokens.size + 3


def test_hash_of_a_partial_program_ignores_what_is_masked() -> None:
    full = Sampler("full", Lengths.exact(10), seed=1).table(0, 50)
    partial = Sampler("partial", Lengths.exact(10), seed=1).table(0, 50)
    compared = 0
    for complete, masked in zip(full, partial, strict=True):
        (hole,) = masked.masked_lines
        if np.array_equal(np.delete(complete.line_tokens, hole, 0), np.delete(masked.line_tokens, hole, 0)):
            tokens = complete.line_tokens.copy()
            mask_lines(tokens, np.array([hole]), np.empty((1, 3), np.int16))
            assert program_hash(tokens) == program_hash(masked.line_tokens) != program_hash(complete.line_tokens)
            compared += 1
    assert compared > 25


def test_a_side_that_is_empty_is_a_sentence() -> None:
    # One program only, so one of the sides has none.
    alone = Grammar(initial_values=(7, 7), operands=(3, 3), arithmetic_operations=("+=",), stmt_pass=0)
    on_a_side = []
    for withheld in (False, True):
        sampler = Sampler("full", Lengths.exact(2), alone, withheld=withheld)
        try:
            on_a_side.append(len(sampler.table(0, 3)))
        except ValueError as error:
            message = str(error)
    assert on_a_side == [3]
    assert "attempts made no program of 2 lines" in message
    assert "training" in message or "trained" in message


@pytest.mark.parametrize("task", TASKS)
def test_the_test_set_has_500_of_each_length_in_order(task: ProgramKind) -> None:
    table = build_test_set(task)
    assert table.lengths.tolist() == [length for length in TEST_LENGTHS for _ in range(500)]
    assert same(table, build_test_set(task, threads=3))
    assert all(program.is_partial == (task == "partial") for program in table.slice(0, 100))
    assert len(set(programs(table))) == 4_500


def test_named_sets_never_change() -> None:
    # These are published: whoever changes a draw, a seed or the hash changes everybody's results.
    for table, expected in (
        (build_test_set("full"), "89d47b38894ea2bc"),
        (build_test_set("partial"), "d5b44cd26df46923"),
        (build_validation_set("full"), "ca675672f5887d8e"),
        (build_validation_set("partial"), "9492339075f344ff"),
        (training_sampler("full").table(0, 1_000), "edaa600640d8d453"),
        (training_sampler("partial").table(0, 1_000), "51bdc098ffad8961"),
    ):
        content = b"".join(programs(table)) + table.target.astype("<i4").tobytes()
        assert sha256(content).hexdigest()[:16] == expected


@pytest.mark.parametrize("task", TASKS)
def test_the_authors_labels_of_the_test_set_never_change(task: ProgramKind) -> None:
    # python_graphs, walked through with the true decisions, finds the same 599 programs.
    table, limited = build_test_set(task), recipe("test", task, grammar=AUTHORS)
    labels = limited.table(0, limited.count)
    changed = table.target != labels.target
    assert programs(labels) == programs(table)
    assert set(labels.target[changed].tolist()) == {1}
    by_length = [int(changed[table.lengths == length].sum()) for length in TEST_LENGTHS]
    assert by_length == [23, 26, 52, 58, 59, 76, 90, 97, 118]


def test_lengths_of_the_test_set_do_not_share_random_numbers() -> None:
    table = build_test_set("full", 100)
    starts = [int(program.line_tokens[0, 3]) for program in table]
    by_length = [starts[i : i + 100] for i in range(0, 900, 100)]
    assert max(Counter(zip(*by_length[:2], strict=True)).values()) < 5
    assert sum(a == b for a, b in zip(*by_length[:2], strict=True)) < 5


def test_validation_has_length_c() -> None:
    assert set(build_validation_set("full", 50, c=7).lengths.tolist()) == {7}
    assert same(build_validation_set("partial", 40, threads=2), build_validation_set("partial", 80).slice(0, 40))


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_any_cut_of_a_split_is_the_same(split: Any) -> None:
    whole = recipe(split, "partial", 100, 3, Lengths.uniform((9, 5, 7)))
    table = whole.table(0, 100)
    pieces = [whole.table(a, b) for a, b in ((0, 1), (1, 34), (34, 35), (35, 99), (99, 100))]
    assert same(table, ProgramTable.concatenate(pieces))
    if split == "test":
        assert table.lengths.tolist() == [5] * 34 + [7] * 33 + [9] * 33


def test_recipes_come_back_from_json() -> None:
    for split, count in (("train", 5), ("validation", None), ("test", None)):
        made = recipe(split, "partial", count, grammar=TINY)  # type: ignore[arg-type]
        assert Recipe.from_dict(made.to_dict()) == made


def test_a_recipe_names_the_block_limit_only_if_it_has_one() -> None:
    # Manifests and fingerprints of data sets made before there was a limit must stay what they are.
    assert "block_limit" not in recipe("test").to_dict()["grammar"]
    limited = recipe("test", grammar=AUTHORS)
    assert limited.to_dict()["grammar"]["block_limit"] == 200
    assert Recipe.from_dict(limited.to_dict()) == limited != recipe("test")
    for grammar, expected in (
        (Grammar(), "de8e6200d9222ec3"),
        (Grammar(modulus=50, condition_modulus=5), "e13c5d5a6c234fed"),
    ):
        made = recipe("validation", "partial", 10, grammar=grammar)
        assert Manifest(made, 5, False, "pyarrow 1.0", {10: 10}, 0, ()).fingerprint[:16] == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "dev"}, "must be one of train, validation, test"),
        ({"split": "train"}, "how many programs"),
        ({"split": "train", "count": 0}, "at least 1"),
        ({"split": "train", "count": 5, "task": "half"}, "no task 'half'. Choose one of full, partial"),
        ({"split": "train", "count": 5, "seed": -1}, "seed"),
        ({"split": "test", "lengths": Lengths((20, 30), (1, 2))}, "same weight"),
    ],
)
def test_bad_recipes_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recipe(**arguments)


def test_programs_beyond_a_split_are_refused() -> None:
    with pytest.raises(ValueError, match="Programs 3:11 were asked of a split of 10"):
        recipe("train", count=10).table(3, 11)
