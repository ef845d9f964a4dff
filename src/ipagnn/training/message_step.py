"""A step of training of GGNN, NoExecute, NoControl or R-GAT on a GPU as one replay of a CUDA graph.

What `graph_step` is for the packed models; what it says of graphs, streams and memory holds here too.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from ipagnn.models import ProgramModel
from ipagnn.models.message_attention import AttentionLauncher
from ipagnn.models.message_cuda import MessageLauncher, StatementLauncher, execute
from ipagnn.models.message_gated import GatedLauncher
from ipagnn.models.message_plan import MessageCapacity, MessagePlan
from ipagnn.models.message_rows import message_kind
from ipagnn.models.packed_buffers import Weights
from ipagnn.models.r_gat import RGAT
from ipagnn.programs.program import ProgramTable
from ipagnn.training.config import TrainConfig
from ipagnn.training.step import PlainStep, Tally, autocast


def launcher_of(model: ProgramModel) -> type[MessageLauncher] | None:
    """What launches the kernels for a model as it is configured; None if there are none."""
    kind = message_kind(model) if model.config.execution == "packed" else None
    if kind is None:
        return None
    if isinstance(model, RGAT):
        return AttentionLauncher
    return StatementLauncher if kind == "statements" else GatedLauncher


class MessageStep(PlainStep):
    """The step of a message passing model on a GPU. See `TrainingStep`.

    Args:
        model: What is trained; `launcher_of` must know it.
        config: How.
        device: A CUDA device.
        watch: Steps for which the sum of all numbers of the plan that was read is kept, in `seen`: a proof that it was
            the plan that was made.
    """

    def __init__(self, model: ProgramModel, config: TrainConfig, device: torch.device, *, watch: int = 0) -> None:
        super().__init__(model, config, device)
        kind, launcher = message_kind(model), launcher_of(model)
        assert kind is not None
        assert launcher is not None
        self._kind, self._launcher = kind, launcher
        self._exact = config.precision == "fp32"
        self._weights = Weights(model.config.hidden, torch.bfloat16 if self._half else torch.float32, device)
        self._graphs: dict[MessageCapacity, tuple[torch.cuda.CUDAGraph, MessageLauncher]] = {}
        self._memory = torch.empty(0, dtype=torch.uint8, device=device)
        self._copies, self._captures = torch.cuda.Stream(device), torch.cuda.Stream(device)
        self.seen = torch.zeros(watch, dtype=torch.int64, device=device)
        self._watched = torch.zeros(1, dtype=torch.int64, device=device)

    def prepare(self, table: ProgramTable) -> MessagePlan:  # type: ignore[override]
        """The plan of a batch, in page-locked memory."""
        return MessagePlan.build(self._model.collate(table), self._kind, pinned=True)

    def __call__(self, prepared: MessagePlan) -> None:  # type: ignore[override]
        """See `TrainingStep`."""
        main = torch.cuda.current_stream(self._device)
        with torch.cuda.stream(self._copies):  # overlaps with the step before; the allocator keeps both ends alive
            arrived = prepared.flat.to(self._device, non_blocking=True)
        main.wait_stream(self._copies)
        arrived.record_stream(main)
        if prepared.capacity not in self._graphs:
            self._capture(prepared.capacity, arrived)
        graph, launcher = self._graphs[prepared.capacity]
        launcher.plan.flat.copy_(arrived)
        graph.replay()

    def load(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """See `TrainingStep`."""
        super().load(weights, state)
        self._graphs.clear()  # they hold the addresses of the state before

    def _capture(self, capacity: MessageCapacity, contents: Tensor) -> None:
        needed = self._launcher.bytes(self._model, self._weights, capacity)
        if needed > len(self._memory):  # all sizes share one piece of memory; graphs of the smaller one are made again
            torch.cuda.synchronize(self._device)
            self._graphs.clear()
            self._memory = torch.empty(needed + needed // 8, dtype=torch.uint8, device=self._device)
        plan = MessagePlan.empty(capacity, self._device)
        plan.flat.copy_(contents)
        launcher = self._launcher(self._model, self._weights, plan, self._memory, exact=self._exact)
        graph, stream = torch.cuda.CUDAGraph(), self._captures
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            with self._idle():
                self._compute(launcher)  # compiles and allocates what must not be captured
            stream.synchronize()
            # Other threads go on making batches, in page-locked memory that they ask CUDA for.
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                self._compute(launcher)
        torch.cuda.current_stream(self._device).wait_stream(stream)
        self._graphs[capacity] = graph, launcher

    @contextmanager
    def _idle(self) -> Iterator[None]:
        """What is computed in the block changes nothing: no gradient is small enough, and nobody counts."""
        limit, tally = self._update.limit, self._tally
        self._update.limit, self._tally = -1.0, Tally(self._device)
        try:
            yield
        finally:
            self._update.limit, self._tally = limit, tally

    def _compute(self, launcher: MessageLauncher) -> None:
        plan = launcher.plan
        self._update.zero_gradients()
        final = execute(launcher)
        with autocast(self._device, self._half):
            logits = self._model.output(final)
        self._learn(logits, plan.target.long())
        if len(self.seen) and torch.cuda.is_current_stream_capturing():
            self.seen.scatter_(0, self._watched.clamp(max=len(self.seen) - 1), plan.flat.sum(dtype=torch.int64)[None])
            self._watched += 1
