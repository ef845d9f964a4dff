"""The token ids of a statement: four per line, `(indent, operation, variable, operand)`.

The ids are those of the authors' release, so that data made here and data made there can be exchanged. Indents and
operands share one range; `MASK` stands in the operation and the variable slot of a masked line.
"""

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
IF_GREATER: Final = OPERATION_ID["if > %"]
IF_LESS: Final = OPERATION_ID["if < %"]
IF_GREATER_EQUAL: Final = OPERATION_ID["if >= %"]
IF_LESS_EQUAL: Final = OPERATION_ID["if <= %"]

WITHOUT_NODE: Final = frozenset({ELSE, PASS, CONTINUE, BREAK})
"""Operations whose lines have no node in the control flow graph; edges go through them."""
IF_OPERATIONS: Final = frozenset(i for name, i in OPERATION_ID.items() if name.startswith("if "))
WHILE_OPERATIONS: Final = frozenset(i for name, i in OPERATION_ID.items() if name.startswith("while "))
