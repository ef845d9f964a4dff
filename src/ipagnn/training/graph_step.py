"""The step of IPA-GNN, Hard IP-RNN, Trace RNN and Line-by-Line RNN on a GPU, captured: see `captured_step`."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.models import ProgramModel
from ipagnn.models.stepping import PointerKernels
from ipagnn.nn.cell import Decoder
from ipagnn.ops.pointer.hopper import launcher as packed_hopper
from ipagnn.ops.pointer.triton.buffers import Buffers
from ipagnn.ops.pointer.triton.launcher import Launcher, Parameters, multiply
from ipagnn.ops.pointer.triton.plan import Capacity, Plan
from ipagnn.training.captured_step import CapturedStep
from ipagnn.training.config import TrainConfig
from ipagnn.training.optim.triton import losses


def refuses(model: ProgramModel) -> str | None:
    """Why there are no kernels for a model as it is configured; None if there are."""
    return None if isinstance(model.kernels, PointerKernels) else "it walks no pointer that there are kernels for"


def gradient(parameter: Tensor) -> Tensor:
    """Where the optimizer reads it."""
    assert parameter.grad is not None
    return parameter.grad


class _Decoded:
    """What a decoder made of final states, differentiable by torch: it is one step of many."""

    def __init__(self, decoder: Decoder, state: Tensor) -> None:
        self._parameters = [x for name, x in decoder.named_parameters() if not name.startswith("dense.")]
        with torch.enable_grad():
            self._state = state.requires_grad_()
            self._decoded = decoder.decode(self._state)
        self.output = self._decoded.detach()

    def backward(self, gradients: Tensor) -> Tensor:
        """Leave the gradients of the weights where the optimizer reads them, and return those of the states."""
        d_state, *d_weights = torch.autograd.grad(self._decoded, [self._state, *self._parameters], gradients)
        for parameter, d_weight in zip(self._parameters, d_weights, strict=True):
            gradient(parameter).copy_(d_weight)
        return d_state


class GraphStep(CapturedStep[Plan, Launcher]):
    """The captured step of a packed model, that is not refused."""

    def __init__(self, model: ProgramModel, config: TrainConfig, device: torch.device) -> None:
        super().__init__(model, config, device)
        self._hopper = packed_hopper.fits(self._weights)
        self._processes = config.run.gpu_processes
        batch = config.data.batch_size
        self._groups = packed_hopper.groups(self._weights, batch, processes=self._processes) if self._hopper else 1
        self._side = torch.cuda.Stream(device)
        hidden = model.config.hidden
        self._branch: tuple[Tensor, ...] = tuple(torch.zeros(shape, device=device) for shape in ((4 * hidden, 2), (2,)))
        self._d_branch: tuple[Tensor, ...] = tuple(torch.zeros_like(x) for x in self._branch)
        assert isinstance(model.kernels, PointerKernels)
        self._kernels = model.kernels
        if self._kernels.branch:
            self._branch, self._d_branch = self._kernels.branch, tuple(map(gradient, self._kernels.branch))

    def prepare(self, table: ProgramTable) -> Plan:  # type: ignore[override]
        """The plan of a batch, in page-locked memory."""
        batch = self._model.collate(table)
        return Plan.build(*self._kernels.walked(batch), batch.target, groups=self._groups, pinned=True)

    def _empty(self, capacity: Capacity) -> Plan:
        return Plan.empty(capacity, self._device)

    def _bytes(self, capacity: Capacity) -> int:
        return Buffers.bytes(self._weights, capacity.rows)

    def _launcher(self, plan: Plan, memory: Tensor) -> Launcher:
        capacity = plan.capacity
        make = partial(packed_hopper.HopperLauncher, processes=self._processes) if self._hopper else Launcher
        return make(
            self._weights,
            Buffers(self._weights, capacity.rows, capacity.programs, memory),
            plan,
            hard=self._kernels.hard,
            normalise=self._kernels.normalise,
            exact=self._exact,
        )

    def _run(self, plan: Plan, launcher: Launcher) -> None:
        """Differentiated by hand, so that gradients are written once, to where the optimizer reads them."""
        cell, reads, kind = self._model.cell, self._model.output, self._weights.dtype
        output = reads.dense if isinstance(reads, Decoder) else reads
        d_cell = {name: gradient(parameter) for name, parameter in cell.named_parameters()}
        with torch.no_grad(), self._products():
            table = torch.addmm(cell.bias_1, cell.embedding, cell.input_1)
            d_table = torch.empty_like(table)
            launcher.load(Parameters(table, cell.hidden_1, cell.input_2, cell.hidden_2, cell.bias_2, *self._branch))
            launcher.forward()
            state = launcher.buffers.final[:, :, : self._weights.hidden]
            decoded = _Decoded(reads, state.flatten(1)) if isinstance(reads, Decoder) else None
            final = decoded.output.to(kind) if decoded else state.to(kind).flatten(1)
            weight = output.weight.to(kind)
            logits = torch.empty(len(final), weight.shape[1], device=self._device)
            multiply(final, weight, logits)
            loss, correct, d_logits = losses(logits, plan.target, output.bias, kind)
            d_final = torch.empty(final.shape, device=self._device)
            multiply(d_logits, weight.T, d_final)
            d_final = decoded.backward(d_final) if decoded else d_final
            main, side = torch.cuda.current_stream(self._device), self._side
            side.wait_stream(main)
            with torch.cuda.stream(side):  # while the backward pass leaves multiprocessors idle
                multiply(final.T, d_logits, gradient(output.weight))
                torch.sum(d_logits, dim=0, dtype=torch.float32, out=gradient(output.bias))
            names = ("hidden_1", "input_2", "hidden_2", "bias_2")
            launcher.backward(d_final, Parameters(d_table, *(d_cell[name] for name in names), *self._d_branch), side)
            with torch.cuda.stream(side):
                torch.mm(d_table, cell.input_1.T, out=d_cell["embedding"])
                torch.mm(cell.embedding.T, d_table, out=d_cell["input_1"])
                torch.sum(d_table, dim=0, out=d_cell["bias_1"])
            main.wait_stream(side)
            self._finish(loss, correct)

    @contextmanager
    def _products(self) -> Iterator[None]:
        """Products of float32 in tf32 where all others are in bf16."""
        before = torch.get_float32_matmul_precision()
        if self._half:
            torch.set_float32_matmul_precision("high")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
