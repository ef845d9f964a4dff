"""What all models have in common: configuration, output, collation, and the registry of names."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn

from ipagnn._common.hints import near_miss
from ipagnn.data.collate import StepBudget, collate
from ipagnn.data.contract import Batch, RowKind, Rows
from ipagnn.languages.arithmetic.grammar import Grammar
from ipagnn.languages.arithmetic.program import Program, ProgramTable, Task
from ipagnn.nn.cell import STATE_PARTS, Decoder, Dense, StatementRNN

Trace = bool | Literal["states"]
"""What an output tells beside logits: nothing, the pointer and the branch decisions, or these and all states."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Everything that defines a model but its weights.

    Attributes:
        name: A name of the registry, such as `ipa-gnn`.
        hidden: H, the width of embeddings and of each LSTM layer.
        classes: Values told apart; the grammar's modulus, which it is taken from when None is given.
        normalise: Divide arriving states by the mass that arrived, as the release does; False is the literal sum of
            equation 5. Only models with an instruction pointer look at it.
        execution: `packed` computes the node-steps that can matter, `dense` spells the paper. Same results.
        budget: How many steps a program gets.
        prune: At inference, pointer mass below this that arrives at a node is dropped; 0 keeps all.
        heads: Attention heads; only `r-gat` looks at it.
        indent: Read how far statements are indented, as the paper's models do. The graph tells as much, and programs
            longer than those of training are indented further than a model has seen.
        both_ways: Send messages against the edges as well, as the paper's table has it; only `no-control` looks at it.
        edge_types: Send messages through a Dense per edge type, as the GGNN does, so that the arms of an `if` and
            `else` can be told apart; only `no-control` looks at it.
        absorb: Let the exit add up what arrives, as the IPA-GNN's does, instead of updating it with every step as any
            other node; only `no-execute` looks at it.
        decoder: Read the final state as the release's recurrent models do, through two more LSTM layers; only
            `line-rnn` and `trace-rnn` look at it.
        grammar: The language the model is for: number of classes, and what conditions look at.
    """

    name: str = "ipa-gnn"
    hidden: int = 200
    classes: int | None = None
    normalise: bool = True
    execution: Literal["packed", "dense"] = "packed"
    budget: StepBudget = field(default_factory=StepBudget)
    prune: float = 0.0
    heads: int = 1
    indent: bool = True
    both_ways: bool = True
    edge_types: bool = False
    absorb: bool = False
    decoder: bool = False
    grammar: Grammar = field(default_factory=Grammar)

    def __post_init__(self) -> None:
        if self.classes is None:
            object.__setattr__(self, "classes", self.grammar.modulus)
        if self.classes != self.grammar.modulus:
            raise ValueError(
                f"classes is {self.classes} but the grammar's modulus is {self.grammar.modulus}; they must be equal. "
                "Leave classes out, or give a grammar with that modulus."
            )
        if self.hidden < 1:
            raise ValueError(f"hidden is {self.hidden}; it must be 1 or more.")
        if self.execution not in ("packed", "dense"):
            raise ValueError(f"The execution {self.execution!r} is unknown; choose 'packed' or 'dense'.")
        if not 0 <= self.prune < 1:
            raise ValueError(f"prune is {self.prune}; it is a probability mass of 0 or more and below 1.")
        if self.heads < 1 or self.hidden % self.heads:
            raise ValueError(f"heads is {self.heads}; it must be 1 or more and divide hidden, {self.hidden}.")

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON knows them; `from_dict` reads it back."""
        shallow = {f.name: getattr(self, f.name) for f in fields(self)}
        return shallow | {"budget": asdict(self.budget), "grammar": self.grammar.to_dict()}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "ModelConfig":
        """A configuration from some or all of its fields by name; the others keep their defaults."""
        _check_keys(values, ModelConfig, "a model configuration")
        given = dict(values)
        if isinstance(given.get("budget"), Mapping):
            _check_keys(given["budget"], StepBudget, "a step budget")
            given["budget"] = StepBudget(**given["budget"])
        if isinstance(given.get("grammar"), Mapping):
            given["grammar"] = Grammar.from_dict(given["grammar"])
        return ModelConfig(**given)

    def replace(self, **changes: Any) -> "ModelConfig":
        """The same with some fields changed; a new grammar brings its number of classes."""
        if "grammar" in changes:
            changes.setdefault("classes", None)
        return replace(self, **changes)


def _check_keys(values: Mapping[str, Any], holder: type, what: str) -> None:
    known = [f.name for f in fields(holder)]
    for key in values:
        if key not in known:
            raise ValueError(f"{key!r} is not a field of {what}. {near_miss(key, known, 'Its fields are')}")


