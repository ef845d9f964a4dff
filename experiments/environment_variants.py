"""The models of the rows of `environment.py`: environment IPA-GNNs with one part changed, registered by name."""

from dataclasses import replace
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from ipagnn.data.contract import Batch
from ipagnn.data.graphs import Graphs
from ipagnn.languages.arithmetic.vocabulary import ASSIGN, NUMBER, OPERATION, VARIABLE, VARIABLES
from ipagnn.models import register
from ipagnn.models.env_ipa_gnn import EnvIPAGNN
from ipagnn.nn.environment import SMALLEST_MASS
from ipagnn.nn.values.classes import Classes
from ipagnn.ops.pointer.environment import WRITES, EnvironmentPlan
from ipagnn.ops.pointer.equations import divide
from ipagnn.ops.pointer.rows import plan_departures, plan_rows


class TorchClasses(Classes):
    """Classes whose parts may be changed: the compiled execution has the arithmetic of `Classes` and is not used."""

    def follow_target(self, plan: EnvironmentPlan, target: Tensor, epsilon: float) -> Tensor | None:
        """See `Values.follow_target`."""
        return None


class UntiedClasses(TorchClasses):
    """An output layer of its own in place of the embedding of values."""

    def __init__(self, modulus: int, hidden: int, width: int, generator: torch.Generator) -> None:
        super().__init__(modulus, hidden, width, generator)
        bound = hidden**-0.5
        self.untied = nn.Parameter(torch.empty(hidden, modulus).uniform_(-bound, bound, generator=generator))
        del self.project, self.project_bias

    def _belief(self, z: Tensor) -> Tensor:
        return torch.addmm(self.output_bias, z, self.untied).softmax(dim=-1)


class Vectors(TorchClasses):
    """A slot holds any vector; only the target is compared with the embedding of values, at the exit."""

    axes: ClassVar[tuple[str, ...]] = ("unit",)

    def known(self, value: Tensor) -> Tensor:
        """See `Values.known`."""
        return self.embedding[value]

    def probabilities(self, belief: Tensor) -> Tensor:
        """See `Values.probabilities`."""
        scale = self.embedding.shape[1] ** 0.5
        return torch.addmm(self.output_bias, scale * belief, self.embedding[: self.modulus].T).softmax(dim=-1)

    def likeliest(self, belief: Tensor) -> tuple[Tensor, Tensor]:
        """See `Values.likeliest`."""
        return super().likeliest(self.probabilities(belief))

    def likelihood(self, belief: Tensor, target: Tensor) -> Tensor:
        """See `Values.likelihood`."""
        return super().likelihood(self.probabilities(belief), target)

    def view(self, belief: Tensor) -> Tensor:
        """The vector itself."""
        return belief

    def _belief(self, z: Tensor) -> Tensor:
        return torch.addmm(self.project_bias, z, self.project)


class LSTMVectors(Vectors):
    """A slot holds the memory and output of an LSTM cell, which reads the statement."""

    def __init__(self, modulus: int, hidden: int, width: int, generator: torch.Generator) -> None:
        super().__init__(modulus, hidden, width, generator)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**31, (1,), generator=generator)))
            self.cell = nn.LSTMCell(2 * width, width)
            self.operations = nn.Embedding(len(self.offset_operation), width)
            self.decide = nn.Linear(2 * width, 2)
        for name in ("read", "gate_operation", "gate_operand", "offset_operation", "offset_operand", "offset_bias"):
            delattr(self, name)
        for name in ("layer", "layer_bias", "project", "project_bias", "branch", "branch_bias"):
            delattr(self, name)

    def known(self, value: Tensor) -> Tensor:
        """Memory and output are 0."""
        return self.embedding.new_zeros(len(value), 2 * self.embedding.shape[1])

    def probabilities(self, belief: Tensor) -> Tensor:
        """See `Values.probabilities`."""
        return super().probabilities(belief[:, self.embedding.shape[1] :])

    def literal(self, operand: Tensor) -> Tensor:
        """See `Values.literal`."""
        return self.statement(torch.full_like(operand, 3), operand, self.known(operand))

    def statement(self, operation: Tensor, operand: Tensor, view: Tensor) -> Tensor:
        """See `Values.statement`."""
        memory, output = view.chunk(2, dim=1)
        read = torch.cat([self.operations(operation), self.embedding[operand]], dim=1)
        output, memory = self.cell(read, (output.contiguous(), memory.contiguous()))
        return torch.cat([memory, output], dim=1)

    def condition(self, operation: Tensor, operand: Tensor, view: Tensor) -> Tensor:
        """See `Values.condition`."""
        return self.decide(self.statement(operation, operand, view))  # type: ignore[no-any-return]


