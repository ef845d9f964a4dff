"""The command `semantics`: what a model has learned of the language, fact by fact."""

import json
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table

from ipagnn.cli.terminal import output

if TYPE_CHECKING:
    from ipagnn.evaluation.semantics import Semantics
    from ipagnn.models import ProgramModel

_TITLES: Final = {
    "literal": "literals: v = k",
    "arithmetic": "arithmetic: statement × value",
    "condition": "conditions: comparison × value",
    "loop": "loops: while v > 0 × rounds left",
}


def semantics(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="File, run folder, or name of a model in the package.")],
    show: Annotated[int, typer.Option(min=0, help="Wrong facts to show.")] = 20,
    automaton: Annotated[
        str, typer.Option(metavar="STATEMENT", help='Only print the automaton of a statement, as in "*= 7" (digits).')
    ] = "",
    dot: Annotated[bool, typer.Option("--dot", help="Print that automaton as text for graphviz.")] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="One object with `facts` and `wrong` (counts), `by_kind`, and all wrong ones under `wrong_facts`; of "
            "values as digits `automata`, too.",
        ),
    ] = False,
) -> None:
    """Read what a model has learned that every statement does, and compare it with the truth.

    For models that hold a value for each variable, such as env-ipa-gnn. Each fact is what one literal gives, what one
    arithmetic statement makes of one value, or what one condition decides on one value. A model with no wrong fact
    executes every program of its grammar correctly, of any length.

    Where values are digits, each statement is a finite automaton. It is compared with the true one: the last line says
    for which statements they are equal, for numbers of any size. Those are run on random numbers of up to 1,000 digits.

    `ipagnn semantics env-ipa-gnn-full`
    """
    from ipagnn.evaluation.semantics import read_semantics
    from ipagnn.models import EnvIPAGNN, load_model

    loaded = load_model(model).eval()
    if automaton:
        if not isinstance(loaded, EnvIPAGNN):
            raise ValueError(f"{model} has no automata; choose a model whose values are digits.")
        chosen = loaded.automaton(automaton)
        typer.echo(chosen.dot() if dot else str(chosen))
        return
    found = read_semantics(loaded)
    automata = _automata(loaded)
    if as_json:
        typer.echo(json.dumps({"weights": model} | found.to_dict() | ({"automata": automata} if automata else {})))
        return
    _print(output(), model, found, show)
    for line in automata.get("disagreements", []):
        output().print(line, soft_wrap=True, markup=False)
    if automata:
        checked = f"Run on {automata['runs']:,} random numbers of up to 1,000 digits: {automata['wrong_runs']:,} wrong."
        output().print(checked, soft_wrap=True)
        output().print(automata["claim"], soft_wrap=True, markup=False)


def _automata(model: "ProgramModel") -> dict[str, Any]:
    """What comparing the automata of a model with the true ones shows; empty for a model without automata."""
    from ipagnn.evaluation.semantics import count_wrong_runs, read_automata
    from ipagnn.languages.arithmetic.automata import claim
    from ipagnn.models import EnvIPAGNN

    if not isinstance(model, EnvIPAGNN) or model.config.values != "digits":
        return {}
    proofs = read_automata(model)
    wrong, runs = count_wrong_runs(proofs, model.config.grammar)
    return {
        "statements": len(proofs),
        "equal": sum(proof.disagreement is None for proof in proofs),
        "most_states": max(len(proof.automaton) for proof in proofs),
        "disagreements": [str(proof.disagreement) for proof in proofs if proof.disagreement is not None],
        "runs": runs,
        "wrong_runs": wrong,
        "claim": claim(proofs),
    }


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
