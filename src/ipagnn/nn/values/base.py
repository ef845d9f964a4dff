"""What a representation of values is: all that a model with variables needs to know about one.

A *belief* says which value a variable may have. Its first axis counts rows, its other axes are the representation's
own: a distribution over classes, or one over the digits of each place. Slots, pointer and training only mix, select and
pass on beliefs.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from ipagnn.data.contract import Batch
from ipagnn.ops import EnvironmentPlan, spread


class Values(nn.Module, ABC):
    """A representation of values, with the network that says what statements do to them.

    Operations are token ids less `vocabulary.OPERATION`, operands are numbers; both are int64 [row], or [1] for the
    same statement on all rows. Operands of statements and conditions that are variables are given as views, and
    numbers beside them as the views of who knows them. `v = w` is a statement, in which the view of v does not count.

    What statements and conditions read of a belief is its *view*: a linear function of the belief, so that views can be
    mixed in place of beliefs. They are mixed where they are smaller.

    Attributes:
        axes: Names of the axes of a belief behind the first.
    """

    axes: ClassVar[tuple[str, ...]]

    @abstractmethod
    def known(self, value: Tensor) -> Tensor:
        """The belief of who knows the value. [row, *belief]"""

    @abstractmethod
    def literal(self, operand: Tensor) -> Tensor:
        """The belief after `v = operand`. [row, *belief]"""

    @abstractmethod
    def statement(self, operation: Tensor, operand: Tensor, view: Tensor) -> Tensor:
        """The belief after an arithmetic statement on a variable with this view. [row, *belief]"""

    @abstractmethod
    def condition(self, operation: Tensor, operand: Tensor, view: Tensor) -> Tensor:
        """Logits of a condition on a variable with this view: true, false (equation 4). [row, 2]"""

    @abstractmethod
    def probabilities(self, belief: Tensor) -> Tensor:
        """The probability of each value that a target can have. [row, class]"""

    @abstractmethod
    def likeliest(self, belief: Tensor) -> tuple[Tensor, Tensor]:
        """The likeliest value, and its probability. [row] each"""

    @abstractmethod
    def likelihood(self, belief: Tensor, target: Tensor) -> Tensor:
        """The probability of a target for each row. [row]"""

    def view(self, belief: Tensor) -> Tensor:
        """What statements and conditions read of a belief; by default all of it. [row, *view]"""
        return belief

    def operands(self, number: Tensor, source: Tensor, views: Tensor) -> Tensor:
        """Operands as statements and conditions read them: numbers, or the views of all where some are variables.

        Args:
            number: Those that are numbers. [row]
            source: Negative for these. [row]
            views: The views of those that are variables; anything elsewhere. [row, *view]
        """
        is_variable = source >= 0
        if not bool(is_variable.any()):
            return number
        return torch.where(spread(is_variable, views), views, self.view(self.known(number)))

    def follow_target(self, plan: EnvironmentPlan, target: Tensor, epsilon: float) -> Tensor | None:
        """The probability of each program's target by an execution of its own, which may be faster. [program]

        None, as by default, where there is none; `nn.environment.run_environment` then executes the plan.

        Args:
            plan: What is computed when.
            target: Of each program.
            epsilon: Added to the mass that mixtures are divided by.
        """
        return None

    def begin(self, batch: Batch) -> None:
        """Called before a batch is run. What holds for all of the batch may be drawn here, such as noise in training.

        Draws must follow from the batch alone (seed a generator from it), so that a run that is resumed goes on as it
        would have.
        """

    def disturb(self, noise: float) -> None:
        """Called before each step of training with the deviation of the noise to train with; by default nothing."""

    def cost(self) -> Tensor | float:
        """What training pays for how the last batch was computed, summed over its programs; by default nothing."""
        return 0.0