class _Variant(EnvIPAGNN):
    """The environment IPA-GNN with other values."""

    values_class: ClassVar[type[Classes]] = Classes

    def build(self, generator: torch.Generator) -> None:
        """See `ProgramModel.build`."""
        super().build(generator)
        config = self.config
        self.values = self.values_class(config.grammar.modulus, config.hidden, config.width, generator)


@register
class Untied(_Variant):
    """Untied output layer."""

    name: ClassVar[str] = "env-untied"
    values_class: ClassVar[type[Classes]] = UntiedClasses


@register
class WithoutBeliefs(_Variant):
    """Slots without beliefs."""

    name: ClassVar[str] = "env-vectors"
    can_tabulate: ClassVar[bool] = False
    values_class: ClassVar[type[Classes]] = Vectors


@register
class LSTMSlots(_Variant):
    """An LSTM cell per slot."""

    name: ClassVar[str] = "env-lstm"
    can_tabulate: ClassVar[bool] = False
    values_class: ClassVar[type[Classes]] = LSTMVectors

    @classmethod
    def weight_shape(cls, config: EnvIPAGNN.Config) -> tuple[str, tuple[int, ...]]:  # type: ignore[override]
        """See `ProgramModel.weight_shape`."""
        return "values.operations.weight", (35, config.width)


@register
class OneSlot(EnvIPAGNN):
    """Beliefs without slots: all variables share one."""

    name: ClassVar[str] = "env-one-slot"
    can_tabulate: ClassVar[bool] = False

    def _run(self, batch: Batch, graphs: Graphs, record: frozenset[str], all_nodes: bool) -> dict[str, Tensor]:
        tokens = batch.node_tokens.clone()
        tokens[:, 2] = tokens[:, 2].clamp(max=VARIABLE)
        return super()._run(replace(batch, node_tokens=tokens), graphs, record, all_nodes)


class _ClampedLoss:
    """Loss of the models that clamp the likelihood."""

    def loss(self, output: object, batch: Batch) -> Tensor:
        """-log max(P(target), 1e-9). [program]"""
        return super().loss(output, batch).clamp_max(20.723265)  # type: ignore[misc, no-any-return]


@register
class Clamped(_ClampedLoss, EnvIPAGNN):  # type: ignore[misc]
    """Likelihood clamped at 1e-9."""

    name: ClassVar[str] = "env-clamped"


@register
class DividedByMass(EnvIPAGNN):
    """Likelihood divided by the mass that arrived."""

    name: ClassVar[str] = "env-divided"

    def _run(self, batch: Batch, graphs: Graphs, record: frozenset[str], all_nodes: bool) -> dict[str, Tensor]:
        found = super()._run(batch, graphs, record - {"likelihood"}, all_nodes)
        if "likelihood" in record:
            probability = found["probability"]
            arrived = probability.sum(dim=1).clamp_min(1e-30)
            found["likelihood"] = probability.gather(1, batch.target[:, None]).squeeze(1) / arrived
        return found


