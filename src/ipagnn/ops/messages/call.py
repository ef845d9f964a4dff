"""What executions of message passing are told about a model."""

from dataclasses import dataclass
from typing import Literal

MessageKind = Literal["neighbours", "pointer", "absorbing"]
"""Whose rows: all neighbours exchange messages, a pointer weighs them, or it does and exits absorb what arrives."""


@dataclass(frozen=True, slots=True)
class Messages:
    """How messages are passed.

    Attributes:
        kind: See `MessageKind`; with `statements`, every node executes its statement at every step instead of a GRU.
        normalise: Divide by what arrived: pointer mass, or with `statements` the number of messages.
        bidirectional: With `statements`: also against the edges.
        edge_types: With `statements`: through one Dense layer per edge type.
    """

    kind: MessageKind | Literal["statements"]
    normalise: bool = False
    bidirectional: bool = True
    edge_types: bool = False
