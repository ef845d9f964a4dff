"""The environment IPA-GNN: an instruction pointer, and a belief in the value of every variable."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, ClassVar, Final, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from ipagnn._common.options import option
from ipagnn.data.contract import Batch
from ipagnn.data.graphs import Graphs
from ipagnn.languages.arithmetic.automata import DIGITS, Automaton, Statement
from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.languages.arithmetic.tables import StatementArray, ValueTables, grammar_statements, masked_choices
from ipagnn.languages.arithmetic.targets import final_values
from ipagnn.languages.arithmetic.vocabulary import MASK, MAX_NUMBER, OPERATION
from ipagnn.models.base import ProgramModel
from ipagnn.models.config import ModelConfig
from ipagnn.models.masks import fill_masks
from ipagnn.models.output import Output, Recorded, recorded
from ipagnn.models.registry import register
from ipagnn.models.stepping import StageProgress
from ipagnn.nn.environment import SMALLEST_MASS, run_environment
from ipagnn.nn.environment_pruned import run_environment_pruned
from ipagnn.nn.environment_reference import run_environment_reference
from ipagnn.nn.values.base import Values
from ipagnn.nn.values.classes import Classes
from ipagnn.nn.values.digits import MAX_DIGITS, Digits, places_of
from ipagnn.ops import WRITES, EnvironmentPlan, RowValues, plan_environment, plan_rows, record_rows

if TYPE_CHECKING:
    from ipagnn.models.automata import AutomataModel
    from ipagnn.models.tabulated import TabulatedModel

LEAST_LIKELIHOOD: Final = 1e-36
"""Likelihoods below this count as this. Much more would take the gradient from programs that are confidently wrong."""
MOST_AS_CLASSES: Final = 1_000
"""Largest modulus that is represented by classes where digits could be: the paper's, for which they train faster."""


