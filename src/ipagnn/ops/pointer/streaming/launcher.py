"""Inference with an instruction pointer, or over sequences, on a CUDA GPU: buffers, launches and CUDA graphs.

A graph holds a few steps and is replayed until all programs have ended; `kernels.py` says how one graph can serve
any step. There are no unrolled rows, so that memory depends on the number of nodes alone.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import triton

from ipagnn.ops.call import PointerCall, Result, StatementLSTM
from ipagnn.ops.pointer.equations import EPSILON, divide
from ipagnn.ops.pointer.streaming import kernels
from ipagnn.ops.pointer.streaming.plan import plan_pointer, plan_sequences
from ipagnn.ops.pointer.triton.buffers import KernelWeights, pad

PRECISION = "tf32x3"
"""Of products of float32: as three products of tensor cores, which keep almost all of it."""
STEPS = 16
"""Steps of a graph."""
NARROW = 1024
"""Rows up to which the small tiles are used."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """Block shapes of the waves: rows, units (of four gates each), and inner dimension at a time."""

    rows: int
    units: int
    inner: int
    warps: int
    stages: int


WIDE_TILES = Tiles(128, 32, 32, 8, 3)
NARROW_TILES = Tiles(16, 16, 32, 2, 4)


class _Waves:
    """The five waves of a step over buffers for so many rows.

    Args:
        lstm: Whose weights they use.
        rows: Most rows of a step.
        steps: Most steps.
        in_place: Rows go on where they ended, as sequences do.
    """

    def __init__(self, lstm: StatementLSTM, rows: int, steps: int, in_place: bool) -> None:
        device = lstm.embedding.device
        self.hidden, self.rows, self.steps, self.in_place = lstm.hidden, rows, steps, in_place
        loaded = KernelWeights(lstm.hidden, torch.float32, device)
        if lstm.branch_weight is None or lstm.branch_bias is None:
            decide = [lstm.embedding.new_zeros(4 * lstm.hidden, 2), lstm.embedding.new_zeros(2)]
        else:
            decide = [lstm.branch_weight, lstm.branch_bias]
        loaded.load(lstm.table(), lstm.hidden_1, lstm.input_2, lstm.hidden_2, lstm.bias_2, *decide)
        self.table, self.branch_weight, self.branch_bias = loaded.table, loaded.branch_weight, loaded.branch_bias
        self.weights = loaded.weights.permute(0, 2, 3, 1).contiguous()
        self.padded = loaded.padded
        self.h = torch.empty(2, 5, rows, self.padded, device=device)
        self.c = torch.empty(2, 5, rows, self.padded, device=device)
        # Steps beyond the last are looked at, but have no rows.
        self.clock, self.starts, self.counts = (
            torch.zeros(size, dtype=torch.int32, device=device) for size in (1, steps + 2 * STEPS, steps + 2 * STEPS)
        )
        self.tokens = torch.zeros(rows, 4, dtype=torch.int32, device=device)
        on_gpu = device.type == "cuda"
        self.processors = torch.cuda.get_device_properties(device).multi_processor_count if on_gpu else 1

    def launch(self, step: int, narrow: bool) -> None:
        """Execute a statement on all rows of step `clock + step`."""
        tiles = NARROW_TILES if narrow else WIDE_TILES
        most = (
            2 * (self.padded // tiles.units) * triton.cdiv(min(self.rows, NARROW) if narrow else self.rows, tiles.rows)
        )
        for number in range(5):
            kernels.wave[(min(4 * self.processors, most),)](
                self.clock, step, self.starts, self.counts, self.tokens, self.table, self.weights, self.h, self.c,
                self.rows, WAVE=number, IN_PLACE=self.in_place, PRECISION=PRECISION,
                P=self.padded, M=tiles.rows, N=tiles.units, K=tiles.inner,
                num_warps=tiles.warps, num_stages=tiles.stages,
            )  # fmt: skip

    def run(self, launch_step: Callable[[int, bool], None]) -> None:
        """Run all steps; stops when no rows are left.

        Args:
            launch_step: Launches everything of step `clock + step`, for few rows or many.
        """
        some: dict[bool, Callable[[], None]] = {}
        for first in range(0, self.steps, STEPS):
            rows = int(self.counts[first])
            if not rows:
                break
            narrow = rows <= NARROW
            if narrow not in some:
                some[narrow] = self._some_steps(launch_step, narrow)
                self.clock.fill_(first)
            some[narrow]()

    def _some_steps(self, launch_step: Callable[[int, bool], None], narrow: bool) -> Callable[[], None]:
        """The next few steps, as a graph where there is a GPU."""

        def steps() -> None:
            for step in range(STEPS):
                launch_step(step, narrow)
            self.clock.add_(STEPS)

        if self.clock.device.type != "cuda":
            return steps
        self.clock.fill_(self.steps + STEPS - 2)  # nothing runs there: this only compiles
        launch_step(0, narrow)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            steps()
        return graph.replay


@torch.no_grad()
def run_streaming(call: PointerCall) -> Result:
    """Walk a pointer, or read sequences where nothing is decided; the call has the weights of a statement LSTM."""
    if call.decide is None:
        return _read_sequences(call)
    plan, lstm = call.graphs.plan(plan_pointer), call.lstm
    assert lstm is not None
    programs, tokens = len(call.graphs), lstm.tokens[plan.origin]
    trace = bool(call.record & {"pointer", "branch"})
    device, nodes, starts = lstm.embedding.device, len(plan.origin), plan.starts
    final = torch.zeros(programs, 4, pad(lstm.hidden), device=device)
    final_mass, dropped = torch.zeros(2, programs, device=device)
    pointer = torch.zeros(plan.steps + 1 if trace else 0, nodes, device=device)
    branch = torch.full((plan.steps if trace else 0, nodes), torch.nan, device=device)
    if len(starts):
        waves = _Waves(lstm, nodes, plan.steps, in_place=False)
        place = torch.full((2, nodes), -1, dtype=torch.int32, device=device)
        mass = torch.ones(2, nodes, device=device)
        place[0, starts] = torch.arange(len(starts), dtype=torch.int32, device=device)
        waves.tokens[: len(starts)] = tokens[starts]
        waves.counts[0] = len(starts)
        waves.h[:, 0, : len(starts)] = 0
        waves.c[:, 0, : len(starts)] = 0
        if trace:
            pointer[0, plan.origin[starts]] = 1
        nodes_at = torch.zeros_like(waves.counts)
        nodes_at[: plan.steps + 1] = plan.nodes_at
        flags = {"NORMALISE": call.normalise, "HARD": call.hard, "TRACE": trace}
        size = {"P": waves.padded, "WIDTH": triton.next_power_of_2(waves.padded)}

        def step(number: int, narrow: bool) -> None:
            waves.launch(number, narrow)
            kernels.arrive[(min(16 * waves.processors, nodes),)](
                waves.clock, number + 1, nodes_at, waves.counts, plan.last, plan.exit_of, plan.owner, tokens,
                plan.edge_offsets, plan.edges, plan.decides, waves.branch_weight, waves.branch_bias,
                place, mass, waves.tokens, waves.h, waves.c, nodes, nodes, final, final_mass, dropped,
                plan.origin, pointer, branch, EPSILON, call.prune, **flags, **size, num_warps=2,
            )  # fmt: skip

        waves.run(step)
    states = final[:, :, : lstm.hidden].flatten(1)
    states = divide(states, final_mass) if call.normalise else states
    found = {"dropped": dropped}
    if trace:
        exits = (plan.exit_of >= 0).nonzero().squeeze(1)
        columns = plan.origin[exits].long()
        pointer[:, columns] = pointer[:, columns].cummax(dim=0).values  # mass stays where a program has ended
        found |= {"pointer": pointer, "branch": branch}
    return Result(states, {name: found[name] for name in call.record & found.keys()})


def _read_sequences(call: PointerCall) -> Result:
    """The state of each program after its last statement, from zero."""
    plan, lstm = call.graphs.plan(plan_sequences), call.lstm
    assert lstm is not None
    waves = _Waves(lstm, len(plan.rank), len(plan.counts), in_place=True)
    waves.starts[: len(plan.starts)] = plan.starts
    waves.counts[: len(plan.counts)] = plan.counts
    waves.tokens = lstm.tokens[plan.node]
    waves.h[:, 4] = 0
    waves.c[:, 4] = 0
    waves.run(waves.launch)
    parts = [waves.c[0, 4], waves.h[0, 4].float(), waves.c[1, 4], waves.h[1, 4].float()]
    return Result(torch.cat([part[plan.rank, : lstm.hidden] for part in parts], dim=1), {})
