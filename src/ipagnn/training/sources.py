"""Where a run's programs come from, numbered without an end: batch k is a function of the config and k alone."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Final

import numpy as np
import numpy.typing as npt

from ipagnn.data.collate import TRACE_LIMIT, graphs_of
from ipagnn.data.manifest import DataSetError
from ipagnn.data.shards import DataSet, read_shards
from ipagnn.data.splits import training_sampler
from ipagnn.data.stream import Source
from ipagnn.data.tasks import find_task
from ipagnn.languages.arithmetic._compiled.trace import trace_all
from ipagnn.languages.arithmetic.grammar import MIN_LENGTH, Lengths
from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.models import MODELS, ModelConfig
from ipagnn.training.config import STREAM, TrainConfig
from ipagnn.training.stages import Stage

_WINDOWS_KEPT: Final = 3
_LOOKED_AT: Final = 200
"""Programs of a stage that the cost of its steps is estimated from; exact enough for a progress bar."""


class Epochs:
    """The programs of a data set, epoch after epoch without an end, each in an order of its own.

    An epoch takes the shards in random order and the programs of each in random order, so that one shard at a time is
    read, whole.

    Args:
        data: The data set.
        seed: Decides the orders.
    """

    def __init__(self, data: DataSet, seed: int) -> None:
        self._data, self._seed = data, seed

    def table(self, start: int, count: int) -> ProgramTable:
        """The programs `start:start + count`, counted over all epochs."""
        size = len(self._data)
        pieces = []
        while count:
            epoch, first = divmod(start, size)
            taken = min(count, size - first)
            pieces += self._of_epoch(epoch, first, first + taken)
            start, count = start + taken, count - taken
        return ProgramTable.concatenate(pieces)

    def _of_epoch(self, epoch: int, start: int, stop: int) -> list[ProgramTable]:
        pieces, first = [], 0
        shards = self._data.manifest.shards
        for index in _order(len(shards), self._seed, epoch).tolist():
            last = first + shards[index].count
            low, high = max(start, first), min(stop, last)
            if low < high:
                order = _order(last - first, self._seed, epoch, index)
                pieces.append(self._data.shard(index).take(order[low - first : high - first]))
            first = last
        return pieces


@lru_cache(maxsize=16)  # neighbouring batches ask for the same orders
def _order(count: int, *seed: int) -> npt.NDArray[np.int64]:
    """A random order of `count` things."""
    order: npt.NDArray[np.int64] = np.random.default_rng(seed).permutation(count)
    order.setflags(write=False)
    return order


@dataclass(frozen=True, slots=True)
class From:
    """The programs of a source from a position on, numbered from 0.

    Attributes:
        source: Where programs come from.
        first: The program that becomes number 0.
    """

    source: Source
    first: int

    def table(self, start: int, count: int) -> ProgramTable:
        """The programs `start:start + count`, counted from `first`."""
        return self.source.table(self.first + start, count)


class Curriculum:
    """The programs of one source up to a position, and those of another from there on.

    Args:
        first: Has the programs before `end`.
        then: Has the programs from `end` on.
        end: Where `then` takes over.
    """

    def __init__(self, first: Source, then: Source, end: int) -> None:
        self._first, self._then, self._end = first, then, end

    def table(self, start: int, count: int) -> ProgramTable:
        """The programs `start:start + count`."""
        early = min(max(self._end - start, 0), count)
        if early == count:
            return self._first.table(start, count)
        late = self._then.table(start + early, count - early)
        return ProgramTable.concatenate([self._first.table(start, early), late]) if early else late


Steps = Callable[[ProgramTable], npt.NDArray[np.int64]]
"""How many steps a model takes on each program."""


class Windows:
    """The programs of a source, put in order by the steps they take within windows of several batches.

    A packed step costs what its longest program costs, so batches of like length are faster. Window w holds the
    programs of batches `w * window : (w + 1) * window`: sorted by steps, cut into batches, and these in random order.
    It is a permutation within the window, so positions mean what they do without it.

    Args:
        source: Where programs come from.
        batch_size: Programs a batch, over all processes.
        window: Batches a window.
        seed: Decides the order of batches.
        steps: What to sort by.
    """

    def __init__(self, source: Source, batch_size: int, window: int, seed: int, steps: Steps) -> None:
        self._source, self._batch_size, self._window, self._seed = source, batch_size, window, seed
        self._steps = steps
        self._lock = threading.Lock()
        self._made: dict[int, _Window] = {}

    def table(self, start: int, count: int) -> ProgramTable:
        """The programs `start:start + count` of the new order."""
        size = self._window * self._batch_size
        pieces = []
        while count:
            index, first = divmod(start, size)
            taken = min(count, size - first)
            pieces.append(self._of(index).table().slice(first, first + taken))
            start, count = start + taken, count - taken
        return ProgramTable.concatenate(pieces)

    def _of(self, index: int) -> "_Window":
        with self._lock:
            window = self._made.get(index)
            if window is None:
                window = self._made[index] = _Window(
                    self._source, self._batch_size, self._window, self._seed, self._steps, index
                )
                for old in sorted(self._made)[:-_WINDOWS_KEPT]:  # may be this one, if somebody goes back
                    del self._made[old]
            return window


class _Window:
    """One window. All threads that wait for it make it together: each draws a batch at a time until none is left."""

    def __init__(self, source: Source, batch_size: int, window: int, seed: int, steps: Steps, index: int) -> None:
        self._source, self._batch_size, self._window = source, batch_size, window
        self._seed, self._steps, self._index = seed, steps, index
        self._lock = threading.Lock()
        self._next = 0
        self._drawn: dict[int, ProgramTable] = {}
        self._whole: Future[ProgramTable] = Future()

    def table(self) -> ProgramTable:
        """Its programs in their new order."""
        try:
            while self._draw():
                pass
        except BaseException as error:
            with self._lock:
                if not self._whole.done():
                    self._whole.set_exception(error)
        return self._whole.result()

    def _draw(self) -> bool:
        """Draw the next batch, if one is left; whoever draws the last puts all in order."""
        with self._lock:
            k, self._next = self._next, self._next + 1
        if k >= self._window:
            return False
        table = self._source.table((self._index * self._window + k) * self._batch_size, self._batch_size)
        with self._lock:
            self._drawn[k] = table
            last = len(self._drawn) == self._window
        if last:
            self._whole.set_result(self._sort(ProgramTable.concatenate([self._drawn[k] for k in range(self._window)])))
            self._drawn.clear()
        return True

    def _sort(self, table: ProgramTable) -> ProgramTable:
        batches = np.argsort(self._steps(table), kind="stable").reshape(self._window, self._batch_size)
        return table.take(batches[_order(self._window, self._seed, self._index)].reshape(-1))


def open_data(config: TrainConfig) -> DataSet | None:
    """The data set on disk that a run is to train on, checked against its checksums and the config; None: the stream.

    Raises:
        DataSetError: It is damaged, or it is for something else.
    """
    if config.data.source == STREAM:
        return None
    data = read_shards(config.data.source)
    recipe = data.manifest.recipe
    for name, found, wanted in (
        ("split", recipe.split, "train"),
        ("kind of its programs", recipe.task, find_task(config.task).programs),
        ("longest program", recipe.lengths.longest, config.data.length),
        ("grammar", recipe.grammar, config.model.grammar),
    ):
        if found != wanted:
            raise DataSetError(
                f"The {name} of the data set {config.data.source} is {found}, and the run is to train on {wanted}; "
                "choose another data set, or other settings."
            )
    data.verify()
    return data


def make_source(config: TrainConfig, data: DataSet | None, stage: Stage | None = None, first: int = 0) -> Source:
    """The numbered programs of a run, or of one of its stages.

    Args:
        config: The run's.
        data: From `open_data`.
        stage: The stage; None in a run without stages.
        first: How many programs the stages before it had. No two stages draw by the same random numbers.
    """
    source: Source
    batch_size = config.data.batch_size
    if data is None:
        grammar = config.model.grammar
        sampler = training_sampler(config.task, config.data.length, config.seed, grammar)
        limits = [config.data.trace_limit, config.data.budget_cap if config.data.budget == "trace" else 0]
        if any(limits):
            sampler = replace(sampler, trace_limit=min(limit for limit in limits if limit))
        source = sampler
        if stage is not None:
            batch_size = stage.batch_size
            source = From(replace(sampler, lengths=stage.distribution), first)
        if config.data.curriculum:
            even = replace(sampler, lengths=Lengths.uniform(range(MIN_LENGTH, config.data.length + 1)))
            source = Curriculum(even, sampler, round(config.data.curriculum * config.data.examples))
    else:
        source = Epochs(data, config.seed)
    if config.data.bucket_batches > 1:
        return Windows(
            source, batch_size, config.data.bucket_batches, config.seed, partial(steps_of, config.trained_model)
        )
    return source


def steps_of(model: ModelConfig, table: ProgramTable) -> npt.NDArray[np.int64]:
    """How many steps a model takes on each program. [program]"""
    walks = MODELS[model.name].walks
    if walks == "lines":
        return np.diff(table.line_offsets).astype(np.int64)
    grammar = model.grammar
    moduli = grammar.modulus, grammar.condition_modulus
    if walks == "trace":
        offsets, tokens, _, _, true, false, _ = graphs_of(table, extended=grammar.is_extended)
        traced: npt.NDArray[np.int64] = trace_all(offsets, tokens, true, false, *moduli, TRACE_LIMIT, grammar.wrap)[0]
        return np.diff(traced)
    steps: npt.NDArray[np.int64] = graphs_of(table, model.budget, *moduli, grammar.is_extended, grammar.wrap)[-1]
    return steps


def stage_costs(config: TrainConfig) -> list[float]:
    """About what a step of each stage costs, in steps of programs; 1 where there are no stages."""
    costs = []
    for i, stage in enumerate(config.stages):
        table = make_source(config, None, stage, i * _LOOKED_AT).table(0, _LOOKED_AT)
        costs.append(float(steps_of(config.trained_model, table).mean()) * stage.batch_size)
    return costs or [1.0]


def data_fingerprint(config: TrainConfig, data: DataSet | None) -> str:
    """Identifies the programs of a run: the hash of a data set, or the settings of the stream in words."""
    if data is not None:
        return data.fingerprint
    programs = find_task(config.task).programs
    stream = f"stream of {programs} programs up to length {config.data.length}, seed {config.seed}"
    if config.stages:
        stages = "; ".join(stage.words for stage in config.stages)
        stream = f"stream of {programs} programs in stages ({stages}), seed {config.seed}"
    if config.data.curriculum:
        stream += f", of even lengths for the first {config.data.curriculum:g} of the examples"
    if config.data.trace_limit:
        stream += f", that execute at most {config.data.trace_limit} statements"
    if config.data.budget == "trace":
        stream += f", that execute at most {config.data.budget_cap} statements"
    return stream
