"""What executions of message passing are given."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from ipagnn.data.graphs import Graphs

MessageKind = Literal["neighbours", "pointer", "absorbing"]
"""Whose rows: all neighbours exchange messages, a pointer weighs them, or it does and exits absorb what arrives."""


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages that there are kernels for: through a Dense layer for each edge type, with a GRU as the update.

    Attributes:
        kind: See `MessageKind`.
        embedding: Embeds tokens; one of the weights. [token, hidden]
        weights: The weights that kernels read, in the order in which they take them.
        normalise: Divide by the pointer mass that arrived.
    """

    kind: MessageKind
    embedding: Tensor
    weights: Callable[[], tuple[Tensor, ...]]
    normalise: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCall:
    """Message passing over all nodes of graphs, as many times as each graph takes steps.

    Attributes:
        graphs: The graphs.
        tokens: Token ids of the statement at each node. int32 [node, 4]
        start: h_{0,n} [node, state] and p_{0,n} [node].
        step: From h and p to the next h, the next p, and the shares of the true and the false branch [node, 2].
        final: From h and p to the state at each exit [graph, state].
        record: Any of `pointer`, `branch` and `states`.
        messages: What kernels compute instead of `start`, `step` and `final`; None if there are none for them.
        grad: Whether gradients will be asked for.
    """

    graphs: Graphs
    tokens: Tensor
    start: Callable[[], tuple[Tensor, Tensor]]
    step: Callable[[Tensor, Tensor], tuple[Tensor, ...]]
    final: Callable[[Tensor, Tensor], Tensor]
    record: frozenset[str] = frozenset()
    messages: Messages | None = None
    grad: bool = field(default_factory=torch.is_grad_enabled)
