"""A step of training on a GPU as one replay of a CUDA graph, fed by background threads.

Forward, backward, clipping, the optimizer and the metrics are captured once for each size that batches come in
(`Capacity`) and then replayed: the host does nothing but copy a plan and press the button. Nothing captured may depend
on a number of the host, so the learning rate and all counts live on the device.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from ipagnn.models import ProgramModel, packed_hopper
from ipagnn.models.ipa_gnn import IPAGNN
from ipagnn.models.packed_buffers import Buffers, Weights
from ipagnn.models.packed_cuda import Launcher, execute
from ipagnn.models.packed_plan import Capacity, Plan
from ipagnn.models.sequence import SequenceModel
from ipagnn.programs.program import ProgramTable
from ipagnn.training.config import TrainConfig
from ipagnn.training.step import PlainStep, Tally, autocast


def can_capture(model: ProgramModel) -> bool:
    """Whether there are fused kernels for a model as it is configured."""
    return isinstance(model, IPAGNN | SequenceModel) and model.config.execution == "packed"


class GraphStep(PlainStep):
    """The step of a packed model on a GPU. See `TrainingStep`.

    Args:
        model: What is trained; `can_capture` must hold.
        config: How.
        device: A CUDA device.
        watch: Steps for which the sum of all numbers of the plan that was read is kept, in `seen`: a proof that it was
            the plan that was made.
    """

    def __init__(self, model: ProgramModel, config: TrainConfig, device: torch.device, *, watch: int = 0) -> None:
        super().__init__(model, config, device)
        self._exact = config.precision == "fp32"
        self._weights = Weights(model.config.hidden, torch.bfloat16 if self._half else torch.float32, device)
        self._hopper = packed_hopper.fits(self._weights)
        self._groups = packed_hopper.groups(self._weights, config.batch_size) if self._hopper else 1
        self._graphs: dict[Capacity, tuple[torch.cuda.CUDAGraph, Launcher]] = {}
        self._memory = torch.empty(0, dtype=torch.uint8, device=device)
        # Two streams for good: torch hands out the same 32 in turn, and nobody else may have the one that captures.
        self._copies, self._captures = torch.cuda.Stream(device), torch.cuda.Stream(device)
        self._branch = (
            tuple(model.control.branch.parameters())
            if isinstance(model, IPAGNN)
            else (torch.zeros(4 * model.config.hidden, 2, device=device), torch.zeros(2, device=device))
        )
        self.seen = torch.zeros(watch, dtype=torch.int64, device=device)
        self._watched = torch.zeros(1, dtype=torch.int64, device=device)

    def prepare(self, table: ProgramTable) -> Plan:  # type: ignore[override]
        """The plan of a batch, in page-locked memory."""
        return Plan.build(self._model.collate(table), groups=self._groups, pinned=True)

    def __call__(self, prepared: Plan) -> None:  # type: ignore[override]
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

    def _capture(self, capacity: Capacity, contents: Tensor) -> None:
        needed = Buffers.bytes(self._weights, capacity.rows)
        if needed > len(self._memory):  # all sizes share one piece of memory; graphs of the smaller one are made again
            torch.cuda.synchronize(self._device)
            self._graphs.clear()
            self._memory = torch.empty(needed, dtype=torch.uint8, device=self._device)
        plan = Plan.empty(capacity, self._device)
        plan.flat.copy_(contents)
        buffers = Buffers(self._weights, capacity.rows, capacity.programs, self._memory)
        model = self._model
        launcher = (packed_hopper.HopperLauncher if self._hopper else Launcher)(
            self._weights,
            buffers,
            plan,
            hard=isinstance(model, IPAGNN) and model.hard,
            normalise=isinstance(model, IPAGNN) and model.config.normalise,
            exact=self._exact,
        )
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

    def _compute(self, launcher: Launcher) -> None:
        plan, cell = launcher.plan, self._model.cell
        self._update.zero_gradients()
        final = execute(launcher, cell.table(), cell.hidden_1, cell.input_2, cell.hidden_2, cell.bias_2, *self._branch)
        with autocast(self._device, self._half):
            logits = self._model.output(final)
        self._learn(logits, plan.target.long())
        if len(self.seen) and torch.cuda.is_current_stream_capturing():
            self.seen.scatter_(0, self._watched.clamp(max=len(self.seen) - 1), plan.flat.sum(dtype=torch.int64)[None])
            self._watched += 1
