"""Programs for a training loop of one's own: torch data sets, and the function that makes batches of their items.

An item is a pair of a program and its target. Everything here can be sent to the worker processes of a `DataLoader`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset, IterableDataset, get_worker_info

from ipagnn.data.collate import PAPER_BUDGET, StepBudget, collate
from ipagnn.data.contract import Batch
from ipagnn.data.shards import DataSet, read_shards
from ipagnn.data.stream import Source
from ipagnn.data.tasks import VALUE, Target
from ipagnn.languages.arithmetic.grammar import PAPER, Grammar
from ipagnn.languages.arithmetic.program import Program, ProgramTable

Item = tuple[Program, int]
"""A program and its target."""

BLOCK = 256
"""Programs of a stream that one worker takes at a time."""


class ProgramDataset(Dataset[Item]):
    """The programs of a table, or of a data set on disk, by index.

    A data set on disk is read whole when its first program is asked for, in every worker process: about 100 bytes per
    program of 10 lines.

    Args:
        source: A table, a data set, or the folder that `ipagnn generate` wrote.
    """

    def __init__(self, source: ProgramTable | DataSet | Path | str) -> None:
        self._source = read_shards(source) if isinstance(source, Path | str) else source

    @cached_property
    def table(self) -> ProgramTable:
        """All programs."""
        return self._source.table() if isinstance(self._source, DataSet) else self._source

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> Item:
        """Program `index` and its target."""
        return self.table[index], int(self.table.target[index])

    def __getstate__(self) -> dict[str, Any]:
        """Without what is read from disk, which another process reads itself."""
        kept = dict(self.__dict__)
        kept.pop("table", None)
        return kept


class ProgramStream(IterableDataset[Item]):
    """Programs as they are drawn, in order, without an end unless `count` sets one.

    The workers of a `DataLoader`, and several processes, share the stream: each program is drawn by exactly one.

    Args:
        source: A `Sampler`, or anything else that numbers its programs. For training beside a validation set, a sampler
            that draws nothing withheld: `training_sampler`.
        start: Index of the first program.
        count: How many programs; None for as many as are asked for.
        rank, world: Which of how many processes this is.
    """

    def __init__(self, source: Source, start: int = 0, count: int | None = None, rank: int = 0, world: int = 1) -> None:
        if not 0 <= rank < world:
            raise ValueError(f"rank is {rank}; of {world} processes it is one of 0..{world - 1}.")
        self.source, self.start, self.count = source, start, count
        self.rank, self.world = rank, world

    def __iter__(self) -> Iterator[Item]:
        worker = get_worker_info()
        workers, number = (worker.num_workers, worker.id) if worker is not None else (1, 0)
        first = self.start + BLOCK * (self.rank * workers + number)
        end = None if self.count is None else self.start + self.count
        while end is None or first < end:
            size = BLOCK if end is None else min(BLOCK, end - first)
            table = self.source.table(first, size)
            yield from zip(table, table.target.tolist(), strict=True)
            first += BLOCK * self.world * workers


@dataclass(frozen=True)
class Collator:
    """Makes the batch of a list of items, for one model: `collate_fn` of a `DataLoader`.

    `model.collator()` gives the one of a model. It knows the model's options and holds no weights.

    Attributes:
        budget, grammar, indent, trace, targets: As in `collate`.
    """

    budget: StepBudget = PAPER_BUDGET
    grammar: Grammar = PAPER
    indent: bool = True
    trace: bool = False
    targets: tuple[Target, ...] = (VALUE,)

    def __call__(self, items: Sequence[Item]) -> Batch:
        """The batch of items, on the CPU."""
        programs, targets = zip(*items, strict=True)
        return collate(
            ProgramTable.from_programs(programs, targets),
            self.budget,
            modulus=self.grammar.modulus,
            condition_modulus=self.grammar.condition_modulus,
            indent=self.indent,
            trace=self.trace,
            extended=self.grammar.is_extended,
            wrap=self.grammar.wrap,
            targets=self.targets,
        )
