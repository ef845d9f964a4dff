"""What executions of message passing are given about a model."""

from dataclasses import dataclass
from typing import Literal

MessageKind = Literal["neighbours", "pointer", "absorbing"]
"""Whose rows: all neighbours exchange messages, a pointer weighs them, or it does and exits absorb what arrives."""


@dataclass(frozen=True, slots=True)
class Messages:
    """How messages are passed.

    Attributes:
        kind: See `MessageKind`.
        normalise: Divide by the pointer mass that arrived.
    """

    kind: MessageKind
    normalise: bool = False