class _Rows(EnvIPAGNN):
    """The same equations in plain torch with all slots in every row, so that statements may address and write others.

    Attributes:
        conditions_write: Conditions replace the belief that they read, as statements do.
    """

    conditions_write: ClassVar[bool] = False

    def _addresses(self, variable: Tensor) -> Tensor:
        """How much each row reads and writes of each slot. [row, slot]"""
        return one_hot(variable, VARIABLES).to(self.mask_weights.dtype)

    def _run(self, batch: Batch, graphs: Graphs, record: frozenset[str], all_nodes: bool) -> dict[str, Tensor]:
        values, target = self.values, batch.target if record == {"likelihood"} else None
        rows = graphs.plan(plan_rows)
        departures = graphs.plan(plan_departures)
        tokens = batch.node_tokens[rows.node].long()
        operation, variable, operand = tokens[:, 1] - OPERATION, tokens[:, 2] - VARIABLE, tokens[:, 3] - NUMBER
        address = self._addresses(variable)
        writes, decides = torch.from_numpy(WRITES)[operation], rows.edges[:, 1]
        assigns = operation == ASSIGN - OPERATION

        def score(belief: Tensor, program: Tensor) -> Tensor:
            if target is None:
                return values.probabilities(belief)
            return values.likelihood(belief, target[program])[:, None]

        slots, first = address.shape[1], rows.step_offsets[1] if len(rows) else 0
        known = values.known(torch.zeros(first, dtype=torch.long))
        views = values.view(known)[:, None].expand(-1, slots, -1)  # what each slot holds, and the scores of that
        scores = score(known, rows.graph[:first].long())[:, None].expand(-1, slots, -1)
        mass = torch.ones_like(scores[:, 0, 0])
        out = self._addresses(torch.zeros(1, dtype=torch.long))
        total = scores.new_zeros(len(batch), scores.shape[2])
        for t, (first, last) in enumerate(pairwise(rows.step_offsets)):
            here, program = slice(first, last), rows.graph[first:last].long()
            share = address[here]
            read = torch.einsum("rs,rsd->rd", share, views)
            literal, chosen = assigns[here].nonzero()[:, 0], decides[here].nonzero()[:, 0]
            written = (writes[here] & ~assigns[here]) | (decides[here] & self.conditions_write)
            changed = written.nonzero()[:, 0]
            at = torch.cat([literal, changed])
            if len(at):  # equation 3
                new = values.statement(operation[here][changed], operand[here][changed], read[changed])
                new = torch.cat([values.literal(operand[here][literal]), new])
                portion = share[at][:, :, None]
                views = views.index_put((at,), views[at] + portion * (values.view(new)[:, None] - views[at]))
                found = score(new, program[at])[:, None]
                scores = scores.index_put((at,), scores[at] + portion * (found - scores[at]))
            b = torch.eye(1, 2, dtype=mass.dtype).expand(last - first, 2)
            if len(chosen):  # equation 4
                logits = values.condition(operation[here][chosen], operand[here][chosen], read[chosen])
                b = b.index_put((chosen,), logits.softmax(dim=1))
            edges = (mass[:, None] * b).flatten()
            for arrivals, is_exit in ((departures.to_exits, True), (departures.to_rows, False)):
                which = slice(arrivals.step_offsets[t], arrivals.step_offsets[t + 1])
                code = arrivals.code[which] - 2 * first
                weight, source = edges[code], code // 2
                if is_exit:
                    brought = torch.einsum("s,rsc->rc", out[0], scores[source])
                    total = total.index_add(0, arrivals.target[which], weight[:, None] * brought)
                elif t + 2 < len(rows.step_offsets):
                    place, count = arrivals.target[which] - last, rows.step_offsets[t + 2] - last
                    arrived = mass.new_zeros(count).index_add(0, place, weight)  # equation 6
                    views, scores = (  # equation 5
                        divide(
                            x.new_zeros(count, *x.shape[1:]).index_add(0, place, weight[:, None, None] * x[source]),
                            arrived,
                            SMALLEST_MASS,
                        )
                        for x in (views, scores)
                    )
                    mass = arrived
        return {"probability": total} if target is None else {"likelihood": total.squeeze(1)}


@register
class LearnedAddresses(_Rows):
    """Learned instead of given addressing: attention over slots from an embedding of the variable's name."""

    name: ClassVar[str] = "env-learned-addresses"
    can_tabulate: ClassVar[bool] = False

    def build(self, generator: torch.Generator) -> None:
        """See `ProgramModel.build`."""
        super().build(generator)
        count, width = VARIABLES, self.config.width
        self.names = nn.Parameter(torch.empty(count, width).normal_(0, 1, generator=generator))
        self.slots = nn.Parameter(torch.empty(count, width).normal_(0, 1, generator=generator))

    def _addresses(self, variable: Tensor) -> Tensor:
        attention = (self.names @ self.slots.T) * self.config.width**-0.5
        return attention.softmax(dim=1)[variable]


@register
class ConditionsWrite(_Rows):
    """Conditions may write: they replace the belief that they read, and must learn to leave it as it is."""

    name: ClassVar[str] = "env-conditions-write"
    can_tabulate: ClassVar[bool] = False
    conditions_write: ClassVar[bool] = True


@register
class ConditionsWriteClamped(_ClampedLoss, ConditionsWrite):  # type: ignore[misc]
    """The same with the likelihood clamped at 1e-9, since its gradients are beyond any limit without."""

    name: ClassVar[str] = "env-conditions-write-clamped"
