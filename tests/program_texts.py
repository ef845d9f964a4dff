"""Programs as text that hypothesis draws: any shape, with loops that end, loops that do not, and dead code."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from hypothesis import strategies as st


class Forms(NamedTuple):
    """What the statements of a program look like.

    Attributes:
        arithmetic: Draws a statement of arithmetic.
        condition: Draws what stands between `if` or `while` and the colon.
        counter: Which variable counts the rounds of a loop at a depth.
        simple: Statements without a body, each as often as it stands here.
    """

    arithmetic: Callable[[], str]
    condition: Callable[[], str]
    counter: Callable[[int], int]
    simple: tuple[str, ...] = ("arithmetic", "pass")


def block(draw: st.DrawFn, forms: Forms, depth: int = 0, in_loop: bool = False) -> Iterator[str]:
    """Lines of one to three statements and of what they hold."""
    indent = "  " * depth
    for _ in range(draw(st.integers(1, 3))):
        kinds = [*forms.simple, *["if", "if-else", "while", "repeat"] * (depth < 3), *["break", "continue"] * in_loop]
        kind = draw(st.sampled_from(kinds))
        if kind == "arithmetic":
            yield indent + forms.arithmetic()
        elif kind == "repeat":
            counter = forms.counter(depth)
            yield f"{indent}v{counter} = {draw(st.integers(0, 9))}"
            yield f"{indent}while v{counter} > 0:"
            yield f"{indent}  v{counter} -= 1"
            yield from block(draw, forms, depth + 1, True)
        elif kind in ("if", "if-else", "while"):
            yield f"{indent}{kind.removesuffix('-else')} {forms.condition()}:"
            yield from block(draw, forms, depth + 1, in_loop or kind == "while")
            if kind == "if-else":
                yield f"{indent}else:"
                yield from block(draw, forms, depth + 1, in_loop)
        else:
            yield indent + kind


@st.composite
def paper_sources(draw: st.DrawFn) -> str:
    """Programs of the paper's language."""
    numbers = st.integers(0, 9) | st.integers(0, 999)
    variables = st.integers(0, 3)

    def arithmetic() -> str:
        return f"v{draw(variables)} {draw(st.sampled_from(['=', '+=', '-=', '*=']))} {draw(numbers)}"

    def condition() -> str:
        modulo, comparison = draw(st.sampled_from(["", " % 10"])), draw(st.sampled_from([">", "<", ">=", "<="]))
        return f"v{draw(variables)}{modulo} {comparison} {draw(numbers)}"

    forms = Forms(arithmetic, condition, lambda depth: draw(variables))
    lines = [f"v{k} = {draw(numbers)}" for k in range(4)]
    if draw(st.booleans()):  # three rounds from the same start, so that inner loops meet states they know
        lines += ["v9 = 3", "while v9 > 0:", "  v9 -= 1", *(f"  v{k} = {draw(numbers)}" for k in range(1, 4))]
        lines += block(draw, forms, 1, True)
    else:
        lines += block(draw, forms)
    return "\n".join(lines)


@st.composite
def extended_sources(draw: st.DrawFn) -> str:
    """Programs with every form of statement past the paper's, that mostly end."""
    numbers = st.integers(0, 9) | st.integers(0, 2_000) | st.integers(0, 10**12)
    variables = st.integers(0, 4)

    def operand() -> str:
        return draw(numbers.map(str) | variables.map("v{}".format))

    def arithmetic() -> str:
        operator = draw(st.sampled_from(["=", "+=", "-=", "*="]))
        right = str(draw(st.integers(0, 9))) if operator == "*=" else operand()
        return f"v{draw(variables)} {operator} {right}"

    def condition() -> str:
        comparison = draw(st.sampled_from([">", "<", ">=", "<="]))
        remainder = draw(st.booleans())
        return f"v{draw(variables)}{' % 10' * remainder} {comparison} {draw(numbers) if remainder else operand()}"

    forms = Forms(arithmetic, condition, lambda depth: 5 + depth, ("arithmetic", "arithmetic", "pass"))
    return "\n".join([*(f"v{k} = {draw(numbers)}" for k in range(5)), *block(draw, forms)])
