"""Running a model over a table of programs: fixed order, nothing dropped, little memory.

Programs are sorted by size and batched by a budget of bytes, then put back in the order they came in. A result does not
depend on the batch it was computed in, but for the rounding of float32; `Answers.margin` says how far each answer
was from turning over.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, Self

import numpy as np
import numpy.typing as npt
import torch

from ipagnn.data.collate import TRACE_LIMIT, graphs_of
from ipagnn.data.tasks import Task
from ipagnn.evaluation.answers import Answers, read_answers
from ipagnn.evaluation.pointer import PointerMetrics, measure_pointer
from ipagnn.evaluation.refine import Followed, refine
from ipagnn.evaluation.results import Evaluation
from ipagnn.evaluation.score import judge
from ipagnn.evaluation.workers import single_threads
from ipagnn.languages.arithmetic._compiled.trace import loop_depths, trace_nodes
from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.models import ProgramModel
from ipagnn.ops import can_stream

CPU_BATCH_BYTES: Final = 256 * 2**20
LONGEST_TRACE: Final = 5_000_000
"""True traces are followed this far; longer ones count as this long."""
REFINED: Final = 8
"""Programs of a batch where many rows of each are followed: few, so that no thread waits long for another."""

Progress = Callable[[int], None]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Sizes:
    """What decides how much memory programs take. [program] each"""

    nodes: Indices
    steps: Indices
    lines: Indices
    trace_length: Indices
    loop_depth: Indices

    def take(self, chosen: Indices) -> Self:
        return type(self)(*(getattr(self, field.name)[chosen] for field in fields(self)))


@dataclass(frozen=True, slots=True)
class _Part:
    """What came of a batch; see `Evaluation` and `Followed`. `chosen` are its programs. [program]"""

    chosen: Indices
    correct: npt.NDArray[np.bool_]
    loss: npt.NDArray[np.float64] | None
    answers: dict[str, Answers]
    pointer: PointerMetrics | None
    followed: Followed | None


class BatchRunner:
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
        tolerance: float,
    ) -> None:
        self.model, self.device, self.execution, self.prune = model, device, execution, prune
        self.record = {"pointer", "branch"} if pointer and {"pointer", "branch"} <= model.records else set()
        self.call: Callable[..., Any] = lambda function, *arguments: function(*arguments)
        auto = model.has_executions and not model.every_node and execution == "auto"
        self.streams = auto and can_stream(next(model.parameters()))
        if batch_bytes is None:
            batch_bytes = torch.cuda.mem_get_info(device)[0] // 4 if device.type == "cuda" else CPU_BATCH_BYTES
        self.batch_bytes = max(int(batch_bytes), 1)
        self.may_prune = auto and model.can_prune and not prune and not self.streams
        weighs = {"dropped", "exit_mass"} <= model.records
        self.tolerance = tolerance if self.may_prune and device.type == "cpu" and weighs else 0.0
        self.holds: Literal["plan", "sequence", "frontier", "nodes"]
        if model.walks in ("lines", "trace"):
            self.holds = "sequence"
        elif self.streams or prune:
            self.holds = "frontier"
        else:
            self.holds = "plan" if auto else "nodes"
        self.state_bytes = 4 * model.state_parts * model.config.hidden

    def run(self, table: ProgramTable, task: Task, progress: Progress) -> Evaluation:
        """Evaluate all programs of a table."""
        sizes = self._measure(table, task)
        order = np.lexsort((np.arange(len(table)), sizes.lines, sizes.nodes, self._rounds(sizes)))
        work = sizes.nodes * self._rounds(sizes)
        parts: list[_Part] = []
        is_open = dropped = None
        if self.tolerance and _has_classes_only(task):
            is_open, dropped = self._refine(table, task, sizes, order, work, parts, progress)
        else:
            done, total = 0, max(int(work.sum()), 1)
            for chosen, streaming in self._batches(order, sizes):
                prune = self.model.negligible_mass if streaming else self.prune
                parts.append(self.call(self._run_batch, table, task, chosen, prune))
                done += int(work[chosen].sum())
                progress(len(table) * done // total)
        progress(len(table))
        return self._join(parts, task, sizes, is_open, dropped)

    def _refine(
        self,
        table: ProgramTable,
        task: Task,
        sizes: _Sizes,
        order: Indices,
        work: Indices,
        parts: list[_Part],
        progress: Progress,
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
        """Follow no more mass than is needed, on all threads; see `refine`. Later parts replace earlier ones."""
        begun = 0.0  # as nobody knows how much each round leaves to the next, each gets half of what is left

        def follow(chosen: Indices, prune: float) -> Followed:
            nonlocal begun
            wanted = np.zeros(len(table), np.bool_)
            wanted[chosen] = True
            batches = [batch for batch, _ in self._batches(order[wanted[order]], sizes, None if not begun else REFINED)]
            done, total, first = 0, max(int(work[chosen].sum()), 1), len(parts)
            for part in pool.map(lambda batch: self._run_batch(table, task, batch, prune), reversed(batches)):
                parts.append(part)
                done += int(work[part.chosen].sum())
                progress(int(len(table) * (begun + (1 - begun) / 2 * done / total)))
            begun += (1 - begun) / 2
            found = [part.followed for part in parts[first:] if part.followed is not None]
            places = np.concatenate([part.chosen for part in parts[first:]]).argsort()
            names = [each.name for each in fields(Followed)]
            return Followed(*(np.concatenate([getattr(each, name) for each in found])[places] for name in names))

        with single_threads() as pool:
            return refine(follow, len(table), self.tolerance, self.model.negligible_mass)

    @torch.inference_mode()
    def _run_batch(self, table: ProgramTable, task: Task, chosen: Indices, prune: float) -> _Part:
        batch = self.model.collate(table.take(chosen)).to(self.device)
        weighs = self.tolerance > 0 and _has_classes_only(task)
        record = self.record | ({"dropped", "exit_mass"} if weighs else set())
        output = self.model(batch, record=record, execution=self.execution, prune=prune)
        judged = judge(self.model, output, batch)
        pointer = followed = None
        if self.record:
            measured = (output["pointer"], output["branch"], batch.to("cpu"), self.model.config.grammar)
            pointer = measure_pointer(*measured, traced=not task.masked)
        answers = {each.name: read_answers(each, output.predictions[each.name], batch) for each in task.targets}
        if weighs:
            logits = [output.predictions[each.name].double() for each in task.targets]
            tops = [each.topk(2, dim=1).values for each in logits]
            followed = Followed(
                margin=torch.stack([top[:, 0] - top[:, 1] for top in tops]).amin(dim=0).numpy(),
                spread=torch.stack([each.amax(dim=1) - each.amin(dim=1) for each in logits]).amax(dim=0).numpy(),
                exit_mass=output["exit_mass"].double().numpy(),
                dropped=output["dropped"].double().numpy(),
            )
        loss = None if judged.loss is None else judged.loss.double().cpu().numpy()
        return _Part(chosen, judged.correct.cpu().numpy(), loss, answers, pointer, followed)

    def _join(
        self,
        parts: list[_Part],
        task: Task,
        sizes: _Sizes,
        is_open: npt.NDArray[np.bool_] | None,
        dropped: npt.NDArray[np.float64] | None,
    ) -> Evaluation:
        """What the last run of each program came to, in the order of the table."""
        ran = np.concatenate([part.chosen for part in parts])
        last = np.zeros(len(sizes.nodes), np.int64)
        np.maximum.at(last, ran, np.arange(len(ran)))
        losses = [part.loss for part in parts if part.loss is not None]
        pointers = [part.pointer for part in parts if part.pointer is not None]
        return Evaluation(
            self.model.name,
            task.name,
            sizes.lines.astype(np.int32),
            sizes.steps.astype(np.int32),
            np.concatenate([part.correct for part in parts])[last],
            {
                each.name: Answers.concatenate([part.answers[each.name] for part in parts]).take(last)
                for each in task.targets
            },
            trace_length=sizes.trace_length,
            loop_depth=sizes.loop_depth,
            loss=np.concatenate(losses)[last] if losses else None,
            pointer=PointerMetrics.concatenate(pointers).take(last) if pointers else None,
            open=is_open,
            dropped=dropped,
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

    def _batches(self, order: Indices, sizes: _Sizes, most: int | None = None) -> Iterator[tuple[Indices, bool]]:
        """Programs of each batch, as many in the order of size as fit, and whether rows are found on the way.

        Args:
            order: The programs.
            sizes: Their sizes.
            most: Programs of a batch, if there is another limit than memory.
        """
        first = 0
        while first < len(order):
            on_the_way = self.may_prune and (
                self.device.type == "cpu" or self._bytes(sizes.take(order[first : first + 1]), False) > self.batch_bytes
            )
            low, high = first + 1, len(order) if most is None else min(first + most, len(order))
            if self.holds == "nodes" or (self.streams and self.record):
                # All nodes are computed or recorded until the last program of the batch has ended: let none wait long.
                rounds = self._rounds(sizes)[order]
                high = min(high, int(np.searchsorted(rounds, 2 * rounds[first], side="right")))
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
        recorded_bytes = 64 * nodes * steps if self.record else 0
        if self.holds == "sequence":
            if self.streams:
                return 8 * (state + 512) * len(rounds) + 64 * int(rounds.sum()) + recorded_bytes
            return int(rounds.sum()) * (4 * state + 64)
        if self.holds == "plan" and not streaming:
            return nodes * steps * (4 * state + 64)
        return nodes * 32 * state + recorded_bytes

    def _rounds(self, sizes: _Sizes) -> npt.NDArray[np.int64]:
        """Steps that the model takes. [program]"""
        if self.model.walks == "lines":
            return sizes.lines
        return np.minimum(sizes.trace_length, TRACE_LIMIT) if self.model.walks == "trace" else sizes.steps


def _has_classes_only(task: Task) -> bool:
    """Whether all targets are classes of programs, whose margins say how far they are from another answer."""
    return all(each.kind == "class" and each.axis == "program" for each in task.targets)
