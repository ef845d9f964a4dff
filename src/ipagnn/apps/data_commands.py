"""The commands about data: `generate` and `ceiling`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from ipagnn.apps.terminal import output, progress


def generate(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write; made if need be.")],
    split: Annotated[
        Literal["train", "validation", "test"],
        typer.Option(
            help="`train`: the training lengths, without what is withheld. `validation`: withheld programs of exactly "
            "`--length` lines. `test`: as many programs at each of `--lengths`."
        ),
    ] = "train",
    task: Annotated[
        Literal["full", "partial"], typer.Option(help="Complete programs, or programs with one masked line.")
    ] = "full",
    count: Annotated[
        int | None,
        typer.Option(
            help="How many programs; needed for train. [default: validation 5000, test 500 a length]",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Which programs. [default: one of its own for each split]")] = None,
    length: Annotated[
        int | None,
        typer.Option(help="C, the longest length of training and the only one of validation. [default: 10]"),
    ] = None,
    lengths: Annotated[
        str | None,
        typer.Option(help="Lengths, each as often, in place of `--length`. [default for test: 20,30,…,100]"),
    ] = None,
    with_source: Annotated[
        bool, typer.Option("--with-source", help="Add the column `source`, the text of each program.")
    ] = False,
    on: Annotated[
        Literal["local", "ray"], typer.Option(help="Make the shards on this machine or on a Ray cluster; same bytes.")
    ] = "local",
    threads: Annotated[int | None, typer.Option(min=1, help="Threads at work. [default: one a core]")] = None,
) -> None:
    """Write a data set: Parquet shards and `manifest.json`, which tells how they were made and what they hash to.

    Killed at any point, the same command goes on and ends with the same bytes. pandas, DuckDB and Hugging Face datasets
    read the shards as they lie: a row is a program with its `tokens` (four a line), `length`, `steps` and `target`.

    Whether a program is withheld from training is decided by a hash of it, so training and validation share no program,
    whatever their seeds.

    `ipagnn generate data/train --split train --count 5000000`

    `ipagnn generate data/test --split test --task partial --lengths 20,30,40`
    """
    from ipagnn.data.generate import generate as write
    from ipagnn.data.splits import recipe
    from ipagnn.programs import Lengths

    if length is not None and lengths is not None:
        raise ValueError("Both --length and --lengths were given; choose one.")
    drawn = None
    if lengths is not None:
        drawn = Lengths.uniform(_numbers("--lengths", lengths))
    elif length is not None:
        drawn = Lengths.training(length) if split == "train" else Lengths.exact(length)
    total = recipe(split, task, count, seed, drawn).count
    with progress("Writing", "programs", total) as advance:
        manifest = write(
            *(directory, task, split, count, seed, drawn),
            with_source=with_source,
            threads=threads,
            on=on,
            progress=advance,
        )
    shards, size = len(manifest.shards), sum(shard.bytes for shard in manifest.shards)
    output().print(
        f"{directory} holds {total:,} {task} programs for {split}: {shards:,} {'shard' if shards == 1 else 'shards'}, "
        f"{size / 1e6:,.1f} MB, {manifest.duplicates:,} duplicates",
        soft_wrap=True,
        markup=False,
    )


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(
            f"{option} is {text!r}; it must be whole numbers with commas between, as in 20,30,40."
        ) from None
