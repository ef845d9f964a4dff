"""The language card: all forms of statements, with examples. Help pages, documents and the page show it."""

from typing import Final, NamedTuple

from ipagnn.languages.arithmetic.grammar import PAPER, Grammar
from ipagnn.languages.arithmetic.syntax import Syntax

DIGITS_MODEL: Final = "env-ipa-gnn-any"
"""The model in the package whose values are digits."""
EXTENDED_MODEL: Final = "env-ipa-gnn-extended"
"""The one of them whose language goes past the paper's."""


class Form(NamedTuple):
    """A form of statement.

    Attributes:
        text: An example.
        meaning: What it does, and which of its operands packaged models were trained on.
    """

    text: str
    meaning: str


class Example(NamedTuple):
    """A program to begin with.

    Attributes:
        name: A few words.
        source: The program.
        about: What it shows, in one or two sentences.
        model: The packaged model that it is for; None for the default.
        compare: A second packaged model to compare it with.
    """

    name: str
    source: str
    about: str
    model: str | None = None
    compare: str | None = None


def forms(grammar: Grammar = PAPER) -> tuple[Form, ...]:
    """All forms of statements of a grammar."""
    syntax, names = Syntax.of(grammar), grammar.counter_names
    result, counter = f"v{grammar.target_variable}", f"v{names.start}"
    operations = grammar.arithmetic_operations
    also = [f"`{name}`" for name in operations[1:]]
    data = "v0" if grammar.variables == 1 else f"v0 to v{grammar.variables - 1}"
    least, largest = grammar.operands
    rounds = "{} to {}".format(*grammar.loop_counts)
    modulo = f" % {grammar.condition_modulus}"
    return (
        Form(f"{result} = 7", f"assign a number, 0 to {_large(syntax.largest)}, to a variable, v0 to "
             f"v{syntax.variables - 1}; the first line assigns {result}"),
        Form(f"{result} {operations[0]} 3", f"{_WORDS[operations[0]]}{'; also ' if also else ''}{' and '.join(also)}. "
             f"Models are trained on {data} with operands {_large(least)} to {_large(largest)}"),
        *([Form("v0 += v1", "a variable on the right; also `-=`, and `*=` if it holds a digit")]
          if grammar.operand_variable else []),
        Form(f"if {result}{modulo} > 5:",
             "run the indented lines below if the condition holds; also `<`, `>=`, `<=`; "
             f"`{modulo.strip()}` is optional"),
        *([Form("if v0 < v1:", "compare two variables; also `>`, `>=`, `<=`")] if grammar.condition_variable else []),
        Form("else:", "run the indented lines below if it does not hold"),
        *([Form(f"while {counter} > 0:", f"repeat the indented lines below; for 4 rounds write `{counter} = 4` above "
                f"it and `{counter} -= 1` as its first line. Models are trained on {rounds} rounds")]
          if grammar.counters else []),
        Form("break", "leave the loop; `continue` starts its next round, `pass` does nothing"),
        *([] if grammar.is_extended else [Form("[MASK]", "an unknown statement, also written `_`: the answer is a "
                                               "distribution over all results")]),
        Form("# text", "a comment, on its own line or after a statement"),
        *([Form(f"{result} *= 3", f"every assignment takes its result modulo {_large(grammar.modulus)}")]
          if grammar.wrap else []),
    )  # fmt: skip


def _large(number: int) -> str:
    """A number, a power of ten or one less in short if it is long."""
    for less, shown in ((0, ""), (1, " - 1")):
        zeros = str(number + less)[1:]
        if len(zeros) > 5 and str(number + less) == f"1{'0' * len(zeros)}":
            return f"10^{len(zeros)}{shown}"
    return str(number)


_WORDS: Final = {"+=": "add", "-=": "subtract", "*=": "multiply"}

FORMS: Final = forms()
"""All forms of statements of the paper's language. The result of a program is v0 modulo 1000 at its end."""


LARGE_NUMBERS: Final = (
    "v0 = 347\nv1 = 8\nwhile v1 > 0:\n  v1 -= 1\n  v0 *= 9\n  v0 *= 4\n  if v0 % 10 > 4:\n    v0 -= 7"
)
"""A program of the paper's language whose value has 15 digits."""

EXAMPLES: Final = (
    Example(
        "a condition",
        "v0 = 18\nif v0 % 10 > 5:\n  v0 *= 2\nelse:\n  v0 -= 4\nv0 += 1",
        "The instruction pointer goes to one of the two branches, as the model decides.",
    ),
    Example(
        "a loop",
        "v0 = 7\nv1 = 3\nwhile v1 > 0:\n  v1 -= 1\n  v0 *= 2",
        "The pointer comes back to line 3 until v1 is 0.",
    ),
    Example(
        "a loop in a loop",
        "v0 = 7\nv1 = 3\nwhile v1 > 0:\n  v1 -= 1\n  v2 = 4\n  while v2 > 0:\n    v2 -= 1\n    v0 += 2",
        "The paper's IPA-GNN gets this wrong. It decides the inner `while` correctly, but does not count the outer "
        "loop: in its state the inner counter replaces the outer one.",
        compare="ipa-gnn-full",
    ),
    Example(
        "loops three deep",
        "v0 = 1\nv1 = 3\nwhile v1 > 0:\n  v1 -= 1\n  v2 = 4\n  while v2 > 0:\n    v2 -= 1\n    v3 = 5\n"
        "    while v3 > 0:\n      v3 -= 1\n      v0 *= 3",
        "The environment IPA-GNN runs until the pointer is at the exit. It was trained on at most 10 lines.",
    ),
    Example(
        "an unknown line",
        "v0 = 3\n[MASK]\nv0 *= 2",
        "The answer is a distribution: all statements that line 2 may be are equally likely.",
    ),
    Example(
        "15 digits",
        LARGE_NUMBERS,
        "The model saw final values of at most 5 digits in training. What it has learned of a digit and a carry holds "
        "for numbers of any size.",
        model=DIGITS_MODEL,
    ),
    Example(
        "several variables",
        "v0 = 987654321987\nv1 = 123456789012\nif v0 > v1:\n  v0 -= v1\n  v1 *= 5\nelse:\n  v1 -= v0\nv0 *= 7",
        "Numbers of many digits in two variables, compared with and subtracted from each other. It is proved of all "
        "these statements that the model has learned them for any numbers.",
        model=EXTENDED_MODEL,
    ),
    Example(
        "three variables",
        "v0 = 5000000000000\nv1 = 999999999999\nv2 = 123\nif v1 > v2:\n  v1 -= v2\nv0 -= v1\nv0 *= 9",
        "Line 5 is run only because 999999999999 is more than 123.",
        model=EXTENDED_MODEL,
    ),
)
"""Examples for help pages and the page. Those of a model that is not offered, or has another language, are left out."""


def help_text() -> str:
    """The card for a help page, one paragraph for each form."""
    forms = [f"`{form.text}` {form.meaning}." for form in FORMS]
    example = f"For example, 3 rounds of a loop: `{EXAMPLES[1].source.replace(chr(10), ' ⏎ ')}`."
    return "\n\n".join(["**The language**, one statement per line; the result is v0 modulo 1000:", *forms, example])


def markdown() -> str:
    """The card as a table for a document."""
    rows = [f"| `{form.text}` | {form.meaning} |" for form in FORMS]
    return "\n".join(["| statement | meaning |", "|---|---|", *rows])
