"""What all models have in common: construction, call and collation."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from ipagnn._common.options import options_from_dict
from ipagnn.data.collate import collate
from ipagnn.data.contract import Batch
from ipagnn.data.tasks import Target, Task, find_task
from ipagnn.languages.arithmetic.program import Program, ProgramKind, ProgramTable
from ipagnn.languages.arithmetic.tables import StatementArray, ValueTables, refusal
from ipagnn.languages.arithmetic.vocabulary import VOCABULARY_SIZE
from ipagnn.models.config import ModelConfig
from ipagnn.models.output import Output, chosen_records
from ipagnn.models.stepping import PointerKernels, StageProgress
from ipagnn.nn.cell import Decoder, Dense, StatementRNN
from ipagnn.nn.targets import MAX_CLASSES, target_correct, target_loss
from ipagnn.ops import STATE_PARTS, Messages

if TYPE_CHECKING:
    from ipagnn.data.torch_data import Collator
    from ipagnn.languages.arithmetic.automata import Automaton, Statement
    from ipagnn.models.automata import AutomataModel
    from ipagnn.models.tabulated import TabulatedModel

Walk = Literal["graph", "trace", "lines"]


class ProgramModel(nn.Module, ABC):
    """A model that reads a batch of programs and predicts the final value of each.

    Args:
        config: Its configuration, an instance of `Config`; all defaults if None.
        seed: Weights are drawn from this seed, the same on every machine.
        generator: Weights are drawn from this generator instead.
        options: Options of its `Config` by name, in place of those of `config`: `IPAGNN(hidden=64)`.

    Attributes:
        Config: Its options: those of all models, and its own.
        name: Its name in the registry.
        title: Its name in tables, figures and model cards; empty for the one in the registry.
        walks: What its steps follow: the control flow graph, the true trace, or the lines in order.
        has_executions: Whether `forward` takes `execution` and `prune`, as there is more than one way to run it.
        every_node: Whether that computes every node at every step, as message passing does. Evaluation forms its
            batches by it.
        records: Names of the quantities that it can record; see `ipagnn.models.output`.
        learns_from: Names of those that training asks it to record, as its `loss` reads them.
        tasks: Names of the tasks it can be trained and tested on; the first is meant where none is named.
        can_prune: Whether it has a pointer whose mass can be pruned.
        can_tabulate: Whether its states are values of variables, so that `tabulate` can write down what it has learned.
        negligible_mass: Pointer mass that is not worth following where rows are found as execution goes, so that
            planning all rows of a long program is not needed. A program of n nodes and T steps loses less than n·T
            times this, which reaches a final state divided by at least 1e-7: for a million node-steps less than 1e-7,
            the resolution of float32. It is no setting that trades accuracy for speed.
        reliable_lines: Longest programs that it answers as well as those of training; None if no limit is known.
        reliable_depth: Deepest nesting of loops that it answers as well; None if no limit is known.
        grammar_weights: Names of weights that are about the statements of one grammar. They are 0 in a model that is
            loaded for another grammar, with other statements.
        state_parts: A state that the output layer reads has this times `hidden` numbers.
        task: Name of the task that it was trained for; None if that is not known.
        config: What it was built from.
        cell: Reads statements.
        output: From the final state to logits: s = Softmax(Dense(h_final)) without the softmax, or a decoder.
    """

    Config: ClassVar[type[ModelConfig]] = ModelConfig
    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    walks: ClassVar[Walk] = "graph"
    has_executions: ClassVar[bool] = False
    every_node: ClassVar[bool] = False
    records: ClassVar[frozenset[str]] = frozenset()
    learns_from: ClassVar[tuple[str, ...]] = ()
    tasks: ClassVar[tuple[str, ...]] = ("full", "partial")
    can_prune: ClassVar[bool] = False
    can_tabulate: ClassVar[bool] = False
    negligible_mass: ClassVar[float] = 1e-20
    reliable_lines: ClassVar[int | None] = 10
    reliable_depth: ClassVar[int | None] = 1
    grammar_weights: ClassVar[frozenset[str]] = frozenset()
    state_parts: ClassVar[int] = STATE_PARTS
    task: str | None = None

    def __init__(
        self,
        config: ModelConfig | None = None,
        *,
        seed: int = 0,
        generator: torch.Generator | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.config = self._configure(config, options)
        self.build(torch.Generator().manual_seed(seed) if generator is None else generator)
        names = dict(self.named_parameters(remove_duplicate=False))
        if second := sorted(names.keys() - dict(self.named_parameters()).keys()):
            raise ValueError(
                f"{type(self).__name__} has one weight under two names, one of them {second[0]!r}; files hold each "
                "weight once. Register it under one name, and make the module that shares it a property."
            )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Give a model with a name of its own a configuration of its own."""
        super().__init_subclass__(**kwargs)
        if "name" not in vars(cls):
            return
        if "Config" not in vars(cls):  # the options of the model that it derives from
            place = {"__module__": cls.__module__, "__qualname__": f"{cls.__qualname__}.Config"}
            cls.Config = type("Config", (cls.Config,), place)
        elif "__dataclass_fields__" not in vars(cls.Config):
            raise TypeError(
                f"{cls.__qualname__}.Config is no dataclass, so its options would not be seen; write "
                "@dataclass(frozen=True, kw_only=True) above it."
            )
        cls.Config.name = cls.name

    @classmethod
    def _configure(cls, config: ModelConfig | None, options: Mapping[str, Any]) -> ModelConfig:
        """The configuration from what the constructor was given."""
        if config is None:
            return options_from_dict(cls.Config, options)
        if not isinstance(config, cls.Config):
            raise TypeError(
                f"The configuration is one of {config.name or type(config).__qualname__!r}, not of {cls.name!r}; "
                f"make it with {cls.__name__}.Config, or give options by name, as in {cls.__name__}(hidden=64)."
            )
        return config.replace(**options) if options else config

    def build(self, generator: torch.Generator) -> None:
        """Make the layers, in an order that is what a seed means. Models with more layers extend it.

        Args:
            generator: Weights are drawn from it.
        """
        hidden, classes = self.config.hidden, self.config.grammar.modulus
        if classes > MAX_CLASSES:
            raise ValueError(
                f"modulus is {classes:,}; a model with one output for each value can have {MAX_CLASSES:,} at most. "
                "Choose a smaller modulus, or a model that represents values by their digits."
            )
        self.cell = StatementRNN(hidden, generator)
        self.output: Dense | Decoder = Dense(self.state_parts * hidden, classes, generator)

    @classmethod
    def weight_shape(cls, config: ModelConfig) -> tuple[str, tuple[int, ...]]:
        """A weight whose shape says whether a file is of this configuration, before anything is allocated."""
        return "cell.embedding", (VOCABULARY_SIZE, config.hidden)

    def __call__(
        self, batch: Batch, *, record: Iterable[str] = (), execution: str = "auto", prune: float = 0.0
    ) -> Output:
        """Predict a batch of programs.

        Args:
            batch: The programs.
            record: Names of quantities to record on the way, out of `records`.
            execution: How to compute: `auto` takes the fastest way there is, `reference` spells the paper; see
                `ipagnn.ops.BACKENDS` and `MESSAGE_BACKENDS` for the others. Same results.
            prune: At inference, pointer mass below this that arrives at a node is dropped; 0 keeps all.

        Raises:
            ValueError: The model does not record one of them, cannot prune, or the execution cannot run it.
            RuntimeError: It would be pruned in training.
        """
        options: dict[str, Any] = {}
        if self.has_executions and (execution != "auto" or prune):  # one that overrides `forward` may not know them
            options = {"execution": execution, "prune": prune}
        if not 0 <= prune < 1:
            raise ValueError(f"prune is {prune}; it must be at least 0 and below 1.")
        if prune and not self.can_prune:
            raise ValueError(f"The model {self.name!r} cannot prune; call it with prune=0.")
        if prune and self.training:
            raise RuntimeError("Pruning is for inference only; call model.eval() first, or train with prune=0.")
        if not self.has_executions and execution not in ("auto", "reference"):
            raise ValueError(f"The model {self.name!r} has one execution, the reference; {execution!r} is not for it.")
        with torch.set_grad_enabled(torch.is_grad_enabled() and not prune):
            chosen = chosen_records(record, self.records, self.name)
            output: Output = super().__call__(batch, record=chosen, **options)
        return output

    @abstractmethod
    def forward(self, batch: Batch, *, record: frozenset[str] = frozenset()) -> Output:
        """Predictions for a batch, and what was asked for in `record`; called by `model(batch, record=...)`.

        A model with `has_executions` takes `execution` and `prune` as well.
        """

    def prepare(self, batch: Batch, *, record: Collection[str] = ()) -> Batch:
        """Plan what `model(batch, record=record)` will read, as in the threads that load data; returns the batch."""
        return batch

    @property
    def kernels(self) -> PointerKernels | Messages | None:
        """What training steps that run kernels read of it; None if there are no kernels for what `forward` computes."""
        return None

    def loss(self, output: Output, batch: Batch) -> Tensor:
        """What training minimises the mean of: the losses of all targets, by their kind, in nats. [program]

        A model that predicts something else than `Target.kind` says overrides this and `correct`.
        """
        first, *others = (target_loss(each, output.predictions[each.name], batch) for each in self.targets)
        return sum(others, first)

    def correct(self, output: Output, batch: Batch) -> Tensor:
        """Which programs count as right: those of which all targets are predicted right. bool [program]"""
        right = [target_correct(each, output.predictions[each.name], batch) for each in self.targets]
        return torch.stack(right).all(dim=0)

    @property
    def targets(self) -> tuple[Target, ...]:
        """What it predicts, as its task declares."""
        return self.task_for(None).targets

    def task_for(self, programs: ProgramKind | None) -> Task:
        """Its task on programs of a kind: the one that it was trained for if that fits, or else the first that does.

        Args:
            programs: `full` or `partial`; None takes both.

        Raises:
            ValueError: It has no task on such programs.
        """
        known = [find_task(name) for name in (self.task, *self.tasks) if name is not None]
        for task in known:
            if programs in (None, task.programs):
                return task
        raise ValueError(f"The model {self.name!r} reads {known[0].programs} programs, and these are {programs}.")

    @property
    def runs_on(self) -> Literal["tables", "automata"] | None:
        """What it runs over by default, without a limit on steps; None for a model that takes steps.

        Tables, if it can be tabulated and its language has tables.
        """
        return "tables" if self.can_tabulate and refusal(self.config.grammar) is None else None

    @property
    def trained_digits(self) -> int | None:
        """Most digits of the values that training worked with, where values are digits; otherwise None."""
        return None

    def unbounded(self) -> "TabulatedModel | AutomataModel":
        """The model as what it runs over.

        Raises:
            ValueError: It takes steps.
        """
        from ipagnn.models.tabulated import TabulatedModel

        return TabulatedModel(self)

    def with_digits(self, digits: int) -> Self:
        """A model over the same weights whose variables have this number of digits.

        Raises:
            ValueError: What the model has learned holds for one modulus only.
        """
        raise ValueError(
            f"The model {self.name!r} has learned values modulo {self.config.grammar.modulus:,} and no others; the "
            "number of digits is a choice for models whose values are digits, such as env-ipa-gnn-any."
        )

    def tabulate(self, statements: StatementArray | None = None) -> ValueTables:
        """What the model has learned that every literal and every statement does; see `ipagnn.models.tabulated`.

        Args:
            statements: The statements to tabulate; None takes those of the grammar.

        Raises:
            ValueError: The states of this model are no values of variables.
        """
        raise ValueError(
            f"The model {self.name!r} has no semantics to read: its states are vectors, not values of variables. "
            "Choose a model that holds a belief about each variable, such as env-ipa-gnn."
        )

    def automata(self, statements: "Iterable[Statement]") -> "list[Automaton]":
        """What statements do to the digits of their variables, as automata with as few states as can be.

        Args:
            statements: Operation ids and operands, None for operands that are variables.

        Raises:
            ValueError: The values of this model are no digits.
        """
        raise ValueError(f"The model {self.name!r} has no automata; choose a model whose values are digits.")

    def automaton(self, statement: str) -> "Automaton":
        """What a statement does to the digits of its variable, with as few states as can be. Exact, for any number.

        Args:
            statement: Arithmetic or a condition, as in `*= 7`, `if % 10 < 4` or `+= v1`; its variable may be named.

        Raises:
            ValueError: The values of this model are no digits, or the text is no statement.
        """
        from ipagnn.languages.arithmetic.automata import read_statement

        return self.automata([read_statement(statement, self.config.grammar)])[0]

    def on_step(self, progress: StageProgress) -> None:
        """Called before each step of training. Models whose training changes as it goes override it.

        What it sets must follow from `progress` alone: a run that goes on after a stop sees no earlier steps again.
        """

    def collate(self, programs: ProgramTable | Sequence[Program], *, trace: bool = False) -> Batch:
        """The batch of `programs`, with the step budget of this model, on the CPU.

        With `trace` it holds the true traces of complete programs.
        """
        grammar = self.config.grammar
        return collate(
            programs,
            self.config.budget,
            modulus=grammar.modulus,
            condition_modulus=grammar.condition_modulus,
            indent=self.config.indent,
            trace=trace or self._reads_trace,
            extended=grammar.is_extended,
            wrap=grammar.wrap,
            targets=self.targets,
        )

    def collate_for_training(self, table: ProgramTable) -> Batch:
        """The batch that a step of training learns from; that of `collate` unless a model trains on other targets."""
        return self.collate(table)

    @property
    def _reads_trace(self) -> bool:
        return self.walks == "trace" or self.task_for(None).trace

    def collator(self) -> "Collator":
        """What makes batches for this model out of the items of a `ProgramDataset` or `ProgramStream`."""
        from ipagnn.data.torch_data import Collator

        return Collator(self.config.budget, self.config.grammar, self.config.indent, self._reads_trace, self.targets)

    def with_config(self, **changes: Any) -> Self:
        """A model over the same weights, with options changed that those do not depend on, such as `budget`."""
        twin = type(self)(self.config.replace(**changes))
        twin.load_state_dict(self.state_dict(), assign=True)
        twin.task = self.task
        return twin.train(self.training)
