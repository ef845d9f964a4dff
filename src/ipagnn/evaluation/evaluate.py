"""Running a model over a whole set of programs: fixed order, nothing dropped, little memory.

Programs are sorted by size and batched by a budget of bytes, then put back in the order they came in. A result does not
depend on the batch it was computed in, but for the rounding of float32; `Answers.margin` says how far each answer
was from turning over.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Final, Literal, Self

import numpy as np
import numpy.typing as npt
import torch

from ipagnn.data.collate import TRACE_LIMIT, graphs_of
from ipagnn.data.contract import Batch
from ipagnn.data.tasks import VALUE, Task, find_task
from ipagnn.evaluation.answers import Answers, read_answers
from ipagnn.evaluation.pointer import PointerMetrics, measure_pointer
from ipagnn.evaluation.results import Evaluation
from ipagnn.evaluation.score import judge
from ipagnn.evaluation.tables import UnboundedRunner
from ipagnn.languages.arithmetic._compiled.trace import loop_depths, trace_nodes
from ipagnn.languages.arithmetic.program import ProgramKind, ProgramTable
from ipagnn.languages.arithmetic.vocabulary import MASK
from ipagnn.models import Output, ProgramModel
from ipagnn.ops import can_stream

CPU_BATCH_BYTES: Final = 256 * 2**20
LONGEST_TRACE: Final = 5_000_000
"""True traces are followed this far; longer ones count as this long."""

Progress = Callable[[int], None]


def evaluate(
    model: ProgramModel,
    programs: ProgramTable | Iterable[ProgramTable],
    *,
    batch_bytes: int | None = None,
    device: torch.device | str | None = None,
    pointer: bool = False,
    tables: bool | None = None,
    execution: str = "auto",
    prune: float = 0.0,
    progress: Progress | None = None,
) -> Evaluation:
    """Let a model predict every program of a set.

    A model that can runs over tables or automata, with a hard pointer and no bound on steps, unless `tables` is False.

    In any other, a model with a pointer skips mass below its `negligible_mass` on the CPU, which keeps memory small; on
    a GPU it skips none. Ask for `execution="reference"` to have every node of every step computed.

    Args:
        model: The model; it is moved to `device` and left there.
        programs: A table, or tables one after the other, of which only one is held at a time. All targets are known.
        batch_bytes: About how much memory a batch may take; by default 256 MB on the CPU, a quarter of what is free on
            a GPU. A program too large for it makes a batch alone.
        device: Where to run; by default where the model is.
        pointer: Also measure what the instruction pointer did, if the model has one and takes steps.
        tables: Whether the model runs over tables or automata; by default it does if it can.
        execution, prune: As in `model(batch, execution=..., prune=...)`.
        progress: Called with how far it has come: the number of programs, times the share of the work that is done.

    Raises:
        ValueError: There are no programs, a target is unknown, or the programs are not of one task of the model.
    """
    if device is not None:
        model = model.to(device)
    runner: _Runner | UnboundedRunner
    if model.runs_on is not None if tables is None else tables:
        runner = UnboundedRunner(model)
    else:
        device = next(model.parameters()).device
        runner = _Runner(model, device, batch_bytes, pointer=pointer, execution=execution, prune=prune)
    parts: list[Evaluation] = []
    done = 0
    first: ProgramKind | None = None
    with _evaluating(model), _worker(next(model.parameters()).device) as runner.call:
        for table in [programs] if isinstance(programs, ProgramTable) else programs:
            if not len(table):
                continue
            table.check(extended=True)
            kind = _kind_of(table, done)
            readable = [first] if first else list(dict.fromkeys(find_task(name).programs for name in model.tasks))
            if kind not in readable:
                why = "as the programs before it are" if parts else f"which is what {model.name} reads"
                raise ValueError(f"Program {done} is {kind}; all must be {' or '.join(readable)}, {why}.")
            first, task = kind, model.task_for(kind)
            if VALUE in task.targets and (table.target < 0).any():
                unknown = done + int((table.target < 0).argmax())
                raise ValueError(f"Program {unknown} has no target, so nothing can be said about the prediction.")
            finished = done
            parts.append(runner.run(table, task, lambda n: progress(finished + n) if progress else None))  # noqa: B023
            done += len(table)
    if not parts:
        raise ValueError("There are no programs to evaluate; give at least one.")
    return Evaluation.concatenate(parts)


@contextmanager
def _worker(device: torch.device) -> Iterator[Callable[..., Output]]:
    """Where models run: on the CPU a thread of its own, in which numbers too small for float32's full precision are 0.

    A trickle of pointer mass makes many of them, and they are so slow that the largest programs of a test set took
    almost fifty times as long. The setting belongs to a thread and to the threads it starts, so a new one is the only
    way to reach all that compute.
    """
    if device.type != "cpu":
        yield lambda function, *arguments: function(*arguments)
        return
    with ThreadPoolExecutor(1, initializer=torch.set_flush_denormal, initargs=(True,)) as pool:
        yield lambda function, *arguments: pool.submit(function, *arguments).result()


@contextmanager
def _evaluating(model: ProgramModel) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _kind_of(table: ProgramTable, first: int) -> ProgramKind:
    masked = np.add.reduceat(table.line_tokens[:, 1] == MASK, table.line_offsets[:-1], dtype=np.int64) > 0
    if masked.all():
        return "partial"
    if masked.any():
        raise ValueError(
            f"Program {first + int((masked != masked[0]).argmax())} is {'full' if masked[0] else 'partial'} and those "
            "before it are not; evaluate full and partial programs apart."
        )
    return "full"


@dataclass(frozen=True, slots=True)
class _Sizes:
    """What decides how much memory programs take. [program] each"""

    nodes: npt.NDArray[np.int64]
    steps: npt.NDArray[np.int64]
    lines: npt.NDArray[np.int64]
    trace_length: npt.NDArray[np.int64]
    loop_depth: npt.NDArray[np.int64]

    def take(self, chosen: npt.NDArray[np.int64]) -> Self:
        return type(self)(*(getattr(self, field.name)[chosen] for field in fields(self)))


class _Runner:
    """A model, and how batches are formed for it."""

    def __init__(
        self,
        model: ProgramModel,
        device: torch.device,
        batch_bytes: int | None,
        *,
        pointer: bool,
        execution: str,
        prune: float,
    ) -> None:
        self.model, self.device, self.execution, self.prune = model, device, execution, prune
        self.record = {"pointer", "branch"} if pointer and {"pointer", "branch"} <= model.records else set()
        self.call: Callable[..., Output] = lambda function, *arguments: function(*arguments)
        auto = model.has_executions and not model.every_node and execution == "auto"
        self.streams = auto and can_stream(next(model.parameters()))
        if batch_bytes is None:
            batch_bytes = torch.cuda.mem_get_info(device)[0] // 4 if device.type == "cuda" else CPU_BATCH_BYTES
        self.batch_bytes = max(int(batch_bytes), 1)
        self.may_prune = auto and model.can_prune and not prune and not self.streams
        self.holds: Literal["plan", "sequence", "frontier", "nodes"]
        if model.walks in ("lines", "trace"):
            self.holds = "sequence"
        elif self.streams or prune:
            self.holds = "frontier"
        else:
            self.holds = "plan" if auto else "nodes"
        self.state_bytes = 4 * model.state_parts * model.config.hidden

    def run(self, table: ProgramTable, task: Task, progress: Progress) -> Evaluation:
        sizes = self._measure(table, task)
        order = np.lexsort((np.arange(len(table)), sizes.lines, sizes.nodes, self._rounds(sizes)))
        correct = np.empty(len(table), np.bool_)
        loss: npt.NDArray[np.float64] | None = np.empty(len(table), np.float64)
        answers: list[dict[str, Answers]] = []
        pointers: list[PointerMetrics] = []
        work = sizes.nodes * self._rounds(sizes)
        done, total = 0, max(int(work.sum()), 1)
        for chosen, streaming in self._batches(order, sizes):
            output, batch = self._run_batch(table.take(chosen), streaming)
            judged = judge(self.model, output, batch)
            correct[chosen] = judged.correct.cpu().numpy()
            loss = None if loss is None or judged.loss is None else loss
            if loss is not None and judged.loss is not None:
                loss[chosen] = judged.loss.double().cpu().numpy()
            answers.append(
                {each.name: read_answers(each, output.predictions[each.name], batch) for each in task.targets}
            )
            if self.record:
                pointers.append(
                    measure_pointer(
                        *(output["pointer"], output["branch"], batch.to("cpu"), self.model.config.grammar),
                        traced=not task.masked,
                    )
                )
            done += int(work[chosen].sum())
            progress(len(table) * done // total)
        progress(len(table))
        backwards = np.argsort(order)
        return Evaluation(
            self.model.name,
            task.name,
            sizes.lines.astype(np.int32),
            sizes.steps.astype(np.int32),
            correct,
            {
                each.name: Answers.concatenate([said[each.name] for said in answers]).take(backwards)
                for each in task.targets
            },
            trace_length=sizes.trace_length,
            loop_depth=sizes.loop_depth,
            loss=loss,
            pointer=PointerMetrics.concatenate(pointers).take(backwards) if pointers else None,
        )

    def _measure(self, table: ProgramTable, task: Task) -> _Sizes:
        budget, grammar = self.model.config.budget, self.model.config.grammar
        offsets, tokens, _, _, true, false, steps = graphs_of(
            table, budget, grammar.modulus, grammar.condition_modulus, grammar.is_extended, grammar.wrap
        )
        lengths, depths = np.full((2, len(table)), -1, np.int64)
        if not task.masked:
            for i, (first, end) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
                nodes, problem = trace_nodes(
                    tokens[first:end],
                    true[first:end],
                    false[first:end],
                    first,
                    grammar.modulus,
                    grammar.condition_modulus,
                    LONGEST_TRACE,
                    grammar.wrap,
                )
                if problem and self.model.walks == "trace":
                    raise ValueError(
                        f"Program {i} of the table compares a value beyond 2**40, so its trace cannot be followed; "
                        f"leave it out, or choose another model than {self.model.name}."
                    )
                if not problem:
                    lengths[i] = len(nodes)
                    depths[i] = loop_depths(tokens[first:end])[nodes - first].max(initial=0)
        return _Sizes(np.diff(offsets).astype(np.int64), steps, table.lengths, lengths, depths)

    def _batches(self, order: npt.NDArray[np.int64], sizes: _Sizes) -> Iterator[tuple[npt.NDArray[np.int64], bool]]:
        """Programs of each batch, as many in the order of size as fit, and whether rows are found on the way."""
        first = 0
        while first < len(order):
            on_the_way = self.may_prune and (
                self.device.type == "cpu" or self._bytes(sizes.take(order[first : first + 1]), False) > self.batch_bytes
            )
            low, high = first + 1, len(order)
            if self.holds == "nodes" or (self.streams and self.record):
                # All nodes are computed, or told of, until the last program of the batch has ended: let none wait long.
                rounds = self._rounds(sizes)[order]
                high = int(np.searchsorted(rounds, 2 * rounds[first], side="right"))
            while low < high:  # the most that fit; the bytes of a batch never fall as it grows
                middle = (low + high + 1) // 2
                if self._bytes(sizes.take(order[first:middle]), on_the_way) <= self.batch_bytes:
                    low = middle
                else:
                    high = middle - 1
            yield order[first:low], on_the_way
            first = low

    def _bytes(self, sizes: _Sizes, streaming: bool) -> int:
        """About how much memory a batch takes."""
        rounds = self._rounds(sizes)
        state, nodes, steps = self.state_bytes, int(sizes.nodes.sum()), int(rounds.max())
        told = 64 * nodes * steps if self.record else 0
        if self.holds == "sequence":
            if self.streams:
                return 8 * (state + 512) * len(rounds) + 64 * int(rounds.sum()) + told
            return int(rounds.sum()) * (4 * state + 64)
        if self.holds == "plan" and not streaming:
            return nodes * steps * (4 * state + 64)
        return nodes * 32 * state + told

    def _rounds(self, sizes: _Sizes) -> npt.NDArray[np.int64]:
        """Steps that the model takes. [program]"""
        if self.model.walks == "lines":
            return sizes.lines
        return np.minimum(sizes.trace_length, TRACE_LIMIT) if self.model.walks == "trace" else sizes.steps

    def _run_batch(self, table: ProgramTable, streaming: bool) -> tuple[Output, Batch]:
        batch = self.model.collate(table).to(self.device)
        return self.call(self._forward, batch, self.model.negligible_mass if streaming else self.prune), batch

    @torch.inference_mode()
    def _forward(self, batch: Batch, prune: float) -> Output:
        return self.model(batch, record=self.record, execution=self.execution, prune=prune)
