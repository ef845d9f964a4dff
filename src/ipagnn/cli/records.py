"""The command `record`: keep finished runs."""

from pathlib import Path
from typing import Annotated

import typer

from ipagnn.cli.terminal import output


def record(
    directories: Annotated[list[Path], typer.Argument(metavar="DIR…", help="Finished and evaluated run folders.")],
    to: Annotated[Path, typer.Option(help="Directory of records.")] = Path("records"),
    name: Annotated[
        str | None,
        typer.Option(help="Name of the record, for a single run. [default: date and name of the run folder]"),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Also write the weights to this directory, as float16 and with a model card: "
            "`ipa-gnn-full.safetensors` and `.md`. Older ones of the same model and task are replaced. Weights in "
            "`src/ipagnn/weights` come with the package.",
            show_default=False,
        ),
    ] = None,
    factor: Annotated[
        float,
        typer.Option(
            help="Multiply the step budget that is stored with the weights: for runs trained with enough steps."
        ),
    ] = 1.0,
) -> None:
    """Copy finished runs to the records: settings, hardware, metrics, result and evaluation, without the weights.

    `ipagnn runs` and `ipagnn report` read a record as any run folder. Records are never overwritten.

    `ipagnn record runs/a --weights src/ipagnn/weights`
    """
    from ipagnn.reporting.records import make_record, package_weights

    if name is not None and len(directories) > 1:
        raise ValueError(
            f"--name is for one run, but there are {len(directories)}; leave it out, or record one by one."
        )
    for directory in directories:
        target = make_record(directory, to, name)
        message = f"{target} is the record"
        if weights is not None:
            message += f"; {package_weights(directory, weights, target.name, factor)} holds its weights"
        output().print(message, soft_wrap=True, markup=False)
