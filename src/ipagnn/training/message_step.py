"""The step of GGNN and NoExecute on a GPU, captured: see `captured_step`."""

from typing import TypeGuard

import torch
from torch import Tensor

from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.models import ProgramModel
from ipagnn.models.message_passing import MessagePassing
from ipagnn.ops.messages.triton.gated import GatedLauncher
from ipagnn.ops.messages.triton.launcher import MessageLauncher, execute
from ipagnn.ops.messages.triton.plan import MessageCapacity, MessagePlan
from ipagnn.training.captured_step import CapturedStep
from ipagnn.training.config import TrainConfig
from ipagnn.training.optim.triton import losses
from ipagnn.training.step import autocast


def has_kernels(model: ProgramModel) -> TypeGuard[MessagePassing]:
    """Whether there are kernels for a model as it is configured."""
    return isinstance(model, MessagePassing) and model.messages is not None


class MessageStep(CapturedStep[MessagePlan, MessageLauncher]):
    """The captured step of a message passing model, for which `has_kernels` must hold."""

    def __init__(self, model: ProgramModel, config: TrainConfig, device: torch.device, *, watch: int = 0) -> None:
        super().__init__(model, config, device, watch=watch)
        assert has_kernels(model)
        assert model.messages is not None
        self._messages, self._how = model, model.messages

    def prepare(self, table: ProgramTable) -> MessagePlan:  # type: ignore[override]
        """The plan of a batch, in page-locked memory."""
        return MessagePlan.build(self._model.collate(table), self._how.kind, pinned=True)

    def _empty(self, capacity: MessageCapacity) -> MessagePlan:
        return MessagePlan.empty(capacity, self._device)

    def _bytes(self, capacity: MessageCapacity) -> int:
        return GatedLauncher.bytes(self._weights, capacity)

    def _launcher(self, plan: MessagePlan, memory: Tensor) -> MessageLauncher:
        return GatedLauncher(self._how, self._weights, plan, memory, exact=self._exact)

    def _run(self, plan: MessagePlan, launcher: MessageLauncher) -> None:
        self._update.zero_gradients()
        final = execute(launcher, self._messages.message_weights())
        with autocast(self._device, self._half):
            logits = self._model.output(final)
        loss, correct, d_logits = losses(logits.detach(), plan.target)
        logits.backward(d_logits)
        self._finish(loss, correct)
