"""What programs of a grammar may be written with."""

import re
from dataclasses import dataclass

from ipagnn.languages.arithmetic.grammar import Grammar
from ipagnn.languages.arithmetic.vocabulary import ASSIGNMENTS, MAX_LITERAL, MAX_NUMBER, VARIABLES

_VARIABLE = re.compile(r"v(?:0|[1-9][0-9]?)")


@dataclass(frozen=True, slots=True)
class Syntax:
    """What programs of a grammar may be written with, beyond what that grammar draws.

    Attributes:
        condition_modulus: The number after `%`.
        variables: How many variables there are.
        largest: The largest number.
        variable_operands: Whether a variable may stand on the right of `=`, `+=`, `-=` and `*=`.
        variable_conditions: Whether a condition may compare two variables.
        result: The variable whose final value is the program's.
    """

    condition_modulus: int
    variables: int = VARIABLES
    largest: int = MAX_NUMBER
    variable_operands: bool = False
    variable_conditions: bool = False
    result: int = 0

    @staticmethod
    def of(grammar: Grammar) -> "Syntax":
        """What a grammar's programs may be written with."""
        return Syntax(
            grammar.condition_modulus,
            max(VARIABLES, grammar.counter_names.stop),
            MAX_LITERAL if grammar.tokens > 4 else MAX_NUMBER,
            bool(grammar.operand_variable),
            bool(grammar.condition_variable),
            grammar.target_variable,
        )

    @property
    def variable(self) -> str:
        """The variables, in words."""
        return f"a variable v0 to v{self.variables - 1}"

    @property
    def number(self) -> str:
        """The numbers, in words."""
        return f"a whole number from 0 to {self.largest}"

    @property
    def statement(self) -> str:
        """The statements, in words."""
        right = "N" if not self.variable_operands else "N or vJ"
        assignments = ", ".join(f"`vK {name} {right}`" for name in ASSIGNMENTS)
        return (
            f"a statement, which is {assignments}, "
            "`if CONDITION:`, `else:`, `while CONDITION:`, `pass`, `break`, `continue` or `[MASK]`, with K from 0 to "
            f"{self.variables - 1}"
        )

    def index(self, name: str) -> int | None:
        """`k` of `vk`; None for what is no variable."""
        if not _VARIABLE.fullmatch(name):
            return None
        return k if (k := int(name[1:])) < self.variables else None