@dataclass(frozen=True, slots=True)
class Output:
    """What a model tells about a batch.

    Attributes:
        logits: [program, class]
        pointer: p_{t,n}, from before the first step to after the last; None for models without a pointer over nodes,
            and where no trace was asked for. The packed execution leaves out (as 0) node-steps from which the exit is
            out of reach, and so may sum to less than 1. [step + 1, node]
        branch: Probability of the true branch, NaN where nothing was decided. [step, node]
        states: h_{t,n}, if asked for with `trace="states"`; 0 where the packed execution computes none.
            [step + 1, node, state]
        dropped: Pointer mass dropped by pruning, summed over steps; None without pruning. [program]
        trace_loss: The negative logarithm of the probability of all decisions that the true trace takes, each made
            where and when it does; None unless the batch tells them. [program]
    """

    logits: Tensor
    pointer: Tensor | None = None
    branch: Tensor | None = None
    states: Tensor | None = None
    dropped: Tensor | None = None
    trace_loss: Tensor | None = None


class ProgramModel(nn.Module, ABC):
    """A model that reads a batch of programs and predicts the final value of each.

    Attributes:
        name: Its name in the registry.
        title: Its name in tables, figures and model cards; empty for the one in the registry.
        rows: The rows its packed execution reads; None if it reads none.
        tasks: The tasks it can be trained and tested on.
        can_prune: Whether it has a pointer whose mass can be pruned.
        state_parts: A state that the output layer reads has this times `hidden` numbers.
        task: Name of the task that it was trained for; None if that is not known.
        config: What it was built from.
        cell: Reads statements.
        output: From the final state to logits: s = Softmax(Dense(h_final)) without the softmax, or a decoder.
    """

    name: ClassVar[str]
    title: ClassVar[str] = ""
    rows: ClassVar[RowKind | None] = None
    tasks: ClassVar[tuple[Task, ...]] = ("full", "partial")
    can_prune: ClassVar[bool] = False
    state_parts: ClassVar[int] = STATE_PARTS
    task: str | None = None

    def __init__(self, config: ModelConfig, generator: torch.Generator) -> None:
        super().__init__()
        if config.prune and not self.can_prune:
            able = ", ".join(name for name, model in MODELS.items() if model.can_prune)
            raise ValueError(f"The model {self.name!r} cannot prune; set prune=0, or choose one of {able}.")
        self.config = config
        self.cell = StatementRNN(config.hidden, generator)
        self.output: Dense | Decoder = Dense(self.state_parts * config.hidden, config.grammar.modulus, generator)

    @abstractmethod
    def forward(self, batch: Batch, *, trace: Trace = False) -> Output:
        """Logits of a batch; with `trace` also how the model came to them."""

    @property
    def needed_rows(self) -> RowKind | None:
        """The rows that a batch must bring for this model as it is configured."""
        return self.rows if self.config.execution == "packed" and not self.config.prune else None

    def collate(self, programs: ProgramTable | Sequence[Program], *, taken: bool = False) -> Batch:
        """The batch of `programs`, with the rows and the step budget of this model, on the CPU.

        With `taken` it tells which branches the true traces take, and outputs have a `trace_loss`.
        """
        grammar = self.config.grammar
        return collate(
            programs,
            self.needed_rows,
            self.config.budget,
            modulus=grammar.modulus,
            condition_modulus=grammar.condition_modulus,
            indent=self.config.indent,
            taken=taken,
        )

    def with_config(self, **changes: Any) -> "ProgramModel":
        """A model over the same weights, with options changed that those do not depend on, such as `execution`."""
        twin = build_model(self.config.replace(**changes))
        twin.load_state_dict(self.state_dict(), assign=True)
        twin.task = self.task
        return twin.train(self.training)


def rows_of(batch: Batch, kind: RowKind) -> Rows:
    """The rows of a batch, if they are of the right kind."""
    if batch.rows is None or batch.rows.kind != kind:
        found = "no rows" if batch.rows is None else f"rows of kind {batch.rows.kind!r}"
        raise ValueError(
            f"The batch brings {found}; this model needs rows of kind {kind!r}. Build it with model.collate(programs)."
        )
    return batch.rows


MODELS: dict[str, type[ProgramModel]] = {}
"""Every model by name."""


_Model = TypeVar("_Model", bound=type[ProgramModel])


def register(model: _Model) -> _Model:
    """Make a model class known by its `name`."""
    if MODELS.get(model.name, model).__qualname__ != model.__qualname__:
        raise ValueError(f"The name {model.name!r} is taken by {MODELS[model.name].__name__}; choose another.")
    MODELS[model.name] = model
    return model


def model_title(name: str) -> str:
    """The name of a model in tables, figures and model cards; its name in the registry if it has no other."""
    return (name in MODELS and MODELS[name].title) or name


def build_model(config: ModelConfig, seed: int = 0) -> ProgramModel:
    """A new model with weights drawn from `seed`, the same on every machine."""
    if config.name not in MODELS:
        raise ValueError(f"There is no model {config.name!r}. {near_miss(config.name, MODELS, 'Choose one of')}")
    return MODELS[config.name](config, torch.Generator().manual_seed(seed))
