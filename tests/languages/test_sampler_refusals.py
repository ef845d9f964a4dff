"""What cannot be drawn is refused."""

from dataclasses import replace

import pytest

from ipagnn.languages.arithmetic.grammar import PAPER, Lengths
from ipagnn.languages.arithmetic.program import ProgramKind
from ipagnn.languages.arithmetic.sampler import CHUNK, Sampler


@pytest.mark.parametrize(
    ("task", "edits", "what"),
    [
        ("full", {"stmts_nonempty": 0, "stmts_stmt": 0, "stmt_if": 0, "stmt_if_else": 0, "stmt_repeat": 0}, "5 lines:"),
        ("full", {"stmts_nothing": 0, "stmts_stmt": 0}, "5 lines:"),
        ("partial", {"stmt_arithmetic": 0}, "5 lines with a line to mask:"),
        ("two", {"stmt_arithmetic": 0}, "5 lines with 2 lines to mask:"),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_an_unreachable_length_is_told(task: str, edits: dict[str, int], what: str, threads: int) -> None:
    sampler = Sampler("full" if task == "full" else "partial", Lengths.exact(5), replace(PAPER, **edits))  # type: ignore[arg-type]
    sampler = replace(sampler, masked_lines=2) if task == "two" else sampler
    with pytest.raises(ValueError, match=f"100,000 attempts made no program of {what} this grammar hardly reaches it"):
        sampler.table(0, 2 * CHUNK, threads)


@pytest.mark.parametrize("arguments", [(-1, 5), (0, -1), (2**63, 1), (0, 1, 0)])
def test_bad_ranges_are_refused(arguments: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="start and count must be 0 or more"):
        Sampler().table(*arguments)


@pytest.mark.parametrize(
    "fields", [{"seed": -1}, {"seed": 2**64}, {"seed": 1.0}, {"task": "half"}, {"trace_limit": -1}]
)
def test_bad_samplers_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"The (seed|task|trace limit) is .*; it must be"):
        Sampler(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("task", "count"), [("partial", 0), ("partial", 1.0), ("full", 2)])
def test_bad_numbers_of_masked_lines_are_refused(task: ProgramKind, count: int) -> None:
    with pytest.raises(ValueError, match="masked_lines is"):
        Sampler(task, masked_lines=count)
