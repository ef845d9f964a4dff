"""The command `semantics`: what a model has learned of the language, fact by fact."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table

from ipagnn.cli.terminal import check_output, output

if TYPE_CHECKING:
    from ipagnn.evaluation.semantics import Semantics
    from ipagnn.languages.arithmetic import Grammar
    from ipagnn.languages.arithmetic.automata import Proof

_TABULATED: Final = 3  # digits of numbers whose facts are counted one by one
_TITLES: Final = {
    "literal": "literals: v = k",
    "arithmetic": "arithmetic: statement × value",
    "condition": "conditions: comparison × value",
    "loop": "loops: while v > 0 × rounds left",
}


def semantics(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="File, run folder, or name of a packaged model.")],
    show: Annotated[int, typer.Option(min=0, help="Number of wrong facts to show.")] = 20,
    automaton: Annotated[
        str,
        typer.Option(
            metavar="STATEMENT",
            help='Only print the automaton of a statement such as "*= 7", or of `all` statements but literals. For '
            "values as digits.",
        ),
    ] = "",
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Also draw these automata to a .svg, .pdf or .png file. For values as digits.",
            show_default=False,
        ),
    ] = None,
    dot: Annotated[bool, typer.Option("--dot", help="Print automata in the format of Graphviz.")] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print one JSON object: `facts` and `wrong` (counts), `by_kind`, `wrong_facts`, and for values as "
            "digits `automata`.",
        ),
    ] = False,
) -> None:
    """Compare what a model has learned about each statement with the truth.

    For models that hold a value for each variable, such as env-ipa-gnn. A fact is the value of a literal, the result of
    an arithmetic statement for a value, or the decision of a condition for a value. A model without wrong facts
    executes every program of its grammar correctly, of any length.

    If values are digits, each statement is a finite automaton, which is compared with the true automaton. Either both
    are equal for numbers of any size, or the smallest number is shown on which they differ. Loop counters hold small
    numbers only; their statements must be right on these. For conditions the output says after which digits they stop
    to read, and with which decision. Equal automata are then run on random numbers of up to 1,000 digits as a check.
    Facts are those of numbers of up to three digits.

    `ipagnn semantics env-ipa-gnn-full`

    `ipagnn semantics env-ipa-gnn-any --plot automata.svg`
    """
    from ipagnn.evaluation.semantics import read_automata, read_semantics
    from ipagnn.models import load_model

    if plot is not None:
        check_output("--plot", plot)
    loaded = load_model(model).eval()
    has_automata = loaded.runs_on == "automata"
    if not has_automata and (automaton or plot):
        raise ValueError(f"{model} has no automata; choose a model whose values are digits.")
    proofs = read_automata(loaded, "" if automaton == "all" else automaton) if has_automata else []
    if plot is not None:
        _draw(proofs, plot)
    if automaton:
        for proof in _without_literals(proofs):
            typer.echo(proof.automaton.dot() if dot else f"{proof.automaton}\n{_verdict(proof)}\n")
        return
    grammar = loaded.config.grammar
    large = has_automata and grammar.modulus > 10**_TABULATED
    has_facts = not has_automata or not grammar.is_extended
    found = read_semantics(loaded.with_digits(_TABULATED) if large else loaded) if has_facts else None
    automata = _automata(proofs, grammar) if has_automata else {}
    if as_json:
        facts = found.to_dict() if found else {}
        typer.echo(json.dumps({"weights": model} | facts | ({"automata": automata} if automata else {})))
        return
    console = output()
    if found:
        _print(console, model, found, show)
    if automata:
        _print_proofs(console, proofs)
        checked = f"Run on {automata['runs']:,} random numbers of up to 1,000 digits: {automata['wrong_runs']:,} wrong."
        console.print(checked, soft_wrap=True)
        console.print(automata["claim"], soft_wrap=True, markup=False)
    if plot is not None:
        console.print(f"{plot} holds the plot", soft_wrap=True, markup=False)


def _without_literals(proofs: "Sequence[Proof]") -> "list[Proof]":
    """The statements other than literals; the literals if there are no others."""
    from ipagnn.languages.arithmetic.vocabulary import ASSIGN

    return [proof for proof in proofs if proof.automaton.operation != ASSIGN] or list(proofs)


def _draw(proofs: "Sequence[Proof]", plot: Path) -> None:
    from ipagnn.reporting.figure_automata import automata_figure
    from ipagnn.reporting.style import save

    drawn = [proof for proof in _without_literals(proofs) if proof.automaton.operand is not None]
    if not drawn:
        raise ValueError("Automata that read pairs of digits are too wide to draw; print them with --automaton.")
    save(automata_figure(drawn), plot)


def _verdict(proof: "Proof") -> str:
    """The result of comparing an automaton with the true one."""
    from ipagnn.languages.arithmetic.vocabulary import MULTIPLY

    wrong = proof.disagreement
    if wrong is None:
        factor = (proof.automaton.operation, proof.automaton.operand) == (MULTIPLY, None)
        return "equal for numbers of any size" + (", times a digit" if factor else "")
    beside = "" if wrong.operand is None else f" and {wrong.operand}"
    first = f"differs first at {wrong.number}{beside}: learned {wrong.learned}, true {wrong.true}"
    return f"equal for 0 to {proof.largest}, all that loops count; {first}" if proof.holds else first


def _automata(proofs: "Sequence[Proof]", grammar: "Grammar") -> dict[str, Any]:
    """The results of comparing the automata of a model with the true ones."""
    from ipagnn.evaluation.semantics import count_wrong_runs
    from ipagnn.languages.arithmetic.automata import claim
    from ipagnn.languages.arithmetic.automata.reading import reading
    from ipagnn.languages.arithmetic.tables import statement_text

    wrong, runs = count_wrong_runs(proofs, grammar)
    return {
        "statements": len(proofs),
        "equal": sum(proof.disagreement is None for proof in proofs),
        "holds": sum(proof.holds for proof in proofs),
        "most_states": max(len(proof.automaton) for proof in proofs),
        "disagreements": [str(proof.disagreement) for proof in proofs if proof.disagreement is not None],
        "by_statement": [
            {
                "statement": statement_text(proof.automaton.operation, proof.automaton.operand, grammar),
                "states": len(proof.automaton),
                "smallest_wrong": None if proof.disagreement is None else proof.disagreement.number,
                "reading": reading(proof.automaton),
            }
            for proof in proofs
        ],
        "runs": runs,
        "wrong_runs": wrong,
        "claim": claim(proofs),
    }


def _print_proofs(console: Console, proofs: "Sequence[Proof]") -> None:
    """A line for all literals, and one for each other statement."""
    from ipagnn.languages.arithmetic.automata.reading import reading
    from ipagnn.languages.arithmetic.tables import statement_text

    others = _without_literals(proofs)
    literals = [proof for proof in proofs if proof not in others]
    table = Table(header_style="bold")
    table.add_column("statement", no_wrap=True)
    table.add_column("states", justify="right")
    table.add_column("compared with the true automaton")
    if literals:
        wrong = [proof for proof in literals if proof.disagreement is not None]
        verdict = f"{len(wrong):,} wrong, first {wrong[0].disagreement}" if wrong else "equal for numbers of any size"
        most = max(len(proof.automaton) for proof in literals)
        text = "v0 = v1" if literals[0].automaton.operand is None else f"v = k ({len(literals):,})"
        table.add_row(text, f"at most {most}", verdict, end_section=True)
    for proof in others:
        automaton = proof.automaton
        text = statement_text(automaton.operation, automaton.operand)
        reads = f"; {verdict}" if (verdict := reading(automaton)) else ""
        table.add_row(text, str(len(automaton)), f"{_verdict(proof)}{reads}", style="" if proof.holds else "red")
    console.print(table)


def _print(console: Console, name: str, found: "Semantics", show: int) -> None:
    grammar, wrong = found.tables.grammar, found.wrong_by_kind
    console.print(
        f"{name}: {found.model}, values modulo {grammar.modulus:,}, conditions modulo {grammar.condition_modulus:,}",
        soft_wrap=True,
        markup=False,
    )
    table = Table(header_style="bold")
    table.add_column("kind")
    for title in ("facts", "wrong", "least probability"):
        table.add_column(title, justify="right")
    for kind, count in found.facts.items():
        least = found.least_probability.get(kind)
        cells = (f"{count:,}", f"{wrong[kind]:,}", "–" if least is None else f"{least:.2%}")
        table.add_row(_TITLES[kind], *cells, end_section=kind == "loop")
    least = min(found.least_probability.values(), default=1.0)
    table.add_row("all", f"{sum(found.facts.values()):,}", f"{len(found.wrong):,}", f"{least:.2%}")
    console.print(table)
    for difference in found.wrong[:show]:
        console.print(f"{difference} (probability {difference.probability:.1%})", soft_wrap=True, markup=False)
    if len(found.wrong) > show:
        console.print(f"{len(found.wrong) - show:,} more wrong facts; --json lists all of them.")
    if not found.wrong:
        console.print(
            "No fact is wrong: over these tables the model executes every program of its grammar correctly.",
            soft_wrap=True,
        )
