"""Statements as automata over digits: what they are, what is true, what was learned, and a proof that both agree."""

from typing import TYPE_CHECKING

from ipagnn._common.lazy import import_lazily

if TYPE_CHECKING:
    from ipagnn.languages.arithmetic.automata.automaton import DIGITS, PAIRS, Automaton, Statement
    from ipagnn.languages.arithmetic.automata.comparison import (
        Disagreement,
        Proof,
        claim,
        disagreement,
        disagreement_at,
        prove,
    )
    from ipagnn.languages.arithmetic.automata.definition import true_automaton
    from ipagnn.languages.arithmetic.automata.extraction import extract, extract_pairs
    from ipagnn.languages.arithmetic.automata.statements import grammar_automata, read_statement

__all__ = [
    "DIGITS",
    "PAIRS",
    "Automaton",
    "Disagreement",
    "Proof",
    "Statement",
    "claim",
    "disagreement",
    "disagreement_at",
    "extract",
    "extract_pairs",
    "grammar_automata",
    "prove",
    "read_statement",
    "true_automaton",
]

import_lazily(__name__)