@register
class EnvIPAGNN(ProgramModel):
    """The IPA-GNN with the other half of an interpreter's state: the values of all variables.

    The state of a node is an environment: for each variable a belief q over values. The statement n has an operation,
    a variable v and an operand k. With the network of `nn.values`:

        a_{t,n}   = h_{t-1,n}, with statement(operation, k, q_v) in place of q_v where n assigns          (3)
        b_{t,n,:} = Softmax(condition(operation, k, q_v)) where n branches, else 1                       (4)
        h_{t,n}   = sum over n' in N_in(n) of p_{t-1,n'} · b_{t,n',n} · a_{t,n'}, divided by p_{t,n}     (5)
        p_{t,n}   = sum over n' in N_in(n) of p_{t-1,n'} · b_{t,n',n}                                    (6)
        P(y)      = sum over arrivals at the exit of p · b · q_{v0}(y)

    There is no output layer: P is the prediction, and -log P(target) the loss. Mass that does not arrive counts against
    a program. The variable's name says which belief is meant; the network does not see it.

    A masked line may have been any arithmetic statement s of the grammar. The program is run for each, and
    P(y) = sum over s of w_s · P(y | s), with learned weights w = Softmax(`mask_weights`).

    The execution `reference` runs these lines over all nodes and steps; otherwise `nn.environment` computes what can
    matter.

    Shapes:
        batch -> log P [program, class]
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(ModelConfig):
        """Its options."""

        hidden: int = option(256, "Width of the network that says what statements do.", least=1)
        width: int = option(128, "Width of the embedding of values.", least=1)
        values: Literal["auto", "classes", "digits"] = option(
            "auto",
            "How values are represented: `classes`, one belief over all values; `digits`, one over each decimal digit, "
            f"for moduli that are powers of ten; `auto`, `digits` for such moduli above {MOST_AS_CLASSES:,}.",
        )
        states: int = option(32, "Latent states of a statement. For values as digits.", least=2)
        noise: float = option(
            1.6,
            "Deviation of the noise on states. It rises from 0 in one stage of training and makes states discrete. For "
            "values as digits.",
            least=0,
        )
        noise_stage: int = option(
            2,
            "Stage of training in whose first 60% the noise rises; the last one if there are fewer. For values as "
            "digits.",
            least=1,
        )
        widths: tuple[int, ...] = option(
            (1, 3, 5, 8),
            "Numbers of digits that are worked with in training, one of them drawn for each batch. For values as "
            "digits.",
        )
        target_digits: int = option(
            MAX_DIGITS,
            "Digits of a target that training scores, the lowest ones. For values as digits.",
            least=1,
            most=MAX_DIGITS,
        )

        @property
        def uses_digits(self) -> bool:
            """Whether values are digits."""
            modulus = self.grammar.modulus
            return self.values == "digits" or (
                self.values == "auto" and modulus > MOST_AS_CLASSES and places_of(modulus) > 0
            )

        @property
        def trained_widths(self) -> tuple[int, ...]:
            """`widths`; where assignments wrap, those that the modulus and conditions have a meaning with."""
            least, most = places_of(self.grammar.condition_modulus), places_of(self.grammar.modulus)
            if not self.grammar.wrap or not most:
                return self.widths
            return tuple(width for width in self.widths if least <= width <= most) or (most,)

    name: ClassVar[str] = "env-ipa-gnn"
    title: ClassVar[str] = "Environment IPA-GNN"
    has_executions: ClassVar[bool] = True
    records: ClassVar[frozenset[str]] = frozenset({"pointer", "branch", "beliefs", "likelihood", "dropped"})
    learns_from: ClassVar[tuple[str, ...]] = ("likelihood",)
    can_prune: ClassVar[bool] = True
    negligible_mass: ClassVar[float] = 1e-10  # probabilities lose what is dropped and no more: nothing is divided by it
    can_tabulate: ClassVar[bool] = True
    grammar_weights: ClassVar[frozenset[str]] = frozenset({"mask_weights"})
    reliable_lines: ClassVar[int | None] = None
    reliable_depth: ClassVar[int | None] = None
    config: Config

    def build(self, generator: torch.Generator) -> None:
        """See `ProgramModel.build`."""
        config, grammar = self.config, self.config.grammar
        self.values: Values
        if config.uses_digits:
            self.values = Digits(
                grammar.modulus,
                config.hidden,
                config.width,
                config.states,
                config.trained_widths,
                generator,
                config.target_digits,
            )
        elif grammar.operand_variable or grammar.condition_variable or grammar.tokens > 4:
            raise ValueError(
                "The grammar has operands that are variables or numbers above 999; values as classes combine a "
                'variable with a number up to 999. Choose values="digits".'
            )
        else:
            self.values = Classes(grammar.modulus, config.hidden, config.width, generator)
        self.mask_weights = nn.Parameter(torch.zeros(len(masked_choices(grammar))))

    @classmethod
    def weight_shape(cls, config: ModelConfig) -> tuple[str, tuple[int, ...]]:
        """See `ProgramModel.weight_shape`."""
        assert isinstance(config, cls.Config)
        return "values.read", (config.width, config.hidden)

    def forward(
        self, batch: Batch, *, record: frozenset[str] = frozenset(), execution: str = "auto", prune: float = 0.0
    ) -> Output:
        """See `ProgramModel.forward`.

        `likelihood` is P(target). Where nothing else is asked for, as in training, only the target is followed, and
        there are no predictions.
        """
        if execution not in ("auto", "reference"):
            raise ValueError(f"The execution {execution!r} is not for {self.name!r}; choose 'auto' or 'reference'.")
        self.values.begin(batch)
        if prune and "beliefs" in record:
            raise ValueError("Pruned execution does not record beliefs; ask for the pointer, or set prune=0.")
        run: Callable[[Batch, Graphs, frozenset[str]], dict[str, Tensor]]
        run = partial(self._run, all_nodes=execution == "reference" or "beliefs" in record)
        if prune:
            run = partial(self._run_pruned, prune=prune)
        fillings = fill_masks(batch, self.mask_weights, self.config.grammar)
        if len(fillings) == 1:
            return self._output(run(batch, batch.graphs, record), record)
        total: dict[str, Tensor] = {}
        for filled, weight in fillings:
            for name, found in run(filled, batch.graphs, record).items():
                total[name] = total[name] + weight * found if name in total else weight * found
        return self._output(total, record)

    def loss(self, output: Output, batch: Batch) -> Tensor:
        """-log P(target), and in training what the values cost. [program]"""
        if "likelihood" in output.recorded:
            cost = self.values.cost() / max(1, len(batch)) if self.training else 0.0
            return cost - output["likelihood"].clamp_min(LEAST_LIKELIHOOD).log()
        return -output.logits.gather(1, batch.target[:, None]).squeeze(1)

    def correct(self, output: Output, batch: Batch) -> Tensor:
        """Whether the target is the likeliest value; where only the target was followed, whether P(target) > 1/2.

        Mass that has not arrived when the steps are over speaks for no value: it must be less than that of the
        likeliest one.
        """
        if "likelihood" in output.recorded:
            return output["likelihood"].detach() > 0.5
        probability = output.logits.exp()
        return super().correct(output, batch) & (probability.amax(dim=1) > 1 - probability.sum(dim=1))

    def on_step(self, progress: StageProgress) -> None:
        """Let the noise of the values rise in the first 60% of its stage."""
        rising = min(progress.stages, self.config.noise_stage)
        share = min(1.0, progress.progress / 0.6) if progress.stage == rising else float(progress.stage > rising)
        self.values.disturb(self.config.noise * share)

    @property
    def runs_on(self) -> Literal["tables", "automata"] | None:
        """See `ProgramModel.runs_on`. Where values are digits, automata."""
        if isinstance(self.values, Digits):
            return "automata"
        return super().runs_on

    @property
    def trained_digits(self) -> int | None:
        """See `ProgramModel.trained_digits`."""
        return min(max(self.config.trained_widths), self.config.target_digits) if self.config.uses_digits else None

    def unbounded(self) -> "TabulatedModel | AutomataModel":
        """See `ProgramModel.unbounded`."""
        from ipagnn.models.automata import AutomataModel

        return AutomataModel(self) if self.runs_on == "automata" else super().unbounded()

    def with_digits(self, digits: int) -> Self:
        """See `ProgramModel.with_digits`."""
        if not isinstance(self.values, Digits):
            return super().with_digits(digits)
        if not 1 <= digits <= MAX_DIGITS:
            raise ValueError(f"digits is {digits}; variables have 1 to {MAX_DIGITS} digits.")
        return self.with_config(values="digits", grammar=replace(self.config.grammar, modulus=10**digits))

    def automata(self, statements: Iterable[Statement]) -> list[Automaton]:
        """See `ProgramModel.automata`. They are exact, not an estimate."""
        if not isinstance(self.values, Digits):
            return super().automata(statements)
        return [self.values.automaton(operation, operand) for operation, operand in statements]

    @torch.no_grad()
    def tabulate(self, statements: StatementArray | None = None) -> ValueTables:
        """What the model has learned of every literal, and of every statement on every value.

        Args:
            statements: Operation ids and operands of the statements; None for all statements of the grammar.
        """
        grammar, values, device = self.config.grammar, self.values, self.mask_weights.device
        asked = grammar_statements(grammar) if statements is None else statements
        outcomes = np.empty((len(asked), grammar.modulus), np.int32)
        probabilities = np.empty(outcomes.shape, np.float32)
        known = values.view(values.known(torch.arange(grammar.modulus, device=device)))
        for row, statement in enumerate(asked.tolist()):
            operation, operand = torch.tensor(statement, device=device)[:, None]  # one for all rows
            operation -= OPERATION
            if WRITES[statement[0] - OPERATION]:
                outcome, probability = values.likeliest(values.statement(operation, operand, known))
            else:
                probability, decided = values.condition(operation, operand, known).softmax(dim=1).max(dim=1)
                outcome = decided == 0
            outcomes[row], probabilities[row] = outcome.numpy(force=True), probability.numpy(force=True)
        literals, literal_probabilities = values.likeliest(values.literal(torch.arange(MAX_NUMBER + 1, device=device)))
        return ValueTables(
            grammar,
            literals.to(torch.int32).numpy(force=True),
            literal_probabilities.float().numpy(force=True),
            asked,
            outcomes,
            probabilities,
            masked_choices(grammar),
            self.mask_weights.double().softmax(dim=0).numpy(force=True),
        )

    def _output(self, found: dict[str, Tensor], record: frozenset[str]) -> Output:
        predictions = {}
        if "probability" in found:
            predictions["value"] = found["probability"].clamp_min(LEAST_LIKELIHOOD).log()
        axes = {"likelihood": ("program",), "beliefs": ("step+1", "node", "variable", *self.values.axes)}
        quantities = {name: Recorded(found[name], axes[name]) for name in axes if name in record}
        return Output(predictions, quantities | recorded(found, record - axes.keys()))

    def collate_for_training(self, table: ProgramTable) -> Batch:
        """See `ProgramModel.collate_for_training`.

        Where assignments wrap, what numbers of fewer digits do is not what the lower digits of longer ones do. Targets
        are then those of the modulus that the batch is worked with.
        """
        batch, grammar = self.collate(table), self.config.grammar
        if not grammar.wrap or not isinstance(self.values, Digits):
            return batch
        modulus = DIGITS ** self.values.drawn_width(batch)[0]
        if modulus == grammar.modulus:
            return batch
        final = final_values(table, replace(grammar, modulus=modulus))[:, grammar.target_variable]
        return replace(batch, targets={"value": torch.from_numpy(np.ascontiguousarray(final))})

    def prepare(self, batch: Batch, *, record: Collection[str] = ()) -> Batch:
        """See `ProgramModel.prepare`."""
        if bool((batch.node_tokens[:, 1] == MASK).any()):
            batch.graphs.plan(plan_rows)
        else:
            batch.plan(_planner(self.config.grammar.target_variable))
        return batch

    def _run(self, batch: Batch, graphs: Graphs, record: frozenset[str], all_nodes: bool) -> dict[str, Tensor]:
        """What is predicted and recorded for complete programs, over all nodes or over what can matter."""
        if all_nodes:
            score, found = run_environment_reference(self.values, batch, self.config.grammar.target_variable, record)
            return found | self._scored(score, batch, record)
        target = batch.target if record == {"likelihood"} else None
        variable = self.config.grammar.target_variable
        if graphs is batch.graphs:
            plan = batch.plan(_planner(variable))
        else:  # a filling of masked lines, for which the graphs are planned once
            plan = plan_environment(graphs, batch.node_tokens, variable)
        if target is not None:
            followed = self.values.follow_target(plan, target, SMALLEST_MASS)
            if followed is not None:
                return {"likelihood": followed}
        executed = run_environment(self.values, plan, len(batch), target)
        found = record_rows(graphs, RowValues(executed.mass, executed.shares, executed.shares), record)
        if target is not None:
            return found | {"likelihood": executed.score.squeeze(1)}
        return found | self._scored(executed.score, batch, record)

    def _run_pruned(self, batch: Batch, graphs: Graphs, record: frozenset[str], prune: float) -> dict[str, Tensor]:
        """The same, following only the pointer mass worth following."""
        kept = record & {"pointer", "branch", "dropped"}
        target_variable = self.config.grammar.target_variable
        score, found = run_environment_pruned(self.values, batch, graphs, prune, kept, target_variable)
        return found | self._scored(score, batch, record)

    def _scored(self, score: Tensor, batch: Batch, record: frozenset[str]) -> dict[str, Tensor]:
        """P of all values, and P(target) if it is asked for."""
        if "likelihood" not in record:
            return {"probability": score}
        return {"probability": score, "likelihood": score.gather(1, batch.target[:, None]).squeeze(1)}


@cache
def _planner(target_variable: int) -> Callable[[Batch], EnvironmentPlan]:
    """What plans complete programs whose output reads the variable."""
    return lambda batch: plan_environment(batch.graphs, batch.node_tokens, target_variable)
