"""What models get right, construct by construct: straight lines, branches and loops made for it.

    python experiments/constructs.py ipa-gnn-full runs/a [--count 200]

Prints a table: a row a construct, a column a model, in % of `count` programs, which are the same for all models of one
language. Models take the steps that they are configured with.
"""

import argparse
from collections.abc import Callable, Iterable
from random import Random

from ipagnn.evaluation import evaluate
from ipagnn.languages.arithmetic import PAPER, Grammar, Program, ProgramTable, parse, target
from ipagnn.models import load_model

Lines = list[str]


class Writer:
    """Draws the parts of programs as the grammar does, in text."""

    def __init__(self, seed: int, grammar: Grammar) -> None:
        self.random, self.grammar = Random(seed), grammar

    def _within(self, bounds: tuple[int, int]) -> int:
        return self.random.randint(*bounds)

    def change(self, *operations: str) -> Lines:
        """An arithmetic line, of these operations if any are named."""
        operation = self.random.choice(operations or self.grammar.arithmetic_operations)
        return [f"v0 {operation} {self._within(self.grammar.operands)}"]

    def straight(self, count: int, *operations: str) -> Lines:
        """So many of them."""
        return [line for _ in range(count) for line in self.change(*operations)]

    def when(self, body: Lines, other: Lines | None = None) -> Lines:
        """An `if`, and an `else` if there is something for it."""
        operand = self._within(self.grammar.condition_operands)
        comparison = self.random.choice(self.grammar.comparisons)
        head = f"if v0 % {self.grammar.condition_modulus} {comparison} {operand}:"
        return [head, *_indent(body), *(["else:", *_indent(other)] if other else [])]

    def loop(self, rounds: int, body: Lines, counter: int = 1) -> Lines:
        """A loop of so many rounds."""
        name = f"v{counter}"
        return [f"{name} = {rounds}", f"while {name} > 0:", *_indent([f"{name} -= 1", *body])]

    def program(self, body: Lines) -> Program:
        """With the line before the body that a program begins with."""
        first = f"v0 = {self._within(self.grammar.initial_values)}"
        return parse("\n".join([first, *body]), self.grammar.condition_modulus)


def _indent(lines: Lines) -> Lines:
    return ["  " + line for line in lines]


CONSTRUCTS: dict[str, Callable[[Writer], Lines]] = {
    **{f"{n} lines of += and -=": lambda w, n=n: w.straight(n - 1, "+=", "-=") for n in (5, 10, 20, 40)},
    **{f"{n} lines of +=, -= and *=": lambda w, n=n: w.straight(n - 1) for n in (5, 10, 20, 40)},
    "if": lambda w: w.when(w.change()) + w.change(),
    "if, twice": lambda w: w.when(w.change()) + w.change() + w.when(w.change()) + w.change(),
    "if in if": lambda w: w.when(w.change() + w.when(w.change())) + w.change(),
    "if and else": lambda w: w.when(w.change(), w.change()) + w.change(),
    "if and else, twice": lambda w: w.when(w.change(), w.change()) + w.when(w.change(), w.change()),
    **{f"loop, {n} rounds": lambda w, n=n: w.loop(n, w.change()) + w.change() for n in (2, 4, 8)},
    "loop in loop, 2 rounds": lambda w: w.loop(2, w.change() + w.loop(2, w.change(), 2)) + w.change(),
}


def draw(construct: str, count: int, grammar: Grammar = PAPER) -> ProgramTable:
    """Programs of a construct: always the same ones."""
    writer = Writer(0, grammar)
    programs = [writer.program(CONSTRUCTS[construct](writer)) for _ in range(count)]
    return ProgramTable.from_programs(programs, [target(program, grammar) for program in programs])


def table(weights: Iterable[str], count: int) -> str:
    """The table, in Markdown."""
    models = {name: load_model(name) for name in weights}
    rows = [["", *models], ["---", *["---:"] * len(models)]]
    for construct in CONSTRUCTS:
        drawn = [evaluate(model, draw(construct, count, model.config.grammar)) for model in models.values()]
        rows.append([construct, *(f"{100 * each.correct.mean():.1f}" for each in drawn)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", nargs="+", help="Files, run folders, or names of models in the package.")
    parser.add_argument("--count", type=int, default=200, help="Programs of each construct.")
    options = parser.parse_args()
    print(table(options.weights, options.count))


if __name__ == "__main__":
    main()
