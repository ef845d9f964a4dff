"""The option `--set` of the commands that draw and read programs: the language."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ipagnn.languages.arithmetic import Grammar

LanguageSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Setting of the language, as in `modulus=1_000_000` or `operands=[1,99]`. May be repeated. "
        "docs/language.md lists all. [default: the paper's language]",
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
