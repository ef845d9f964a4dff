"""The step of GGNN, NoExecute, NoControl and R-GAT on a GPU, captured: see `captured_step`."""

import torch
from torch import Tensor

from ipagnn.models import ProgramModel
from ipagnn.models.message_attention import AttentionLauncher
from ipagnn.models.message_cuda import MessageLauncher, StatementLauncher, execute
from ipagnn.models.message_gated import GatedLauncher
from ipagnn.models.message_plan import MessageCapacity, MessagePlan
from ipagnn.models.message_rows import message_kind
from ipagnn.models.r_gat import RGAT
from ipagnn.programs.program import ProgramTable
from ipagnn.training.captured_step import CapturedStep
from ipagnn.training.config import TrainConfig
from ipagnn.training.step import autocast
from ipagnn.training.update_triton import losses


def launcher_of(model: ProgramModel) -> type[MessageLauncher] | None:
    """What launches the kernels for a model as it is configured; None if there are none."""
    kind = message_kind(model) if model.config.execution == "packed" else None
    if kind is None:
        return None
    if isinstance(model, RGAT):
        return AttentionLauncher
    return StatementLauncher if kind == "statements" else GatedLauncher


class MessageStep(CapturedStep[MessagePlan, MessageLauncher]):
    """The captured step of a message passing model, which `launcher_of` must know."""

    def __init__(self, model: ProgramModel, config: TrainConfig, device: torch.device, *, watch: int = 0) -> None:
        super().__init__(model, config, device, watch=watch)
        kind, launcher = message_kind(model), launcher_of(model)
        assert kind is not None
        assert launcher is not None
        self._kind, self._launches = kind, launcher

    def prepare(self, table: ProgramTable) -> MessagePlan:  # type: ignore[override]
        """The plan of a batch, in page-locked memory."""
        return MessagePlan.build(self._model.collate(table), self._kind, pinned=True)

    def _empty(self, capacity: MessageCapacity) -> MessagePlan:
        return MessagePlan.empty(capacity, self._device)

    def _bytes(self, capacity: MessageCapacity) -> int:
        return self._launches.bytes(self._model, self._weights, capacity)

    def _launcher(self, plan: MessagePlan, memory: Tensor) -> MessageLauncher:
        return self._launches(self._model, self._weights, plan, memory, exact=self._exact)

    def _run(self, plan: MessagePlan, launcher: MessageLauncher) -> None:
        self._update.zero_gradients()
        final = execute(launcher)
        with autocast(self._device, self._half):
            logits = self._model.output(final)
        loss, correct, d_logits = losses(logits.detach(), plan.target)
        logits.backward(d_logits)
        self._finish(loss, correct)
