"""What follows from the kind of a target: its loss, and the prediction that counts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, poisson_nll_loss

from ipagnn.data.contract import Batch
from ipagnn.data.tasks import Target, TargetKind

MAX_CLASSES: Final = 100_000
"""Most classes that a model may have an output for."""


@dataclass(frozen=True, slots=True)
class KindRules:
    """Rules for targets of one kind.

    Attributes:
        loss: From what a model predicts and the target to the loss of each entry, in nats. [entry]
        decide: From what a model predicts to the prediction, as the target has it. [entry]
    """

    loss: Callable[[Tensor, Tensor], Tensor]
    decide: Callable[[Tensor], Tensor]


def _class_loss(logits: Tensor, target: Tensor) -> Tensor:
    return cross_entropy(logits, target, reduction="none")


def _mask_loss(logits: Tensor, target: Tensor) -> Tensor:
    return binary_cross_entropy_with_logits(logits, target.to(logits.dtype), reduction="none")


def _count_loss(log_mean: Tensor, target: Tensor) -> Tensor:
    """The negative logarithm of a Poisson probability, less the part that no prediction changes."""
    return poisson_nll_loss(log_mean, target.to(log_mean.dtype), reduction="none")


KINDS: Final[dict[TargetKind, KindRules]] = {
    "class": KindRules(_class_loss, lambda logits: logits.argmax(dim=1)),
    "mask": KindRules(_mask_loss, lambda logits: logits > 0),
    "count": KindRules(_count_loss, lambda log_mean: log_mean.exp().round().clamp(max=2**53).long()),
}


def target_loss(target: Target, prediction: Tensor, batch: Batch) -> Tensor:
    """The loss of a target, in nats; where nodes have it, their mean. [program]

    Args:
        target: The target.
        prediction: What a model predicts of it; see `Target.kind`.
        batch: The programs.
    """
    if prediction.dtype in (torch.bfloat16, torch.float16):
        prediction = prediction.float()
    loss = KINDS[target.kind].loss(prediction, batch.targets[target.name].to(prediction.device))
    return loss if target.axis == "program" else _node_mean(loss, batch)


def target_correct(target: Target, prediction: Tensor, batch: Batch) -> Tensor:
    """Which programs have a target predicted right; where nodes have it, at all of them. bool [program]"""
    right = KINDS[target.kind].decide(prediction.detach()) == batch.targets[target.name].to(prediction.device)
    return right if target.axis == "program" else _node_mean(right.double(), batch) == 1


def _node_mean(values: Tensor, batch: Batch) -> Tensor:
    """The mean over the nodes of each program. [node] -> [program]"""
    owner, nodes = batch.node_program.to(values.device), batch.node_offsets.diff().to(values.device)
    return values.new_zeros(len(batch)).index_add(0, owner, values) / nodes
