"""How far the confidence of the default models can be believed, on programs like those of training and on others.

    python experiments/calibration.py OUT.png [--count 300]

Draws `count` programs of each kind and length, lets `ipagnn.predict` answer them with the model that it takes by
itself, and divides them by whether the answer has a warning. Prints a table and draws reliability diagrams: of the
answers given with some confidence, the share that is right.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import ipagnn
from ipagnn.evaluation.summary import calibration
from ipagnn.inference.predict import Prediction
from ipagnn.languages.arithmetic import PAPER, ExecutionError, Lengths, Line, Sampler, format_program, parse, value
from ipagnn.reporting.style import BLUE, GREY, SKY, VERMILION, save, style

LENGTHS: Final = tuple(range(10, 101, 10))
INSIDE: Final = {"test set": PAPER, "four times as many loops": replace(PAPER, stmt_repeat=20)}
"""Grammars that draw programs of the language."""
OUTSIDE: Final = replace(PAPER, operands=(0, 99), condition_operands=(0, 30), loop_counts=(1, 20))
"""The paper's language with larger numbers."""
OTHER_LENGTHS: Final = (2, 3, 4, 5, 7, 10, 20, 50, 100)
"""Lengths of programs outside of the language."""
OFTEN: Final = 30
"""Programs of two lines with larger numbers are drawn so many times as often: few longer ones get no warning."""
ODD: Final = 0.05
MOST_DEPTH: Final = 5
MOST_STEPS: Final = 100_000
Drawn = Iterator[tuple[str, int | None]]


@dataclass(frozen=True)
class Answers:
    """What was answered to the programs of a kind.

    Attributes:
        confidence: Of each answer. float64 [program]
        right: Whether it is right. bool [program]
        warned: Whether it has a warning. bool [program]
    """

    confidence: npt.NDArray[np.float64]
    right: npt.NDArray[np.bool_]
    warned: npt.NDArray[np.bool_]

    @staticmethod
    def of(predictions: list[Prediction], truths: list[int | None]) -> "Answers":
        """Compare answers with what the programs come to; None if a program does not end."""
        right = [each.value == truth for each, truth in zip(predictions, truths, strict=True)]
        warned = [bool(each.warnings) for each in predictions]
        return Answers(np.array([each.confidence for each in predictions]), np.array(right), np.array(warned))


def from_grammar(task: str, kind: str, count: int) -> Drawn:
    """Programs of the language, `count` of each length, and their results."""
    for length in LENGTHS:
        table = Sampler("partial" if task == "partial" else "full", Lengths.exact(length), INSIDE[kind], 2026)
        for program, target in zip((drawn := table.table(0, count)), drawn.target.tolist(), strict=True):
            yield format_program(program), target


def with_larger_numbers(task: str, count: int) -> Drawn:
    """Programs of a larger language; their masked line, too, stands for a statement of the language."""
    random = Random(2026)
    for length in OTHER_LENGTHS:
        often = OFTEN if length == OTHER_LENGTHS[0] else 1
        for program in Sampler("full", Lengths.exact(length), OUTSIDE, 2026).table(0, often * count):
            yield from masked(format_program(program), task, random)


def of_any_form(task: str, count: int) -> Drawn:
    """Programs of any statements, in any order: most do not look like a program of the language."""
    random = Random(2026)
    for length in OTHER_LENGTHS:
        for _ in range(count):
            yield from masked("\n".join(any_lines(random, length)), task, random)


def any_lines(random: Random, length: int) -> Iterator[str]:
    """Lines of a program. Each part of a line is one that the language does not have at a rate of `ODD`."""

    def usual(ordinary: str, odd: str) -> str:
        return odd if random.random() < ODD else ordinary

    yield f"v0 = {random.randrange(1000)}"
    depth, opened, names = 0, False, ["v0"]
    for left in range(length - 1, 0, -1):
        if not opened:
            depth = random.randint(0, depth)
        number = usual(str(random.randint(1, 9)), str(random.randrange(1000)))
        name = usual("v0", random.choice(names))
        opened = left > 1 and depth < MOST_DEPTH and random.random() < 0.25
        if opened:
            head = f"{usual('if', 'while')} {name}{usual(' % 10', '')} {random.choice('<>')} {number}:"
            yield f"{'  ' * depth}{head}"
            depth += 1
        elif (kind := usual(random.choice(PAPER.arithmetic_operations), "=")) == "=":
            names.append(random.choice(("v0", "v1", "v2")))
            yield f"{'  ' * depth}{names[-1]} = {number}"
        else:
            yield f"{'  ' * depth}{name} {kind} {number}"


