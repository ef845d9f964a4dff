"""The commands about data: `generate` and `ceiling`."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from ipagnn.cli.language import LanguageSettings, chosen_grammar
from ipagnn.cli.terminal import output, progress

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_BLOCK = 256  # programs between two updates of the progress bar


def generate(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Output directory. Created if missing; resumed if it is incomplete.")
    ],
    split: Annotated[
        Literal["train", "validation", "test"],
        typer.Option(
            help="`train`: lengths of training, without withheld programs. `validation`: withheld programs of exactly "
            "`--length` lines. `test`: the same number of programs for each of `--lengths`."
        ),
    ] = "train",
    task: Annotated[
        Literal["full", "partial"], typer.Option(help="Complete programs, or programs with one masked line.")
    ] = "full",
    count: Annotated[
        int | None,
        typer.Option(
            help="Number of programs. Required for train. [default: validation 5000, test 500 per length]",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed. [default: a different one for each split]")] = None,
    length: Annotated[
        int | None,
        typer.Option(help="Longest length of training (C), and the only one of validation. [default: 10]"),
    ] = None,
    lengths: Annotated[
        str | None,
        typer.Option(help="Lengths to draw uniformly, instead of `--length`. [default for test: 20,30,…,100]"),
    ] = None,
    settings: LanguageSettings = None,
    with_source: Annotated[
        bool, typer.Option("--with-source", help="Add the column `source`: the text of each program.")
    ] = False,
    on: Annotated[
        Literal["local", "ray"],
        typer.Option(help="Generate on this machine or on a Ray cluster. The files are identical."),
    ] = "local",
    threads: Annotated[int | None, typer.Option(min=1, help="Number of threads. [default: one per core]")] = None,
) -> None:
    """Write a data set: Parquet shards, and `_manifest.json` with their settings and checksums.

    If it is interrupted, the same command resumes it and writes the same bytes. pandas, DuckDB and Hugging Face
    datasets read the shards directly. Each row is a program: `tokens` (four per line), `length`, `steps` and `target`.

    A hash of each program decides whether it is withheld from training. Training and validation therefore share no
    program, whatever their seeds.

    `ipagnn generate data/train --split train --count 5000000`

    `ipagnn generate data/test --split test --task partial --lengths 20,30,40`
    """
    from ipagnn.data.generate import generate as write
    from ipagnn.data.splits import recipe
    from ipagnn.languages.arithmetic import Lengths

    if length is not None and lengths is not None:
        raise ValueError("Both --length and --lengths were given; choose one.")
    drawn = None
    if lengths is not None:
        drawn = Lengths.uniform(_numbers("--lengths", lengths))
    elif length is not None:
        drawn = Lengths.training(length) if split == "train" else Lengths.exact(length)
    grammar = chosen_grammar(settings)
    total = recipe(split, task, count, seed, drawn, grammar).count
    with progress("Writing", "programs", total) as advance:
        manifest = write(
            *(directory, task, split, count, seed, drawn, grammar),
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


def ceiling(
    lengths: Annotated[
        str | None, typer.Option(help="Program lengths. [default: those of the test set, 20,30,…,100]")
    ] = None,
    train_lengths: Annotated[
        bool, typer.Option("--train-lengths", help="Draw lengths as in training, up to 10, instead of `--lengths`.")
    ] = False,
    count: Annotated[
        int, typer.Option(min=1, help="Number of programs per length, or in total with `--train-lengths`.")
    ] = 500,
    seed: Annotated[
        int | None, typer.Option(help="Random seed. [default: that of `ipagnn generate` for test or train]")
    ] = None,
    settings: LanguageSettings = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="One object: `overall` and `by_length`, each with `accuracy`, `stderr` and `count`."
        ),
    ] = False,
) -> None:
    """Compute the best possible accuracy on partial programs.

    A masked line hides one of 27 equally likely statements, or as many as the language has. The best possible
    prediction is the most likely result over all of them. This command computes its probability exactly for each
    program. `±` is one standard error over programs.

    `ipagnn ceiling --lengths 20,50,100 --count 1000`
    """
    import numpy as np

    from ipagnn.data.splits import TEST_LENGTHS, recipe
    from ipagnn.languages.arithmetic import Lengths
    from ipagnn.languages.arithmetic.holes import ceiling as compute

    if train_lengths and lengths is not None:
        raise ValueError("Both --lengths and --train-lengths were given; choose one.")
    grammar = chosen_grammar(settings)
    if train_lengths:
        wanted = recipe("train", "partial", count, seed, grammar=grammar)
    else:
        drawn = Lengths.uniform(TEST_LENGTHS if lengths is None else _numbers("--lengths", lengths))
        wanted = recipe("test", "partial", count * len(drawn.lengths), seed, drawn, grammar)
    parts = []
    with progress("Filling holes", "programs", wanted.count) as advance:
        for start in range(0, wanted.count, _BLOCK):
            stop = min(start + _BLOCK, wanted.count)
            parts.append(compute(wanted.table(start, stop), grammar, threads=os.cpu_count() or 1))
            advance(stop)
    of_program = np.concatenate([part.lengths for part in parts])
    probability = np.concatenate([part.probability for part in parts])
    overall = _summary(probability)
    by_length = {int(n): _summary(probability[of_program == n]) for n in np.unique(of_program)}
    if as_json:
        typer.echo(json.dumps({"overall": overall, "by_length": by_length}))
        return
    table = Table(header_style="bold")
    for title in ("length", "programs", "best accuracy"):
        table.add_column(title, justify="right")
    last = str(max(by_length))
    for name, row in [*((str(n), row) for n, row in by_length.items()), ("all", overall)]:
        table.add_row(
            name, f"{row['count']:,}", f"{row['accuracy']:.1%} ± {row['stderr']:.1%}", end_section=name == last
        )
    output().print(table)


def _summary(probability: "npt.NDArray[np.float64]") -> dict[str, float]:
    """Mean, its standard error (0 where one program says nothing about it) and number."""
    count = len(probability)
    spread = float(probability.std(ddof=1)) / count**0.5 if count > 1 else 0.0
    return {"accuracy": float(probability.mean()), "stderr": spread, "count": count}


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(
            f"{option} is {text!r}; it must be whole numbers with commas between, as in 20,30,40."
        ) from None
