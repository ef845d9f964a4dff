"""The Hard IP-RNN."""

from typing import ClassVar

from ipagnn.models.ipa_gnn import IPAGNN
from ipagnn.models.registry import register


@register
class HardIPRNN(IPAGNN):
    """The IPA-GNN with discrete branch decisions, b = Hardmax(Dense(a)) (sections 4.1 and 4.3).

    Its parameters are those of an IPA-GNN by name and shape, so either loads the other's weights. It trains with the
    straight-through estimator: decisions are one-hot forwards, and backwards pass the gradient of the softmax.

    Shapes:
        batch -> logits [program, class]
    """

    name: ClassVar[str] = "hard-ip-rnn"
    title: ClassVar[str] = "Hard IP-RNN"
    hard: ClassVar[bool] = True
