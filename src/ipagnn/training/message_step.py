"""The step of GGNN, NoExecute and NoControl on a GPU, captured: see `captured_step`."""

from typing import Any, TypeGuard

import torch
from torch import Tensor

from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.models import ProgramModel
from ipagnn.models.message_passing import MessagePassing
from ipagnn.ops.messages.triton.gated import GatedLauncher
from ipagnn.ops.messages.triton.launcher import AnyPlan, MessageLauncher, execute
from ipagnn.ops.messages.triton.make import make_plan
from ipagnn.ops.messages.triton.plan import MessageCapacity, MessagePlan
from ipagnn.ops.messages.triton.statement_plan import StatementCapacity, StatementPlan
from ipagnn.ops.messages.triton.statements import StatementLauncher
from ipagnn.training.captured_step import CapturedStep
from ipagnn.training.config import TrainConfig
from ipagnn.training.optim.triton import losses
from ipagnn.training.step import autocast


def has_kernels(model: ProgramModel) -> TypeGuard[MessagePassing]:
    """Whether there are kernels for a model as it is configured."""
    return isinstance(model, MessagePassing) and model.messages is not None


class MessageStep(CapturedStep[AnyPlan, MessageLauncher[Any]]):
    """The captured step of a message passing model, for which `has_kernels` must hold."""

    def __init__(self, model: ProgramModel, config: TrainConfig, device: torch.device, *, watch: int = 0) -> None:
        super().__init__(model, config, device, watch=watch)
        assert has_kernels(model)
        assert model.messages is not None
        self._messages, self._how = model, model.messages
        self._launches: type[MessageLauncher[Any]] = GatedLauncher
        if self._how.kind == "statements":
            self._launches = StatementLauncher

    def prepare(self, table: ProgramTable) -> AnyPlan:  # type: ignore[override]
        """The plan of a batch, in page-locked memory."""
        return make_plan(self._how, self._model.collate(table), pinned=True)

    def _empty(self, capacity: MessageCapacity | StatementCapacity) -> AnyPlan:
        if isinstance(capacity, StatementCapacity):
            return StatementPlan.empty(capacity, self._device)
        return MessagePlan.empty(capacity, self._device)

    def _bytes(self, capacity: MessageCapacity | StatementCapacity) -> int:
        return self._launches.bytes(self._weights, capacity)

    def _launcher(self, plan: AnyPlan, memory: Tensor) -> MessageLauncher[Any]:
        return self._launches(self._how, self._weights, plan, memory, exact=self._exact)

    def _run(self, plan: AnyPlan, launcher: MessageLauncher[Any]) -> None:
        self._update.zero_gradients()
        final = execute(launcher, self._messages.message_weights())
        with autocast(self._device, self._half):
            logits = self._model.output(final)
        loss, correct, d_logits = losses(logits.detach(), plan.target)
        logits.backward(d_logits)
        self._finish(loss, correct)
