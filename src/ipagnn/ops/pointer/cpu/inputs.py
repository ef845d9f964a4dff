"""What one pass of the packed step reads: its weights, and the part of the batch's rows that it runs."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class PassWeights:
    """The weights of one pass, as the step reads them.

    Attributes:
        table: What each token that rows have adds to the gates of layer 1. [token, 4 * hidden]
        hidden_1: Weights from layer 1's output. [hidden, 4 * hidden]
        weight_2: Weights from layer 1's output and layer 2's. [2 * hidden, 4 * hidden]
        bias_2: [4 * hidden]
        branch_weight: True minus false: a softmax of two is a sigmoid. [4 * hidden]; empty where nothing is decided.
        branch_bias: The same. [1]
        hidden_1_t, weight_2_t: Transposed, for the backward pass.
    """

    table: Tensor
    hidden_1: Tensor
    weight_2: Tensor
    bias_2: Tensor
    branch_weight: Tensor
    branch_bias: Tensor
    hidden_1_t: Tensor
    weight_2_t: Tensor

    @staticmethod
    def of(
        table: Tensor,
        hidden_1: Tensor,
        input_2: Tensor,
        hidden_2: Tensor,
        bias_2: Tensor,
        branch_weight: Tensor | None = None,
        branch_bias: Tensor | None = None,
    ) -> "PassWeights":
        """From a model's parameters."""
        weight = bias = bias_2.new_empty(0)
        if branch_weight is not None and branch_bias is not None:
            weight, bias = branch_weight[:, 0] - branch_weight[:, 1], branch_bias[:1] - branch_bias[1:]
        weight_2 = torch.cat([input_2, hidden_2])
        return PassWeights(
            table,
            hidden_1,
            weight_2,
            bias_2,
            weight,
            bias,
            hidden_1.t().contiguous(),
            weight_2.t().contiguous(),
        )

    @property
    def hidden(self) -> int:
        """H."""
        return len(self.hidden_1)


@dataclass(frozen=True, slots=True)
class Portion:
    """The rows of some of a batch's programs, with rows and programs counted from 0.

    Attributes:
        steps: Step t computes the rows `steps[t] : steps[t + 1]`.
        programs: How many.
        tokens: Rows of the token table. [row, 4]
        program, true, false: As `graph` and the two sides of `target` of `Rows`. [row]
        branches: Whether the row decides. [row]
        rows: Where its rows stand among those of the batch; None if it has them all. [row]
    """

    steps: tuple[int, ...]
    programs: int
    tokens: Tensor
    program: Tensor
    branches: Tensor
    true: Tensor
    false: Tensor
    rows: Tensor | None = None
