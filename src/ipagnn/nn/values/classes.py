"""Values as classes: a belief is a distribution over the values 0 to modulus - 1."""

from typing import ClassVar, Final

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, one_hot

from ipagnn.languages.arithmetic.vocabulary import ASSIGN, MAX_NUMBER, OPERATION, OPERATIONS
from ipagnn.nn.targets import MAX_CLASSES
from ipagnn.nn.values.base import Values
from ipagnn.ops import EnvironmentPlan, follower

_ASSIGN: Final = ASSIGN - OPERATION


class Classes(Values):
    """One belief over all classes, and one small network for every statement.

    With E the embedding of numbers, q the belief of the variable that a statement names and k its operand:

        e   = sum over j of q(j) · E_j                                                      the view
        h   = gelu(W e * (1 + g_op + G E_k) + o_op + O E_k)
        z   = h + gelu(L h)
        q'  = softmax over j of sqrt(D) · (P z) · E_j + c_j                                 if the statement assigns
        b   = softmax(Dense(z))                                                             if it is a condition

    gelu is the form with tanh. E serves three times: a literal looks like the value it denotes, and so does what is
    computed. A literal is read with e = 0, since `v = k` does not depend on what v was.

    Args:
        modulus: Number of classes.
        hidden: Width of h and z.
        width: Width of the embedding (D).
        generator: Draws the weights.
    """

    axes: ClassVar[tuple[str, ...]] = ("value",)

    def __init__(self, modulus: int, hidden: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        if modulus > MAX_CLASSES:
            raise ValueError(f"The modulus is {modulus:,}; values as classes allow at most {MAX_CLASSES:,}.")
        self.modulus = modulus
        numbers = max(modulus, MAX_NUMBER + 1)  # literals that are no class are numbers, too

        def normal(*shape: int, deviation: float = 1.0) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape).normal_(0, deviation, generator=generator))

        def uniform(*shape: int, inputs: int) -> nn.Parameter:
            bound = inputs**-0.5
            return nn.Parameter(torch.empty(shape).uniform_(-bound, bound, generator=generator))

        self.embedding = normal(numbers, width, deviation=width**-0.5)  # E
        self.read = uniform(width, hidden, inputs=width)  # W
        self.gate_operation = normal(len(OPERATIONS), hidden)  # g
        self.gate_operand = uniform(width, hidden, inputs=width)  # G
        self.offset_operation = normal(len(OPERATIONS), hidden)  # o
        self.offset_operand = uniform(width, hidden, inputs=width)  # O
        self.offset_bias = uniform(hidden, inputs=width)
        self.layer = uniform(hidden, hidden, inputs=hidden)  # L
        self.layer_bias = uniform(hidden, inputs=hidden)
        self.project = uniform(hidden, width, inputs=hidden)  # P
        self.project_bias = uniform(width, inputs=hidden)
        self.output_bias = nn.Parameter(torch.zeros(modulus))  # c
        self.branch = uniform(hidden, 2, inputs=hidden)  # Dense
        self.branch_bias = uniform(2, inputs=hidden)
        self._spare: list[dict[str, Tensor]] = []  # memory of training steps that are over

    def known(self, value: Tensor) -> Tensor:
        """See `Values.known`."""
        return one_hot(value, self.modulus).to(self.embedding.dtype)

    def literal(self, operand: Tensor) -> Tensor:
        """See `Values.literal`."""
        return self._belief(self._run(torch.full_like(operand, _ASSIGN), operand, None))

    def statement(self, operation: Tensor, operand: Tensor, view: Tensor) -> Tensor:
        """See `Values.statement`."""
        return self._belief(self._run(operation, operand, view))

    def condition(self, operation: Tensor, operand: Tensor, view: Tensor) -> Tensor:
        """See `Values.condition`."""
        return torch.addmm(self.branch_bias, self._run(operation, operand, view), self.branch)

    def probabilities(self, belief: Tensor) -> Tensor:
        """See `Values.probabilities`."""
        return belief

    def likeliest(self, belief: Tensor) -> tuple[Tensor, Tensor]:
        """See `Values.likeliest`."""
        probability, value = belief.max(dim=1)
        return value, probability

    def likelihood(self, belief: Tensor, target: Tensor) -> Tensor:
        """See `Values.likelihood`."""
        return belief.gather(1, target[:, None]).squeeze(1)

    def view(self, belief: Tensor) -> Tensor:
        """The mean embedding, e. [row, width]"""
        return belief @ self.embedding[: self.modulus]

    def follow_target(self, plan: EnvironmentPlan, target: Tensor, epsilon: float) -> Tensor | None:
        """See `Values.follow_target`: compiled code, on CPUs."""
        follow = follower(self.embedding)
        if follow is None:
            return None
        scale = self.embedding.shape[1] ** 0.5
        weights = (
            *(self.embedding, self.read, self.gate_operation, self.gate_operand, self.offset_operation),
            *(self.offset_operand, self.offset_bias, self.layer, self.layer_bias),
            *(scale * self.project, scale * self.project_bias, self.output_bias, self.branch, self.branch_bias),
        )
        return follow(plan, target, *weights, spare=self._spare, epsilon=epsilon)

    def _pairs(self, operation: Tensor, operand: Tensor) -> tuple[Tensor, Tensor]:
        """Gate and offset of pairs of operation and operand. [row, hidden] each"""
        number = self.embedding[operand]
        gate = 1 + self.gate_operation[operation] + number @ self.gate_operand
        offset = torch.addmm(self.offset_bias, number, self.offset_operand) + self.offset_operation[operation]
        return gate, offset

    def _run(self, operation: Tensor, operand: Tensor, view: Tensor | None) -> Tensor:
        """z; without a view that of e = 0. [row, hidden]"""
        gate, offset = self._pairs(operation, operand)
        h = gelu(offset if view is None else torch.addcmul(offset, view @ self.read, gate), approximate="tanh")
        return h + gelu(torch.addmm(self.layer_bias, h, self.layer), approximate="tanh")

    def _belief(self, z: Tensor) -> Tensor:
        """Softmax over the similarity to each value. [row, value]"""
        scale = self.embedding.shape[1] ** 0.5
        computed = scale * torch.addmm(self.project_bias, z, self.project)
        return torch.addmm(self.output_bias, computed, self.embedding[: self.modulus].T).softmax(dim=-1)
