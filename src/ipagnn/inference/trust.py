"""How far an answer can be trusted: what it rests on, and what speaks against it, in sentences."""

from typing import Final

import numpy as np

from ipagnn.inference.loaded import LoadedModel
from ipagnn.inference.run import Run
from ipagnn.languages.arithmetic import Program
from ipagnn.languages.arithmetic._compiled.trace import loop_depths
from ipagnn.languages.arithmetic.membership import outside_grammar
from ipagnn.models.automata import AutomataModel

ARRIVED: Final = 0.95
"""Less of the pointer than this at the exit is worth a warning."""
FOLLOWED: Final = 0.01
"""So is more than this that was not followed."""
_MOST: Final = 6  # things outside the language, or not proved, that are named


def doubts_of(program: Program, chosen: LoadedModel) -> list[str] | None:
    """What is not proved of a program that runs over automata, as `AutomataModel.doubts`; None if it does not."""
    return chosen.unbounded.doubts(program) if isinstance(chosen.unbounded, AutomataModel) else None


def warnings_of(
    program: Program,
    chosen: LoadedModel,
    run: Run,
    trace_length: int | None,
    why: str | None,
    doubts: list[str] | None = None,
) -> list[str]:
    """What speaks against an answer, each as a sentence; empty where there is nothing to say.

    Args:
        program: The program.
        chosen: The model.
        run: What it computed.
        trace_length: Statements of the true trace; None if it is unknown.
        why: Why a program has no true result; None if it has one.
        doubts: What `doubts_of` says. A complete program that runs over automata is right if there are none, whatever
            the model was trained on, so that what lies outside of training is then not said. Of a program with masked
            lines, how likely each statement is remains a matter of training.
    """
    model = chosen.model
    warnings = _first(doubts or [], "more statements in it are not proved to be right")
    if doubts is None or program.is_partial:
        outside = [f"{each[0].upper()}{each[1:]}." for each in outside_grammar(program, chosen.grammar)]
        warnings += _first(outside, "more things in it lie outside the language of training")
    if doubts is None and model.task == "partial" and not program.is_partial:
        warnings.append("The program is complete; the model was trained on programs with a masked line.")
    depth = loop_depth(program)
    if model.reliable_depth is not None and depth > model.reliable_depth:
        warnings.append(f"Loops are nested {depth} deep; models of the kind {model.name} are known to miscount them.")
    if model.reliable_lines is not None and len(program) > model.reliable_lines:
        warnings.append(
            f"The program has {len(program):,} lines; models of the kind {model.name} are known to fail more often "
            f"above {model.reliable_lines}."
        )
    warnings += run.warnings
    if run.exit_mass is not None and run.exit_mass < ARRIVED:
        warnings.append(
            f"Only {run.exit_mass:.1%} of the pointer reached the exit; the answer rests on that part alone."
        )
    if run.dropped > FOLLOWED:
        warnings.append(f"{run.dropped:.1%} of the pointer was not followed, for the program is long.")
    if trace_length is not None and chosen.takes_steps and trace_length > run.steps:
        warnings.append(
            f"The model took {run.steps:,} steps and the true trace has {trace_length:,}, so it cannot have followed "
            "it to the end; give it a larger budget of steps."
        )
    if why is not None:
        warnings.append(why)
    return warnings


def _first(sentences: list[str], more: str) -> list[str]:
    """The first sentences, and how many more there are."""
    rest = len(sentences) - _MOST
    return [*sentences[:_MOST], *([f"{rest:,} {more}."] if rest > 0 else [])]


def loop_depth(program: Program) -> int:
    """Loops within loops in the text of a program; 0 if there is none."""
    return int(loop_depths(np.asarray(program.line_tokens, np.int32)).max(initial=0))


def trust_sentence(
    exit_mass: float | None, steps: int | None, trace_length: int | None, warnings: int, proved: bool | None = None
) -> str:
    """What an answer rests on, in one line.

    Args:
        exit_mass: Share of the pointer at the exit; None for a model without a pointer.
        steps: Steps that the model was given; None for a model whose steps do not depend on a budget.
        trace_length: Statements of the true trace; None if it is unknown.
        warnings: How many there are.
        proved: Whether it is proved that the program runs as the language says; None where proofs are no matter.
    """
    parts = ["no instruction pointer" if exit_mass is None else f"{exit_mass:.1%} of the pointer reached the exit"]
    if steps is not None:
        needed = "" if trace_length is None else f", the true trace needs {trace_length:,}"
        parts.append(f"{steps:,} steps given{needed}")
    if proved is not None:
        parts.append("every statement proved" if proved else "not every statement proved")
    parts.append({0: "no warning", 1: "1 warning"}.get(warnings, f"{warnings} warnings"))
    return "; ".join(parts)
