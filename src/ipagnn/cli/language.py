"""The option `--set` of the commands that draw and read programs: which language they are of."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ipagnn.languages.arithmetic import Grammar

LanguageSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A setting of the language, as in `modulus=1_000_000` or `operands=[1,99]`; may be given several times. "
        "docs/language.md has all. [default: the paper's language]",
        show_default=False,
    ),
]


def chosen_grammar(settings: list[str] | None) -> "Grammar":
    """The paper's grammar with settings of the command line.

    Raises:
        ValueError: A setting is not one of a grammar, or not what it accepts.
    """
    from ipagnn._common.toml import parse_settings
    from ipagnn.languages.arithmetic import Grammar

    return Grammar.from_dict(parse_settings(settings or []))
