"""The step of GGNN, NoExecute, NoControl and R-GAT on a GPU, captured: see `captured_step`."""

from typing import Any

import torch
from torch import Tensor

from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.models import ProgramModel
from ipagnn.models.r_gat import RGAT
from ipagnn.ops.messages.rows import make_plan, message_kind
from ipagnn.ops.messages.triton.attention import AttentionLauncher
from ipagnn.ops.messages.triton.gated import GatedLauncher
from ipagnn.ops.messages.triton.launcher import AnyPlan, MessageLauncher, execute
from ipagnn.ops.messages.triton.plan import MessageCapacity, MessagePlan
from ipagnn.ops.messages.triton.statement_plan import StatementCapacity, StatementPlan
from ipagnn.ops.messages.triton.statements import StatementLauncher
from ipagnn.training.captured_step import CapturedStep
from ipagnn.training.config import TrainConfig
from ipagnn.training.optim.triton import losses
from ipagnn.training.step import autocast


def launcher_of(model: ProgramModel) -> type[MessageLauncher[Any]] | None:
    """What launches the kernels for a model as it is configured; None if there are none."""
    kind = message_kind(model) if model.config.execution == "packed" else None
    if kind is None:
        return None
    if isinstance(model, RGAT):
        return AttentionLauncher
    return StatementLauncher if kind == "statements" else GatedLauncher


class MessageStep(CapturedStep[AnyPlan, MessageLauncher[Any]]):
    """The captured step of a message passing model, which `launcher_of` must know."""

    def __init__(self, model: ProgramModel, config: TrainConfig, device: torch.device, *, watch: int = 0) -> None:
        super().__init__(model, config, device, watch=watch)
        launcher = launcher_of(model)
        assert launcher is not None
        self._launches = launcher

    def prepare(self, table: ProgramTable) -> AnyPlan:  # type: ignore[override]
        """The plan of a batch, in page-locked memory."""
        return make_plan(self._model, self._model.collate(table), pinned=True)

    def _empty(self, capacity: MessageCapacity | StatementCapacity) -> AnyPlan:
        if isinstance(capacity, StatementCapacity):
            return StatementPlan.empty(capacity, self._device)
        return MessagePlan.empty(capacity, self._device)

    def _bytes(self, capacity: MessageCapacity | StatementCapacity) -> int:
        return self._launches.bytes(self._model, self._weights, capacity)

    def _launcher(self, plan: AnyPlan, memory: Tensor) -> MessageLauncher[Any]:
        return self._launches(self._model, self._weights, plan, memory, exact=self._exact)

    def _run(self, plan: AnyPlan, launcher: MessageLauncher[Any]) -> None:
        self._update.zero_gradients()
        final = execute(launcher)
        with autocast(self._device, self._half):
            logits = self._model.output(final)
        loss, correct, d_logits = losses(logits.detach(), plan.target)
        logits.backward(d_logits)
        self._finish(loss, correct)
