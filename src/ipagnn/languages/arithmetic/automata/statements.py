"""The statements that have automata, and how they are written."""

import numpy as np

from ipagnn.languages.arithmetic.automata.automaton import DIGITS, Statement
from ipagnn.languages.arithmetic.grammar import PAPER, Grammar
from ipagnn.languages.arithmetic.statements import COMPARISON, MODULAR
from ipagnn.languages.arithmetic.tables import grammar_statements, literal_facts
from ipagnn.languages.arithmetic.vocabulary import (
    ASSIGN,
    ASSIGNMENT_IDS,
    MAX_NUMBER,
    MULTIPLY,
    OPERATION_ID,
    WHILE_GREATER,
)


def grammar_automata(grammar: Grammar = PAPER) -> list[Statement]:
    """The statements whose automata say what all programs of a grammar do.

    Literals, arithmetic, conditions, and what counts loops. Where operands may be variables or numbers above 999, one
    automaton over pairs of digits stands for all operands.
    """
    if not grammar.is_extended:
        literals = [(ASSIGN, int(k)) for k in np.flatnonzero(literal_facts(grammar))]
        return [*literals, *((o, k) for o, k in grammar_statements(grammar).tolist())]
    names = [name for name in grammar.arithmetic_operations if name != "*="]
    if grammar.counters and "-=" not in names:
        names.append("-=")
    found: list[Statement] = [(OPERATION_ID[name], None) for name in ("=", *names)]
    if "*=" in grammar.arithmetic_operations:
        least, largest = grammar.operands if grammar.factors == (0, 0) else grammar.factors
        if largest > MAX_NUMBER:
            raise ValueError(f"The grammar multiplies by numbers up to {largest:,}; automata are for {MAX_NUMBER}.")
        found += [(MULTIPLY, None), *((MULTIPLY, k) for k in range(max(least, DIGITS), largest + 1))]
    for name in grammar.comparisons:
        found += [(OPERATION_ID[f"if {name}"], None)] if grammar.condition_variable else []
    for name in grammar.comparisons:
        least, largest = grammar.condition_operands
        found += [(OPERATION_ID[f"if {name} %"], k) for k in range(least, largest + 1)]
    return [*found, (WHILE_GREATER, 0)] if grammar.counters else found


def read_statement(text: str, grammar: Grammar = PAPER) -> Statement:
    """The id of the operation and the operand of a statement, as in `*= 7`, `if % 10 < 4` or `while v1 > 0`.

    An operand that is a variable, as in `+= v1`, is None.

    Raises:
        ValueError: The text is no statement of one line.
    """
    words = text.strip().removesuffix(":").split()
    names = [i for i, word in enumerate(words) if word[0] == "v" and word[1:].isdigit()]
    beside = bool(names) and names[-1] == len(words) - 1 > 0
    if beside:
        words[-1] = "0"
    words = [word for i, word in enumerate(words) if i not in names or (beside and i == len(words) - 1)]
    modulo = str(grammar.condition_modulus)
    if "%" in words and words[words.index("%") + 1 :][:1] == [modulo]:
        words = [*words[: words.index("%")], *words[words.index("%") + 2 :][:1], "%", *words[words.index("%") + 3 :]]
    name, operand = " ".join(words[:-1]), words[-1] if words else ""
    operation = OPERATION_ID.get(name)
    known = operation in COMPARISON or operation in ASSIGNMENT_IDS
    if operation is None or not known or not operand.isdecimal() or (beside and operation in MODULAR):
        raise ValueError(
            f"{text!r} is no statement; write one as in `*= 7`, `if % {modulo} < 4` or `while > 0`, with a number at "
            "its end, or as in `+= v1` or `if < v1`."
        )
    return operation, None if beside else int(operand)
