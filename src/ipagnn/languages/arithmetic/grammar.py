"""The probabilistic grammar that programs are drawn from, and the lengths they are drawn with.

Weights are whole numbers, so that every choice is exact and the same on every machine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final

from ipagnn._common.options import options_from_dict, options_to_dict
from ipagnn.languages.arithmetic.vocabulary import ASSIGNMENTS, MAX_LITERAL, MAX_NUMBER, VARIABLES, number_ids

MAX_MODULUS: Final = 10**18
MAX_CONDITION_MODULUS: Final = 100_000
MAX_DATA_VARIABLES: Final = 10
MAX_WEIGHT: Final = 1_000_000
MAX_TOTAL: Final = 2**31 - 1
"""Largest sum of weights that a choice is made from."""
MAX_BLOCK_LIMIT: Final = 1_000_000
MIN_LENGTH: Final = 2
MAX_LENGTH: Final = 1_000
"""A program of this length can be nested as deep as the vocabulary has indents."""

COMPARISONS: Final = (">", "<", ">=", "<=")


@dataclass(frozen=True)
class Grammar:
    """The language: what may be drawn, and how often. The defaults are the paper's language.

    Programs are refined from holes: STMT (one statement), BLOCK (the body of an `if`, `else` or `while`), STMTS
    (statements, possibly none) and STMTS_NONEMPTY (a STMT and then STMTS, the only choice it has). The `hole_` weights
    say which hole is refined next; the others say what it becomes, among the choices that still fit.

    Attributes:
        modulus: The target is v0 modulo this; also the number of classes of a model with one output per value. At most
            10**18.
        condition_modulus: Conditions look at v0 modulo this. It must divide `modulus`, so that v0 modulo `modulus` is
            all that execution needs. Tokens do not carry it; text spells it out (`v0 % 10`).
        initial_values: Least and largest first value of v0, drawn uniformly.
        operands: Least and largest constant of an arithmetic line, drawn uniformly.
        condition_operands: Least and largest constant of a condition, drawn uniformly.
        loop_counts: Least and largest number of rounds of a loop, drawn uniformly.
        counters: Number of variables v1, v2, ... for loops to count with, and so the deepest nesting of loops.
        arithmetic_operations: Operations of arithmetic lines, drawn uniformly.
        comparisons: Comparisons of conditions, drawn uniformly.
        hole_stmt: Weight at which a STMT is the next hole to be refined.
        hole_block: The same for a BLOCK.
        hole_stmts: The same for a STMTS.
        hole_stmts_nonempty: The same for a STMTS_NONEMPTY.
        stmt_pass: Weight of a STMT becoming `pass` (1 line).
        stmt_arithmetic: Weight of a STMT becoming an arithmetic line (1 line).
        stmt_repeat: Weight of a STMT becoming a loop (at least 4 lines; only while a counter is free).
        stmt_if: Weight of a STMT becoming an `if` (at least 2 lines).
        stmt_if_else: Weight of a STMT becoming an `if` with an `else` (at least 4 lines).
        block_break: Weight of a BLOCK becoming STMTS and a `break` (inside loops only).
        block_continue: Weight of a BLOCK becoming STMTS and a `continue` (inside loops only).
        block_plain: Weight of a BLOCK becoming STMTS_NONEMPTY.
        stmts_nonempty: Weight of STMTS becoming STMTS_NONEMPTY.
        stmts_stmt: Weight of STMTS becoming one last STMT.
        stmts_nothing: Weight of STMTS becoming nothing.
        block_limit: A program that executes more basic blocks than this has the target 1, as in the authors' data,
            whose limit is 200; 0 gives every program its true value. The programs are the same, whatever the limit.
        variables: Most data variables of a program, v0, v1, ...; counters have the names after these. A program begins
            by assigning some of them: the target variable and, of the others, as many as a uniform choice says.
        target_variable: The variable whose final value is the target.
        digit_variables: How many of the data variables, the last ones, hold a digit in 0..9. They are assigned only.
        operand_number: Weight at which the operand of an arithmetic line is a number.
        operand_variable: Weight at which it is a variable: for `*=` a digit variable of the program, for the others any
            other data variable or the counter of a loop around; a number if there is none.
        factors: Least and largest constant of `*=`; (0, 0) stands for `operands`.
        by_digits: Whether the constants of `initial_values`, `operands` and `factors` are drawn by first drawing how
            many digits they have, each number of digits alike.
        condition_number: Weight at which a condition compares a data variable modulo `condition_modulus` with a number.
        condition_variable: Weight at which it compares two data variables: `v1 < v2`.
        stmt_assign: Weight of a STMT becoming an assignment of a number to a data variable (1 line).
        wrap: Whether every assignment takes its result modulo `modulus`. Conditions on a remainder and the target are
            the same either way, conditions between variables are not, and need it.
    """

    modulus: int = 1000
    condition_modulus: int = 10
    initial_values: tuple[int, int] = (0, 999)
    operands: tuple[int, int] = (1, 9)
    condition_operands: tuple[int, int] = (0, 9)
    loop_counts: tuple[int, int] = (2, 9)
    counters: int = 9
    arithmetic_operations: tuple[str, ...] = ("+=", "-=", "*=")
    comparisons: tuple[str, ...] = COMPARISONS
    hole_stmt: int = 100
    hole_block: int = 10
    hole_stmts: int = 1
    hole_stmts_nonempty: int = 100
    stmt_pass: int = 1
    stmt_arithmetic: int = 15
    stmt_repeat: int = 5
    stmt_if: int = 5
    stmt_if_else: int = 5
    block_break: int = 5
    block_continue: int = 5
    block_plain: int = 30
    stmts_nonempty: int = 8
    stmts_stmt: int = 1
    stmts_nothing: int = 1
    block_limit: int = 0
    variables: int = 1
    target_variable: int = 0
    digit_variables: int = 0
    operand_number: int = 1
    operand_variable: int = 0
    factors: tuple[int, int] = (0, 0)
    by_digits: bool = False
    condition_number: int = 1
    condition_variable: int = 0
    stmt_assign: int = 0
    wrap: bool = False

    def __post_init__(self) -> None:
        _check_integer("modulus", self.modulus, 1, MAX_MODULUS)
        _check_integer("condition_modulus", self.condition_modulus, 1, min(self.modulus, MAX_CONDITION_MODULUS))
        if self.modulus % self.condition_modulus:
            raise ValueError(
                f"condition_modulus is {self.condition_modulus}, which does not divide modulus, {self.modulus}; "
                "conditions could then not be decided from v0 modulo modulus. Choose a divisor."
            )
        for name in ("initial_values", "operands", "factors"):
            _check_range(name, getattr(self, name), MAX_LITERAL)
        for name in ("condition_operands", "loop_counts"):
            _check_range(name, getattr(self, name), MAX_NUMBER)
        _check_integer("counters", self.counters, 0, VARIABLES - 1)
        _check_names("arithmetic_operations", self.arithmetic_operations, ASSIGNMENTS[1:])
        _check_names("comparisons", self.comparisons, COMPARISONS)
        _check_integer("block_limit", self.block_limit, 0, MAX_BLOCK_LIMIT)
        for field in fields(self):
            if field.name.startswith("hole_"):  # a hole that is never chosen would never be filled
                _check_integer(field.name, getattr(self, field.name), 1, MAX_WEIGHT)
            elif field.name.startswith(("stmt_", "block_", "stmts_")) and field.name != "block_limit":
                _check_integer(field.name, getattr(self, field.name), 0, MAX_WEIGHT)
        self._check_variables()
        if self.stmt_pass + self.stmt_arithmetic == 0:
            raise ValueError(
                "stmt_pass and stmt_arithmetic are both 0, so no program could ever end; let one of them be 1 or more."
            )

    def _check_variables(self) -> None:
        _check_integer("variables", self.variables, 1, MAX_DATA_VARIABLES)
        _check_integer("digit_variables", self.digit_variables, 0, self.variables - 1)
        _check_integer("target_variable", self.target_variable, 0, self.variables - self.digit_variables - 1)
        for number, variable in (("operand_number", "operand_variable"), ("condition_number", "condition_variable")):
            for name in (number, variable):
                _check_integer(name, getattr(self, name), 0, MAX_WEIGHT)
            if getattr(self, number) + getattr(self, variable) == 0:
                raise ValueError(f"{number} and {variable} are both 0; let one of them be 1 or more.")
        for name in ("by_digits", "wrap"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be true or false.")
        if self.condition_variable and not self.wrap:
            raise ValueError(
                "condition_variable is above 0 and wrap is false; the values that such conditions compare could then "
                "grow without bound. Set wrap."
            )
        if self.wrap and self.loop_counts[1] >= self.modulus:
            raise ValueError(
                f"loop_counts is {self.loop_counts!r}, modulus is {self.modulus} and wrap is set; loops cannot count "
                "so far. Choose a larger modulus."
            )
        if self.is_extended and self.block_limit:
            raise ValueError(
                f"block_limit is {self.block_limit}; it is for the authors' labels of the paper's language, and this "
                "grammar goes past it. Set it to 0."
            )

    @cached_property
    def is_extended(self) -> bool:
        """Whether programs go past the paper's language: more data variables, other operands, larger numbers, ..."""
        return self.tokens > 4 or any(getattr(self, name) != default for name, default in _EXTENSIONS.items())

    @cached_property
    def tokens(self) -> int:
        """Tokens of a line: four, and more if numbers above 999 may be drawn."""
        return 3 + len(number_ids(max(self.initial_values[1], self.operands[1], self.factors[1])))

    @property
    def counter_names(self) -> range:
        """The variables that count loops."""
        return range(self.variables, self.variables + self.counters)

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON knows them; `from_dict` reads it back.

        Fields that go past the paper's language are left out where they have their defaults, so that models and data
        sets of before keep their files and fingerprints.
        """
        values = options_to_dict(self)
        return {key: x for key, x in values.items() if key not in _EXTENSIONS or getattr(self, key) != _EXTENSIONS[key]}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "Grammar":
        """A grammar from some or all of its fields by name; those not named keep the paper's values."""
        return options_from_dict(Grammar, values)


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution over program lengths.

    Attributes:
        lengths: Lengths in lines, the first line `v0 = ...` included.
        weights: How often each of them is drawn, as whole numbers in proportion.
    """

    lengths: tuple[int, ...]
    weights: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.lengths or len(self.lengths) != len(self.weights):
            raise ValueError(
                f"There are {len(self.lengths)} lengths and {len(self.weights)} weights; give at least one length, and "
                "one weight for each."
            )
        for length in self.lengths:
            _check_integer("A length", length, MIN_LENGTH, MAX_LENGTH)
        for weight in self.weights:
            _check_integer("The weight of a length", weight, 1, MAX_TOTAL)
        if sum(self.weights) > MAX_TOTAL:
            raise ValueError(
                f"The weights of the lengths sum to {sum(self.weights)}; the sum may be {MAX_TOTAL} at most."
            )
        if len(set(self.lengths)) != len(self.lengths):
            raise ValueError(f"A length is named twice in {self.lengths}; name each once and give it its weight.")

    @property
    def longest(self) -> int:
        """The largest of the lengths."""
        return max(self.lengths)

    @staticmethod
    def exact(length: int) -> "Lengths":
        """Always `length` lines."""
        return Lengths((length,), (1,))

    @staticmethod
    def uniform(lengths: Sequence[int]) -> "Lengths":
        """Each of `lengths` equally often."""
        return Lengths(tuple(lengths), (1,) * len(lengths))

    @staticmethod
    def training(longest: int = 10) -> "Lengths":
        """The paper's training lengths up to C = `longest`.

        C with probability 0.9, C - 1 with 0.05, C - 2 with 0.025 and so on, halving at most 20 times; the rest at 2.
        """
        _check_integer("The longest training length", longest, MIN_LENGTH, MAX_LENGTH)
        if longest == MIN_LENGTH:
            return Lengths.exact(longest)
        halvings = min(longest - MIN_LENGTH - 1, 20)
        tail = [2**k for k in range(halvings - 1, -1, -1)]
        lengths = range(longest, longest - halvings - 1, -1)
        return Lengths((*lengths, MIN_LENGTH), (9 * 2**halvings, *tail, 1))


def _check_integer(name: str, value: object, least: int, largest: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= largest:
        raise ValueError(f"{name} is {value!r}; it must be a whole number from {least} to {largest}.")


def _check_range(name: str, value: object, largest: int) -> None:
    whole = isinstance(value, tuple) and len(value) == 2 and all(type(x) is int for x in value)
    if not whole or not 0 <= value[0] <= value[1] <= largest:  # type: ignore[index]
        raise ValueError(
            f"{name} is {value!r}; it must be two whole numbers, the least and the largest, from 0 to {largest}."
        )


def _check_names(name: str, value: object, accepted: tuple[str, ...]) -> None:
    fine = isinstance(value, tuple) and bool(value) and all(isinstance(each, str) for each in value)
    if not fine or len(set(value)) != len(value) or not set(value) <= set(accepted):  # type: ignore[call-overload, arg-type]
        raise ValueError(f"{name} is {value!r}; it must be one or more of {', '.join(accepted)}, each at most once.")


_NAMES: Final = (
    *("variables", "target_variable", "digit_variables", "operand_number", "operand_variable", "factors", "by_digits"),
    *("condition_number", "condition_variable", "stmt_assign", "wrap"),
)
_EXTENSIONS: Final[dict[str, Any]] = {field.name: field.default for field in fields(Grammar) if field.name in _NAMES}
"""Fields that go past the paper's language, and their values in it."""

PAPER: Final = Grammar()
"""The language of the paper."""
AUTHORS: Final = Grammar(block_limit=200)
"""The same programs with the labels of the authors' data."""
