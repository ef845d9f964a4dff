"""The token ids of a statement: four per line, `(indent, operation, variable, operand)`.

The ids are those of the authors' release, so that data made here and data made there can be exchanged. Indents and
operands share one range; `MASK` stands in the operation and the variable slot of a masked line.

Languages past the paper's have more: variables from v10 on, a variable in the operand slot, and numbers above 999. Such
a number is written with base 1,000: its lowest part in the operand slot, the others in further slots, padded with 0.
"""

from collections.abc import Sequence
from typing import Final

VOCABULARY_VERSION: Final = 1
"""Rises when an id changes its meaning; stored with every weight file and data set."""

PADDING: Final = 0
NUMBER: Final = 1
"""Id of the number 0: an indent or an operand `k` is `NUMBER + k`."""
MAX_NUMBER: Final = 999
MAX_LINES: Final = 10_000
"""Statements a program may have."""

OPERATIONS: Final[tuple[str, ...]] = (
    *("+=", "-=", "*=", "=", ">", ">=", "<", "<=", "= %", "> %", ">= %", "< %", "<= %", "if", "else", "while"),
    *("if >", "if <", "while >", "while <", "if >=", "if <=", "while >=", "while <="),
    *("if > %", "if < %", "while > %", "while < %", "if >= %", "if <= %", "while >= %", "while <= %"),
    *("pass", "continue", "break"),
)
"""Operations in the order of their ids; `%` marks a condition on `v % 10` rather than on `v`."""

OPERATION: Final = 1001
"""Id of the first operation."""
OPERATION_ID: Final[dict[str, int]] = {name: OPERATION + i for i, name in enumerate(OPERATIONS)}

VARIABLE: Final = 1036
"""Id of `v0`: the variable `vk` is `VARIABLE + k`."""
VARIABLES: Final = 10

MASK: Final = 1047
VOCABULARY_SIZE: Final = 1048
"""Number of ids in the paper's language."""

MAX_VARIABLES: Final = 20
"""Variables of any language: v10 to v19 have the ids after the paper's."""
EXTENDED_VOCABULARY_SIZE: Final = VOCABULARY_SIZE + MAX_VARIABLES - VARIABLES
BASE: Final = MAX_NUMBER + 1
"""Base in which a large number is written."""
MAX_LITERAL: Final = 10**18 - 1
"""Largest number of any language."""

ASSIGNMENTS: Final = ("=", "+=", "-=", "*=")
"""Operations that change a variable; all but the first read it."""
ASSIGNMENT_IDS: Final = tuple(OPERATION_ID[name] for name in ASSIGNMENTS)

# Plain integers for compiled code, which sees no dictionary.
ADD: Final = OPERATION_ID["+="]
SUBTRACT: Final = OPERATION_ID["-="]
MULTIPLY: Final = OPERATION_ID["*="]
ASSIGN: Final = OPERATION_ID["="]
ELSE: Final = OPERATION_ID["else"]
PASS: Final = OPERATION_ID["pass"]
CONTINUE: Final = OPERATION_ID["continue"]
BREAK: Final = OPERATION_ID["break"]
WHILE_GREATER: Final = OPERATION_ID["while >"]

WITHOUT_NODE: Final = frozenset({ELSE, PASS, CONTINUE, BREAK})
"""Operations whose lines have no node in the control flow graph; edges go through them."""
IF_OPERATIONS: Final = frozenset(i for name, i in OPERATION_ID.items() if name.startswith("if "))
WHILE_OPERATIONS: Final = frozenset(i for name, i in OPERATION_ID.items() if name.startswith("while "))


def variable_id(variable: int) -> int:
    """Id of the variable `v{variable}`."""
    return VARIABLE + variable if variable < VARIABLES else VOCABULARY_SIZE + variable - VARIABLES


def variable_of(token: int) -> int:
    """The variable that has an id; `variable_id` backwards."""
    return token - VARIABLE if token < MASK else token - VOCABULARY_SIZE + VARIABLES


def number_ids(number: int) -> list[int]:
    """Ids of a number: one up to 999, and one more for every three digits beyond, the lowest first."""
    ids = [NUMBER + number % BASE]
    while number := number // BASE:
        ids.append(NUMBER + number % BASE)
    return ids


def number_of(ids: Sequence[int]) -> int:
    """The number that has these ids; 0 is none. `number_ids` backwards."""
    return sum((token - NUMBER) * BASE**place for place, token in enumerate(ids) if token)
