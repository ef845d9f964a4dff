"""A step of training on a GPU as one replay of a CUDA graph, fed by background threads.

Forward, backward, clipping, the optimizer and the metrics are captured once for each size that batches come in and then
replayed: the host does nothing but copy a plan and press the button. Nothing captured may depend on a number of the
host, so the learning rate and all counts live on the device.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from ipagnn.models import ProgramModel
from ipagnn.ops.pointer.triton.buffers import KernelWeights
from ipagnn.training.config import TrainConfig
from ipagnn.training.optim.triton import tally
from ipagnn.training.step import PlainStep, Tally


class AnyPlan(Protocol):
    """What is copied to the device for a batch: views of one flat tensor of a size that many batches share."""

    @property
    def flat(self) -> Tensor:
        """All of it."""

    @property
    def capacity(self) -> Any:
        """Its size; equal for plans that can take each other's place."""

    @property
    def target(self) -> Tensor:
        """The values to predict. [program]"""


P = TypeVar("P", bound=AnyPlan)
L = TypeVar("L")


class CapturedStep(PlainStep, ABC, Generic[P, L]):
    """What the steps on a GPU have in common; P is the kind of plan, L what launches the kernels. See `TrainingStep`.

    Args:
        model: What is trained.
        config: How.
        device: A CUDA device.
    """

    def __init__(self, model: ProgramModel, config: TrainConfig, device: torch.device) -> None:
        super().__init__(model, config, device)
        self._exact = config.run.precision == "fp32"
        self._weights = KernelWeights(model.config.hidden, torch.bfloat16 if self._half else torch.float32, device)
        self._graphs: dict[Any, tuple[torch.cuda.CUDAGraph, P, L]] = {}
        self._memory = torch.empty(0, dtype=torch.uint8, device=device)
        # Two streams for good: torch hands out the same 32 in turn, and nobody else may have the one that captures.
        self._copies, self._captures = torch.cuda.Stream(device), torch.cuda.Stream(device)

    @abstractmethod
    def _empty(self, capacity: Any) -> P:
        """Room for a plan on the device."""

    @abstractmethod
    def _bytes(self, capacity: Any) -> int:
        """Memory that the kernels need for plans of this size."""

    @abstractmethod
    def _launcher(self, plan: P, memory: Tensor) -> L:
        """What launches the kernels over a plan."""

    @abstractmethod
    def _run(self, plan: P, launcher: L) -> None:
        """One step, up to and with `_finish`."""

    def __call__(self, prepared: P) -> None:  # type: ignore[override]
        """See `TrainingStep`."""
        main = torch.cuda.current_stream(self._device)
        with torch.cuda.stream(self._copies):  # overlaps with the step before; the allocator keeps both ends alive
            arrived = prepared.flat.to(self._device, non_blocking=True)
        main.wait_stream(self._copies)
        arrived.record_stream(main)
        if prepared.capacity not in self._graphs:
            self._capture(prepared.capacity, arrived)
        graph, plan, _ = self._graphs[prepared.capacity]
        plan.flat.copy_(arrived)
        graph.replay()

    def load(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """See `TrainingStep`."""
        super().load(weights, state)
        self._graphs.clear()  # they hold the addresses of the state before

    def _capture(self, capacity: Any, contents: Tensor) -> None:
        needed = self._bytes(capacity)
        if needed > len(self._memory):  # all sizes share one piece of memory; graphs of the smaller one are made again
            torch.cuda.synchronize(self._device)
            self._graphs.clear()
            self._memory = torch.empty(needed + needed // 8, dtype=torch.uint8, device=self._device)
        plan = self._empty(capacity)
        plan.flat.copy_(contents)
        launcher = self._launcher(plan, self._memory)
        graph, stream = torch.cuda.CUDAGraph(), self._captures
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            with self._idle():
                self._run(plan, launcher)  # compiles and allocates what must not be captured
            stream.synchronize()
            # Other threads go on making batches, in page-locked memory that they ask CUDA for.
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                self._run(plan, launcher)
        torch.cuda.current_stream(self._device).wait_stream(stream)
        self._graphs[capacity] = graph, plan, launcher

    @contextmanager
    def _idle(self) -> Iterator[None]:
        """What is computed in the block changes nothing: no gradient is small enough, and nobody counts."""
        limit, counted = self._update.limit, self._tally
        self._update.limit, self._tally = -1.0, Tally(self._device)
        try:
            yield
        finally:
            self._update.limit, self._tally = limit, counted

    def _finish(self, loss: Tensor, correct: Tensor) -> None:
        """Apply the gradients and count the step."""
        self._update()
        tally(self._tally.flat, loss, correct, self._update.norm, self._update.failed)
