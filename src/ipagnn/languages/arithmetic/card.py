"""The language on a card: what may be typed, with examples. Help pages, documents and the page show it."""

from typing import Final, NamedTuple

from ipagnn.languages.arithmetic.grammar import PAPER, Grammar
from ipagnn.languages.arithmetic.vocabulary import MAX_LITERAL


class Form(NamedTuple):
    """Something that may be written.

    Attributes:
        text: It, with an example's names and numbers.
        meaning: What it does, and what of it packaged models were trained on.
    """

    text: str
    meaning: str


class Example(NamedTuple):
    """A program to begin with.

    Attributes:
        name: What it shows, in a few words.
        source: The program.
        about: What there is to see, in one or two sentences.
        model: The model in the package that it is for; None for the usual one.
        compare: A second model in the package that is worth seeing beside it.
    """

    name: str
    source: str
    about: str
    model: str | None = None
    compare: str | None = None


FORMS: Final = (
    Form("v0 = 7", "set a variable, v0 to v9, to a number, 0 to 999; the first line sets v0"),
    Form("v0 += 3", "add; also `-=` and `*=`. Models are trained on v0 with 1 to 9"),
    Form("if v0 % 10 > 5:", "the lines below, indented, if the condition holds; also `<`, `>=`, `<=`, and no `% 10`"),
    Form("else:", "the lines below, indented, if it does not"),
    Form("while v1 > 0:", "the lines below, indented, again and again; set `v1 = 4` above and `v1 -= 1` in the first "
         "line below for 4 rounds. Models are trained on 2 to 9 rounds"),
    Form("break", "leave the loop; `continue` goes on with its next round, `pass` does nothing"),
    Form("[MASK]", "an unknown statement, also `_`: the answer is a distribution over what it may be"),
    Form("# text", "a comment, on a line of its own or behind a statement"),
)  # fmt: skip
"""All forms of statements of the paper's language. The result of a program is v0 modulo 1000 at its end."""


def forms(grammar: Grammar = PAPER) -> tuple[Form, ...]:
    """All forms of statements of a grammar: those of the paper's language, and what its options add."""
    more = []
    last = grammar.variables - 1
    if grammar.variables > 1:
        names = grammar.counter_names
        more.append(Form(f"v{last} = 4", f"the data variables are v0 to v{last}; v{names.start} and later count loops"))
    if grammar.tokens > 4:
        more.append(Form("v0 = 123456789", f"numbers of up to {len(str(MAX_LITERAL))} digits"))
    if grammar.operand_variable:
        more.append(Form("v0 += v1", "a variable on the right; also `-=`, and `*=` if it holds a digit"))
    if grammar.condition_variable:
        more.append(Form("if v0 < v1:", "compare two variables; also `>`, `>=`, `<=`"))
    if grammar.wrap:
        more.append(Form("v0 *= 3", f"every assignment takes its result modulo {grammar.modulus:,}"))
    return (*FORMS, *more)


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
        "The paper's IPA-GNN gets this wrong. It decides the inner `while` rightly, but does not count the outer loop: "
        "in its state the inner counter takes the place of the outer one.",
        compare="ipa-gnn-full",
    ),
    Example(
        "loops three deep",
        "v0 = 1\nv1 = 3\nwhile v1 > 0:\n  v1 -= 1\n  v2 = 4\n  while v2 > 0:\n    v2 -= 1\n    v3 = 5\n"
        "    while v3 > 0:\n      v3 -= 1\n      v0 *= 3",
        "The environment IPA-GNN goes on until the pointer is at the exit. It was trained on at most 10 lines.",
    ),
    Example(
        "an unknown line",
        "v0 = 3\n[MASK]\nv0 *= 2",
        "The answer is a distribution: every statement that may stand in line 2 is equally likely.",
    ),
)
"""Examples for help pages and the page. Those of a model that is not offered are left out."""


def help_text() -> str:
    """The card for a help page, one paragraph for each form."""
    forms = [f"`{form.text}` {form.meaning}." for form in FORMS]
    example = f"For example, 3 rounds of a loop: `{EXAMPLES[1].source.replace(chr(10), ' ⏎ ')}`."
    return "\n\n".join(["**What may be typed**, a statement a line; the result is v0 modulo 1000:", *forms, example])


def markdown() -> str:
    """The card as a table for a document."""
    rows = [f"| `{form.text}` | {form.meaning} |" for form in FORMS]
    return "\n".join(["| statement | meaning |", "|---|---|", *rows])
