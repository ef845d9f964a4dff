"""The command `ipagnn`. Each command is defined in the module of its group and registered here.

A command imports what it needs when it runs, so that a help page does not wait for torch.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ipagnn import __version__
from ipagnn.cli import (
    data,
    demo,
    evaluation,
    inference,
    programs,
    records,
    reporting,
    semantics,
    sweep,
    training,
)
from ipagnn.cli.terminal import encodable, guarded
from ipagnn.languages.arithmetic.card import help_text

app = typer.Typer(
    name="ipagnn",
    add_completion=False,
    rich_markup_mode="markdown",
    epilog=help_text(),
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

PROGRAMS, DATA, TRAINING, RESULTS, USE = "Programs", "Data", "Training", "Results", "Use"
app.command(rich_help_panel=PROGRAMS)(programs.sample)
app.command(rich_help_panel=PROGRAMS)(programs.inspect)
app.command(rich_help_panel=DATA)(data.generate)
app.command(rich_help_panel=DATA)(data.ceiling)
app.command(rich_help_panel=TRAINING)(training.train)
app.command(rich_help_panel=TRAINING)(training.runs)
app.command(rich_help_panel=TRAINING)(sweep.sweep)
app.command(rich_help_panel=RESULTS)(evaluation.evaluate)
app.command(rich_help_panel=RESULTS)(semantics.semantics)
app.command(rich_help_panel=RESULTS)(reporting.figure)
app.command(rich_help_panel=RESULTS)(reporting.report)
app.command(rich_help_panel=RESULTS)(records.record)
app.command(rich_help_panel=RESULTS)(demo.demo)
app.command(rich_help_panel=USE, epilog=help_text())(inference.predict)
app.command(rich_help_panel=USE, epilog=help_text())(inference.explain)
app.command(rich_help_panel=USE)(inference.models)
app.command(rich_help_panel=USE)(inference.serve)


@app.callback(invoke_without_command=True)
def ipagnn(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    files: Annotated[
        list[Path] | None,
        typer.Option(
            "--import",
            metavar="FILE.py",
            help="Import a file that registers models or tasks of your own, for any command.",
        ),
    ] = None,
) -> None:
    """Learning to execute programs with instruction pointer attention graph neural networks (IPA-GNN).

    Train, evaluate and inspect models that predict the result of a program.

    Bad input ends with exit code 2 and one sentence on standard error.
    """
    if version:
        typer.echo(f"ipagnn {__version__}")
        return
    if files:
        from ipagnn.models import register_file

        for file in files:
            register_file(file)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: What follows `ipagnn`; None takes them from `sys.argv`.

    Returns:
        The exit code.
    """
    command = typer.main.get_command(app)
    encodable(sys.stdout, sys.stderr)

    def run() -> None:
        # Not `app()`, which would answer Ctrl-C and closed pipes in its own way before `guarded` sees them.
        with command.make_context("ipagnn", list(sys.argv[1:] if arguments is None else arguments)) as context:
            command.invoke(context)

    return guarded(run)
