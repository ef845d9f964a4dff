"""The command that keeps runs for good: `record`."""

from pathlib import Path
from typing import Annotated

import typer

from ipagnn.cli.terminal import output


def record(
    directories: Annotated[list[Path], typer.Argument(metavar="DIR…", help="Run folders, finished and evaluated.")],
    to: Annotated[Path, typer.Option(help="Where records are kept.")] = Path("records"),
    name: Annotated[
        str | None,
        typer.Option(help="Name of the record of a single run. [default: date and name of the run folder]"),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Also write the weights here, as float16 and with a model card: `ipa-gnn-full.safetensors` and `.md`, "
            "by model and task, in place of older ones. Weights in `src/ipagnn/weights` come with the package.",
            show_default=False,
        ),
    ] = None,
    factor: Annotated[
        float,
        typer.Option(help="The written weights take so many times the steps of the run: for runs trained with enough."),
    ] = 1.0,
) -> None:
    """Keep finished runs for good: settings, hardware, metrics, result and evaluation, without the weights.

    A record is a run folder like others to `ipagnn runs` and `ipagnn report`. None is ever overwritten.

    `ipagnn record runs/a --weights src/ipagnn/weights`
    """
    from ipagnn.reporting.records import make_record, package_weights

    if name is not None and len(directories) > 1:
        raise ValueError(
            f"--name is for one run, but there are {len(directories)}; leave it out, or record one by one."
        )
    for directory in directories:
        target = make_record(directory, to, name)
        told = f"{target} is the record"
        if weights is not None:
            told += f"; {package_weights(directory, weights, target.name, factor)} holds its weights"
        output().print(told, soft_wrap=True, markup=False)