def masked(source: str, task: str, random: Random) -> Drawn:
    """A program as it is, or with one of its lines masked that the language has; nothing if there is none."""
    try:
        truth = value(parse(source), max_steps=MOST_STEPS)
    except ExecutionError:
        truth = None
    lines = source.split("\n")
    if task == "partial":
        plain = [i for i, line in enumerate(parse(source).lines) if is_plain(line)]
        if not plain:
            return
        at = random.choice(plain)
        lines[at] = f"{lines[at][: len(lines[at]) - len(lines[at].lstrip())]}[MASK]"
    yield "\n".join(lines), truth


def is_plain(line: Line) -> bool:
    """Whether a statement is one of the 27 that a masked line of the paper's language stands for."""
    least, most = PAPER.operands
    number = line.operand is not None and least <= line.operand <= most
    return line.operation in PAPER.arithmetic_operations and line.variable == 0 and number


def measure(task: str, count: int) -> dict[str, Answers]:
    """The answers to all kinds of programs, by kind."""
    drawn = {kind: from_grammar(task, kind, count) for kind in INSIDE}
    drawn |= {"larger numbers": with_larger_numbers(task, count), "any form": of_any_form(task, count)}
    found = {}
    for kind, programs in drawn.items():
        sources, truths = zip(*programs, strict=True)
        found[kind] = Answers.of(ipagnn.predict(list(sources)), list(truths))
    return found


def rows(task: str, found: dict[str, Answers]) -> Iterator[str]:
    """Rows of the table, in Markdown."""
    for kind, answers in found.items():
        for warned in (False, True):
            which = answers.warned == warned
            if which.any():
                right, sure = answers.right[which], answers.confidence[which]
                error = calibration(sure, right)["ece"]
                yield (
                    f"| {task} | {kind} | {'with a warning' if warned else 'no warning'} | {which.sum():,} | "
                    f"{100 * right.mean():.1f} | {100 * sure.mean():.1f} | {error:.3f} |"
                )


def draw(results: dict[str, dict[str, Answers]]) -> Figure:
    """A reliability diagram for each task. The area of a point grows with its answers."""
    with style():
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        for axes, (task, found) in zip(figure.subplots(1, 2, sharey=True), results.items(), strict=True):
            axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.6, linestyle=":")
            others = [answers for kind, answers in found.items() if kind not in INSIDE]
            for kind, colour, marker in zip(INSIDE, (BLUE, SKY), "oD", strict=True):
                points(axes, [found[kind]], False, colour, marker, f"in the language, {kind}")
            points(axes, others, False, VERMILION, "^", "other programs, no warning")
            points(axes, others, True, GREY, "x", "other programs, with a warning")
            axes.set_title(f"{task} programs", loc="left")
            axes.set_xlabel("confidence")
        figure.axes[0].set_ylabel("share that is right")
        legend = figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        for handle in legend.legend_handles:
            handle.set_sizes([30])  # type: ignore[union-attr]
    return figure


def points(axes: Axes, several: list[Answers], warned: bool, colour: str, marker: str, label: str) -> None:
    """One point for each bin of confidence."""
    sure = np.concatenate([each.confidence[each.warned == warned] for each in several])
    right = np.concatenate([each.right[each.warned == warned] for each in several])
    bins = calibration(sure, right)["bins"] if len(sure) else []
    sizes = [12 + 120 * each["count"] / len(sure) for each in bins]
    x, y = [each["confidence"] for each in bins], [each["accuracy"] for each in bins]
    axes.scatter(x, y, sizes, color=colour, marker=marker, label=label, alpha=0.8)


def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="Figure: .png, .svg or .pdf.")
    parser.add_argument("--count", type=int, default=300, help="Programs of each kind and length.")
    options = parser.parse_args()
    results = {task: measure(task, options.count) for task in ("full", "partial")}
    print("| task | programs | answers | count | right, % | mean confidence, % | calibration error |")
    print("|---|---|---|---:|---:|---:|---:|")
    for task, found in results.items():
        print(*rows(task, found), sep="\n")
    save(draw(results), options.out)


if __name__ == "__main__":
    main()
