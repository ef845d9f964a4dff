"""What a statement does to a value: the only place where the language's arithmetic and comparisons are written.

The functions are plain Python on integers of any size; `_compiled/statements.py` compiles the same functions.
"""

from typing import Final

from ipagnn.languages.arithmetic.vocabulary import ADD, MULTIPLY, OPERATION_ID, SUBTRACT

GREATER: Final = 0
LESS: Final = 1
GREATER_EQUAL: Final = 2
LESS_EQUAL: Final = 3

COMPARISON: Final[dict[int, int]] = {
    OPERATION_ID[f"{keyword} {comparison}{remainder}"]: code
    for keyword in ("if", "while")
    for code, comparison in enumerate((">", "<", ">=", "<="))
    for remainder in ("", " %")
}
"""By operation id, for conditions only: GREATER, LESS, GREATER_EQUAL or LESS_EQUAL."""
MODULAR: Final = frozenset(i for name, i in OPERATION_ID.items() if i in COMPARISON and name.endswith("%"))
"""Operation ids of the conditions that compare a variable modulo the grammar's condition modulus."""


def apply(operation: int, value: int, operand: int) -> int:
    """The new value of a variable after `+=`, `-=`, `*=` or, for any other operation, `=`."""
    if operation == ADD:
        return value + operand
    if operation == SUBTRACT:
        return value - operand
    if operation == MULTIPLY:
        return value * operand
    return operand


def compare(comparison: int, value: int, operand: int) -> bool:
    """Whether `value` stands in the given relation to `operand`; codes as in `COMPARISON`."""
    if comparison == GREATER:
        return value > operand
    if comparison == LESS:
        return value < operand
    if comparison == GREATER_EQUAL:
        return value >= operand
    return value <= operand
