"""The option `--set` of the commands that draw, read and evaluate on programs: the language."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ipagnn.languages.arithmetic import Grammar

_HELP = (
    "Setting of the language, as in `modulus=1_000_000` or `operands=[1,99]`. May be repeated. docs/language.md lists "
    "all. "
)
LanguageSettings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help=f"{_HELP}[default: the paper's language]", show_default=False),
]
ModelLanguageSettings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help=f"{_HELP}[default: the model's language]", show_default=False),
]


def chosen_grammar(settings: list[str] | None, usual: "Grammar | None" = None) -> "Grammar":
    """A grammar, by default the paper's, with settings of the command line.

    Raises:
        ValueError: A setting is not one of a grammar, or not what it accepts.
    """
    from ipagnn._common.toml import parse_settings
    from ipagnn.languages.arithmetic import Grammar

    return Grammar.from_dict(({} if usual is None else usual.to_dict()) | parse_settings(settings or []))
