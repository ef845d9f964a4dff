"""What a model said about one target of each program."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ipagnn.data.contract import Batch
from ipagnn.data.tasks import Target, TargetKind
from ipagnn.nn.targets import KINDS

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Answers:
    """What a model said about a target.

    Attributes:
        kind: See `Target`.
        target: The true target. [entry]
        prediction: What the model predicts. Of a class the likeliest value, the smallest of several; -1 where the model
            came to no end. [entry]
        offsets: Program i has the entries offsets[i] : offsets[i + 1]; None where every program has one.
            int64 [program + 1]
        rank: Of a class: values that the model finds likelier than the target; 0 where it is right. int32 [program]
        confidence: Of a class: probability of the prediction. float32 [program]
        margin: Of a class: difference between the two largest logits. float32 [program]
    """

    kind: TargetKind
    target: Array
    prediction: Array
    offsets: npt.NDArray[np.int64] | None = None
    rank: npt.NDArray[np.int32] | None = None
    confidence: npt.NDArray[np.float32] | None = None
    margin: npt.NDArray[np.float32] | None = None

    def take(self, chosen: npt.NDArray[np.int64]) -> "Answers":
        """Those of the programs `chosen`, in that order."""
        if self.offsets is None:
            one_each: dict[str, Any] = {name: values[chosen] for name, values in self._entries().items()}
            return replace(self, **one_each)
        counts = np.diff(self.offsets)[chosen]
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        entries = np.repeat(self.offsets[chosen] - offsets[:-1], counts) + np.arange(offsets[-1])
        taken: dict[str, Any] = {name: values[entries] for name, values in self._entries().items()}
        return replace(self, offsets=offsets, **taken)

    @staticmethod
    def concatenate(parts: "Sequence[Answers]") -> "Answers":
        """Those of all `parts`, in order."""
        first = parts[0]
        names = first._entries().keys()
        joined: dict[str, Any] = {name: np.concatenate([part._entries()[name] for part in parts]) for name in names}
        if first.offsets is not None:
            counts = [np.diff(part.offsets) for part in parts if part.offsets is not None]
            joined["offsets"] = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
        return replace(first, **joined)

    def _entries(self) -> dict[str, Array]:
        """All arrays with a number for each entry."""
        arrays = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("kind", "offsets")}
        return {name: values for name, values in arrays.items() if values is not None}


def read_answers(target: Target, predicted: Tensor, batch: Batch) -> Answers:
    """The answers to a target.

    Args:
        target: The target.
        predicted: What the model predicts of it; see `Target.kind`.
        batch: The programs.
    """
    true = batch.targets[target.name]
    prediction = KINDS[target.kind].decide(predicted.float())
    offsets = None if target.axis == "program" else batch.node_offsets.cpu().numpy().astype(np.int64)
    more = _rate_classes(predicted.float(), true.to(predicted.device)) if target.kind == "class" else {}
    return Answers(
        kind=target.kind, target=true.cpu().numpy(), prediction=prediction.cpu().numpy(), offsets=offsets, **more
    )


def _rate_classes(logits: Tensor, target: Tensor) -> dict[str, Any]:
    """Rank, confidence and margin. logits [entry, class], target [entry]"""
    of_target = logits.gather(1, target[:, None])
    classes = torch.arange(logits.shape[1], device=logits.device)
    ahead = (logits > of_target) | ((logits == of_target) & (classes < target[:, None]))
    top = logits.topk(min(2, logits.shape[1]), dim=1).values
    rated: dict[str, tuple[Tensor, type]] = {
        "rank": (ahead.sum(dim=1), np.int32),
        "confidence": (logits.softmax(dim=1).amax(dim=1), np.float32),
        "margin": (top[:, 0] - top[:, -1], np.float32),
    }
    return {name: tensor.cpu().numpy().astype(kind) for name, (tensor, kind) in rated.items()}
