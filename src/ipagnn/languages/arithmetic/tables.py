"""What every statement does to every value, as tables: the semantics of a language, or what a model has learned of it.

A statement changes one variable, and what it does depends on that variable's value alone. For values modulo the
grammar's modulus the language is therefore a finite set of facts: what each literal gives, what each arithmetic
statement makes of each value, and what each condition decides on each value. The paper's grammar has 68,010 of them. A
model whose facts are all true executes every program of the grammar correctly, of whatever length.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from ipagnn.languages.arithmetic.grammar import PAPER, Grammar
from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.languages.arithmetic.statements import COMPARISON, MODULAR, apply, compare
from ipagnn.languages.arithmetic.vocabulary import (
    ASSIGN,
    ASSIGNMENT_IDS,
    MASK,
    MAX_NUMBER,
    NUMBER,
    OPERATION,
    OPERATION_ID,
    OPERATIONS,
    SUBTRACT,
    WHILE_GREATER,
)

MAX_TABULATED: Final = 10_000
"""Largest modulus of tables."""
MAX_ENTRIES: Final = 2**27
"""Entries that the tables of one grammar may have; each takes eight bytes."""

StatementArray = npt.NDArray[np.int16]
"""Statements, each as the id of its operation and its operand, a number. int16 [statement, 2]"""
Kind = Literal["literal", "arithmetic", "condition", "loop"]
"""Assignments; `+=`, `-=` and `*=`; conditions of an `if`; and what counts loops: `while vK > 0`."""


@dataclass(frozen=True, eq=False, slots=True)
class ValueTables:
    """What statements do to values, and how sure of it whoever made the tables is.

    Attributes:
        grammar: The language. Values are 0 to its modulus - 1. Variables start at 0.
        literals: What a variable is after `v = k`, by k. int32 [number]
        literal_probabilities: Probability of that value. float32 [number]
        statements: The statements that are tabulated, each once and no `=` among them. int16 [statement, 2]
        outcomes: By statement and value of its variable: the value afterwards of an arithmetic statement; of a
            condition 1 if it holds and 0 if not. int32 [statement, value]
        probabilities: Probability of that outcome. float32 [statement, value]
        choices: The statements that a masked line may have been, all of them tabulated. int16 [choice, 2]
        weights: The probability of each. float64 [choice]
    """

    grammar: Grammar
    literals: npt.NDArray[np.int32]
    literal_probabilities: npt.NDArray[np.float32]
    statements: StatementArray
    outcomes: npt.NDArray[np.int32]
    probabilities: npt.NDArray[np.float32]
    choices: StatementArray
    weights: npt.NDArray[np.float64]

    def __post_init__(self) -> None:
        numbers, values = MAX_NUMBER + 1, self.grammar.modulus
        shapes = {
            "literals": (numbers,),
            "literal_probabilities": (numbers,),
            "statements": (len(self.statements), 2),
            "outcomes": (len(self.statements), values),
            "probabilities": (len(self.statements), values),
            "choices": (len(self.choices), 2),
            "weights": (len(self.choices),),
        }
        for name, shape in shapes.items():
            found = getattr(self, name).shape
            if found != shape:
                raise ValueError(f"{name} has shape {found}; tables of this grammar have {shape}.")

    @classmethod
    def exact(cls, grammar: Grammar = PAPER, statements: StatementArray | None = None) -> Self:
        """The truth: every outcome right, with probability 1; a masked line is any arithmetic statement, all alike.

        A condition that compares a variable as it is (`v1 > 0`) is decided on its value modulo the modulus.

        Args:
            grammar: The language.
            statements: What to tabulate; by default the statements of the grammar.
        """
        asked = grammar_statements(grammar) if statements is None else statements
        check_size(grammar, len(asked))
        values = np.arange(grammar.modulus, dtype=np.int64)
        outcomes = np.empty((len(asked), grammar.modulus), np.int32)
        for row, (operation, operand) in enumerate(asked.tolist()):
            if operation in COMPARISON:
                compared = values % grammar.condition_modulus if operation in MODULAR else values
                outcomes[row] = compare(COMPARISON[operation], compared, operand)  # type: ignore[arg-type]
            else:
                outcomes[row] = apply(operation, values, operand) % grammar.modulus  # type: ignore[arg-type]
        literals = np.arange(MAX_NUMBER + 1, dtype=np.int32) % grammar.modulus
        choices = masked_choices(grammar)
        return cls(
            grammar,
            literals,
            np.ones(len(literals), np.float32),
            asked,
            outcomes,
            np.ones(outcomes.shape, np.float32),
            choices,
            np.full(len(choices), 1 / len(choices)),
        )

    @property
    def rows(self) -> npt.NDArray[np.int32]:
        """Where each statement is tabulated; -1 where it is not. int32 [operation - OPERATION, number]"""
        rows = np.full((len(OPERATIONS), MAX_NUMBER + 1), -1, np.int32)
        rows[self.statements[:, 0] - OPERATION, self.statements[:, 1]] = np.arange(len(self.statements))
        return rows

    def missing(self, statements: StatementArray) -> StatementArray:
        """Those of `statements` that are not tabulated."""
        return statements[self.rows[statements[:, 0] - OPERATION, statements[:, 1]] < 0]

    def joined(self, other: "ValueTables") -> "ValueTables":
        """The statements of these tables, and those of `other` that these lack."""
        new = np.flatnonzero(self.rows[other.statements[:, 0] - OPERATION, other.statements[:, 1]] < 0)
        return ValueTables(
            self.grammar,
            self.literals,
            self.literal_probabilities,
            np.concatenate([self.statements, other.statements[new]]),
            np.concatenate([self.outcomes, other.outcomes[new]]),
            np.concatenate([self.probabilities, other.probabilities[new]]),
            self.choices,
            self.weights,
        )


@dataclass(frozen=True, slots=True)
class Difference:
    """A fact on which two tables differ.

    Attributes:
        kind: What kind of statement it is about.
        statement: The statement as text; v0 and v1 stand for any variable.
        value: The variable's value before it; None for a literal, which does not depend on it.
        learned: What the tables say: the value afterwards, or for a condition 1 if it holds and 0 if not.
        true: What is true.
        probability: What the tables give for their outcome.
    """

    kind: Kind
    statement: str
    value: int | None
    learned: int
    true: int
    probability: float

    def __str__(self) -> str:
        decided = self.kind in ("condition", "loop")
        learned, true = (str(bool(x)).lower() if decided else str(x) for x in (self.learned, self.true))
        at = "" if self.value is None else f" at {self.value}"
        return f"{self.statement}{at}: learned {learned}, true {true}"


def differences(learned: ValueTables, exact: ValueTables | None = None) -> list[Difference]:
    """The facts of the grammar on which `learned` is wrong, in the order of `grammar_statements`; literals first.

    Args:
        learned: Tables that hold all statements of their grammar.
        exact: What is true; by default `ValueTables.exact` of the same grammar.
    """
    exact = exact or ValueTables.exact(learned.grammar)
    found = []
    literals = np.flatnonzero(literal_facts(learned.grammar))
    for k in literals[learned.literals[literals] != exact.literals[literals]].tolist():
        statement = statement_text(ASSIGN, k, learned.grammar)
        probability = float(learned.literal_probabilities[k])
        found.append(
            Difference("literal", statement, None, int(learned.literals[k]), int(exact.literals[k]), probability)
        )
    for (operation, operand), facts, row, true_row in _fact_rows(learned, exact):
        wrong = facts & (learned.outcomes[row] != exact.outcomes[true_row])
        for value in np.flatnonzero(wrong).tolist():
            found.append(
                Difference(
                    kind_of(operation),
                    statement_text(operation, operand, learned.grammar),
                    value,
                    int(learned.outcomes[row, value]),
                    int(exact.outcomes[true_row, value]),
                    float(learned.probabilities[row, value]),
                )
            )
    return found


def fact_counts(grammar: Grammar) -> dict[Kind, int]:
    """How many facts a grammar has, by kind."""
    counts: dict[Kind, int] = dict.fromkeys(get_args(Kind), 0)
    counts["literal"] = int(literal_facts(grammar).sum())
    for operation, operand in grammar_statements(grammar).tolist():
        counts[kind_of(operation)] += int(statement_facts(grammar, operation, operand).sum())
    return counts


def grammar_statements(grammar: Grammar = PAPER) -> StatementArray:
    """The statements of a grammar that has tables, other than assignments.

    They are arithmetic, conditions, and what counts loops.

    In the paper's grammar these are `v += k`, `v -= k` and `v *= k` for k from 1 to 9, `if v % 10 OP k` for four
    comparisons and k from 0 to 9, and `while v > 0`.
    """
    statements = masked_choices(grammar).tolist()
    if grammar.counters and [SUBTRACT, 1] not in statements:
        statements.append([SUBTRACT, 1])
    least, largest = grammar.condition_operands
    for comparison in grammar.comparisons:
        statements += [[OPERATION_ID[f"if {comparison} %"], k] for k in range(least, largest + 1)]
    if grammar.counters:
        statements.append([WHILE_GREATER, 0])
    return np.array(statements, np.int16).reshape(-1, 2)


def masked_choices(grammar: Grammar = PAPER) -> StatementArray:
    """What a masked line may have been: the arithmetic statements of a grammar, which it draws all equally often.

    None in languages past the paper's, which have too many.
    """
    if grammar.is_extended:
        return np.zeros((0, 2), np.int16)
    least, largest = grammar.operands
    operations = [OPERATION_ID[name] for name in grammar.arithmetic_operations]
    return np.array([(o, k) for o in operations for k in range(least, largest + 1)], np.int16).reshape(-1, 2)


def program_statements(table: ProgramTable) -> StatementArray:
    """The distinct statements of programs that a table is needed for: arithmetic ones and conditions.

    Raises:
        ValueError: The table is not made of programs, or a statement has a variable or a number above 999 on its right,
            or a variable from v10 on.
    """
    table.check(extended=True)
    operations = table.line_tokens[:, 1].astype(np.int64)
    needed = np.isin(operations, [*ASSIGNMENT_IDS[1:], *COMPARISON])
    statements = table.line_tokens[needed | (operations == ASSIGN)]
    if (statements[:, 3] > NUMBER + MAX_NUMBER).any() or (statements[:, 2] > MASK).any() or statements[:, 4:].any():
        raise ValueError(
            "Some statement is of no language that has tables: it has a variable or a number above 999 on its right, "
            "or a variable from v10 on. Run these programs with a budget of steps instead."
        )
    numbers = table.line_tokens[needed, 3].astype(np.int64) - NUMBER
    distinct = np.unique(operations[needed] * (MAX_NUMBER + 1) + numbers)
    return np.stack(np.divmod(distinct, MAX_NUMBER + 1), axis=1).astype(np.int16)


def literal_facts(grammar: Grammar) -> npt.NDArray[np.bool_]:
    """Which literals the grammar assigns: first values, and rounds of loops. [number]"""
    facts = np.zeros(MAX_NUMBER + 1, np.bool_)
    ranges = [grammar.initial_values, grammar.loop_counts] if grammar.counters else [grammar.initial_values]
    for least, largest in ranges:
        facts[least : largest + 1] = True
    return facts


def statement_facts(grammar: Grammar, operation: int, operand: int) -> npt.NDArray[np.bool_]:
    """The values on which the grammar's programs can meet a statement: all of v0, and of counters those counted.

    bool [value]
    """
    facts = np.ones(grammar.modulus, np.bool_)
    on_v0 = operation in MODULAR or [operation, operand] in masked_choices(grammar).tolist()
    if not on_v0:
        facts[grammar.loop_counts[1] + 1 :] = False
        facts[0] = operation in COMPARISON  # a loop that counts has rounds left
    return facts


def kind_of(operation: int) -> Kind:
    """The kind of the statements with an operation, by its id."""
    if operation == ASSIGN:
        return "literal"
    if operation in ASSIGNMENT_IDS[1:]:
        return "arithmetic"
    return "condition" if OPERATIONS[operation - OPERATION].startswith("if") else "loop"


def statement_text(operation: int, operand: int | None, grammar: Grammar = PAPER, variable: int | None = None) -> str:
    """A statement as text; without a variable, `v1` in the loops of the grammar and `v0` elsewhere.

    An operand of None is a variable, `v1`.
    """
    right = "v1" if operand is None else f"{operand}"
    name = OPERATIONS[operation - OPERATION]
    shown = f"v{int(kind_of(operation) == 'loop' and operand is not None) if variable is None else variable}"
    if operation not in COMPARISON:
        return f"{shown} {name} {right}"
    keyword, comparison, *modulo = name.split()
    return f"{keyword} {shown}{f' % {grammar.condition_modulus}' if modulo else ''} {comparison} {right}"


def refusal(grammar: Grammar) -> str | None:
    """Why a grammar has no tables, as a sentence; None if it has."""
    if grammar.is_extended:
        return (
            "Tables are for languages in which a statement combines one variable with a number of at most three "
            "digits; this grammar goes past that."
        )
    if grammar.modulus > MAX_TABULATED:
        return (
            f"The modulus is {grammar.modulus:,}; tables have an entry for each value, and {MAX_TABULATED:,} at most."
        )
    return None


def check_size(grammar: Grammar, statements: int) -> None:
    """Refuse tables of a grammar that has none, or that would not fit into memory.

    Raises:
        ValueError: `refusal` says why, or there would be more than `MAX_ENTRIES` entries.
    """
    why = refusal(grammar)
    if why is not None:
        raise ValueError(why)
    if grammar.modulus * statements > MAX_ENTRIES:
        raise ValueError(
            f"Tables of {statements:,} statements on {grammar.modulus:,} values have more than {MAX_ENTRIES:,} "
            "entries; choose a smaller modulus, or fewer operands."
        )


def _fact_rows(
    learned: ValueTables, exact: ValueTables
) -> Iterator[tuple[tuple[int, int], npt.NDArray[np.bool_], int, int]]:
    """Each statement of the grammar, the values that count, and its rows in both tables."""
    statements = grammar_statements(learned.grammar)
    for name, tables in (("learned", learned), ("exact", exact)):
        missing = tables.missing(statements)
        if len(missing):
            operation, operand = missing[0].tolist()
            text = statement_text(operation, operand, tables.grammar)
            raise ValueError(f"The {name} tables lack `{text}`, which is a statement of their grammar; tabulate it.")
    rows, true_rows = learned.rows, exact.rows
    for operation, operand in statements.tolist():
        facts = statement_facts(learned.grammar, operation, operand)
        at = operation - OPERATION, operand
        yield (operation, operand), facts, int(rows[at]), int(true_rows[at])
