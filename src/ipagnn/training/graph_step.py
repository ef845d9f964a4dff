"""The step of IPA-GNN, Hard IP-RNN, Trace RNN and Line-by-Line RNN on a GPU, captured: see `captured_step`."""

import torch
from torch import Tensor

from ipagnn.models import ProgramModel, packed_hopper
from ipagnn.models.ipa_gnn import IPAGNN
from ipagnn.models.packed_buffers import Buffers
from ipagnn.models.packed_cuda import Launcher, execute
from ipagnn.models.packed_plan import Capacity, Plan
from ipagnn.models.sequence import SequenceModel
from ipagnn.programs.program import ProgramTable
from ipagnn.training.captured_step import CapturedStep
from ipagnn.training.config import TrainConfig


def can_capture(model: ProgramModel) -> bool:
    """Whether there are fused kernels for a model as it is configured."""
    return isinstance(model, IPAGNN | SequenceModel) and model.config.execution == "packed"


class GraphStep(CapturedStep[Plan, Launcher]):
    """The captured step of a packed model, for which `can_capture` must hold."""

    def __init__(self, model: ProgramModel, config: TrainConfig, device: torch.device, *, watch: int = 0) -> None:
        super().__init__(model, config, device, watch=watch)
        self._hopper = packed_hopper.fits(self._weights)
        self._groups = packed_hopper.groups(self._weights, config.batch_size) if self._hopper else 1
        self._branch = (
            tuple(model.control.branch.parameters())
            if isinstance(model, IPAGNN)
            else (torch.zeros(4 * model.config.hidden, 2, device=device), torch.zeros(2, device=device))
        )

    def prepare(self, table: ProgramTable) -> Plan:  # type: ignore[override]
        """The plan of a batch, in page-locked memory."""
        return Plan.build(self._model.collate(table), groups=self._groups, pinned=True)

    def _empty(self, capacity: Capacity) -> Plan:
        return Plan.empty(capacity, self._device)

    def _bytes(self, capacity: Capacity) -> int:
        return Buffers.bytes(self._weights, capacity.rows)

    def _launcher(self, plan: Plan, memory: Tensor) -> Launcher:
        model, capacity = self._model, plan.capacity
        return (packed_hopper.HopperLauncher if self._hopper else Launcher)(
            self._weights,
            Buffers(self._weights, capacity.rows, capacity.programs, memory),
            plan,
            hard=isinstance(model, IPAGNN) and model.hard,
            normalise=isinstance(model, IPAGNN) and model.config.normalise,
            exact=self._exact,
        )

    def _final(self, launcher: Launcher) -> Tensor:
        cell = self._model.cell
        return execute(launcher, cell.table(), cell.hidden_1, cell.input_2, cell.hidden_2, cell.bias_2, *self._branch)
