"""The step of GGNN and NoExecute on a GPU, captured: see `captured_step`."""

import torch
from torch import Tensor

from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.models import ProgramModel
from ipagnn.ops.messages.call import Messages
from ipagnn.ops.messages.triton.gated import GatedLauncher
from ipagnn.ops.messages.triton.launcher import MessageLauncher, run_messages
from ipagnn.ops.messages.triton.plan import MessageCapacity, MessagePlan
from ipagnn.training.captured_step import CapturedStep
from ipagnn.training.config import TrainConfig
from ipagnn.training.optim.triton import losses
from ipagnn.training.step import autocast


def refuses(model: ProgramModel) -> str | None:
    """Why there are no kernels for a model as it is configured; None if there are."""
    return None if isinstance(model.kernels, Messages) else "it passes no messages that there are kernels for"


class MessageStep(CapturedStep[MessagePlan, MessageLauncher]):
    """The captured step of a message passing model that is not refused."""

    def __init__(self, model: ProgramModel, config: TrainConfig, device: torch.device) -> None:
        super().__init__(model, config, device)
        assert isinstance(model.kernels, Messages)
        self._messages = model.kernels

    def prepare(self, table: ProgramTable) -> MessagePlan:  # type: ignore[override]
        """The plan of a batch, in page-locked memory."""
        batch = self._model.collate(table)
        return MessagePlan.build(batch.graphs, batch.node_tokens, self._messages.kind, batch.target, pinned=True)

    def _empty(self, capacity: MessageCapacity) -> MessagePlan:
        return MessagePlan.empty(capacity, self._device)

    def _bytes(self, capacity: MessageCapacity) -> int:
        return GatedLauncher.bytes(self._weights, capacity)

    def _launcher(self, plan: MessagePlan, memory: Tensor) -> MessageLauncher:
        return GatedLauncher(self._messages, self._weights, plan, memory, exact=self._exact)

    def _run(self, plan: MessagePlan, launcher: MessageLauncher) -> None:
        self._update.zero_gradients()
        final = run_messages(launcher, self._messages.weights())
        with autocast(self._device, self._half):
            logits = self._model.output(final)
        loss, correct, d_logits = losses(logits.detach(), plan.target)
        logits.backward(d_logits)
        self._finish(loss, correct)
