"""Which model answers: by name, file or run folder, or the one in the package that fits the program."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final, Literal

from ipagnn.data import StepBudget
from ipagnn.data.tasks import VALUE, find_task
from ipagnn.languages.arithmetic import Grammar, Program, ProgramError, ProgramKind, parse
from ipagnn.languages.arithmetic.card import DIGITS_MODEL, EXTENDED_MODEL
from ipagnn.models import ModelConfig, ProgramModel, available_models, load_model
from ipagnn.models.automata import AutomataModel
from ipagnn.models.files import model_path
from ipagnn.models.tabulated import TabulatedModel

EXACT_NODE_STEPS: Final = 2_000
"""Programs of more nodes times steps are executed pruned, where the model can."""
PRUNE: Final = 1e-4
"""Pointer mass below this is then not followed."""
_KEPT_MODELS: Final = 8

DEFAULT_MODELS: Final[dict[ProgramKind, str]] = {"full": "env-ipa-gnn-full", "partial": "env-ipa-gnn-partial"}
"""The models in the package that answer where none is named."""

ModelLike = str | Path | ProgramModel
"""A name in the package, a file, a run folder, or a model itself."""


@dataclass(frozen=True)
class LoadedModel:
    """A model with what people call it.

    Attributes:
        name: How it was asked for.
        model: The model, ready for inference.
        bounded: Whether a number of steps was asked for.
    """

    name: str
    model: ProgramModel = field(repr=False)
    bounded: bool = False

    @property
    def task(self) -> str | None:
        """Name of the task it was trained for; None if that is not known."""
        return self.model.task

    @property
    def config(self) -> ModelConfig:
        """Configuration of the model."""
        return self.model.config

    @property
    def grammar(self) -> Grammar:
        """The language of the model."""
        return self.model.config.grammar

    def parse(self, source: str) -> Program:
        """Read a program in the model's language."""
        return parse(source, grammar=self.grammar)

    @property
    def takes_steps(self) -> bool:
        """Whether the step budget decides what it computes.

        A model of sequences reads each statement once, and one that runs over tables or automata goes on to the end.
        """
        return self.model.walks == "graph" and self.runs_on is None

    @property
    def runs_on(self) -> Literal["tables", "automata"] | None:
        """What it runs over without a bound on steps, if it can and no steps were asked for."""
        return None if self.bounded else self.model.runs_on

    @cached_property
    def unbounded(self) -> TabulatedModel | AutomataModel | None:
        """The model as tables or automata, made when first asked for; None for one that takes steps."""
        return None if self.runs_on is None else self.model.unbounded()

    def with_budget(self, budget: StepBudget | None) -> "LoadedModel":
        """The same with this step budget; None leaves it as it is."""
        if budget is None:
            return self
        if budget == self.config.budget:
            return replace(self, bounded=True)
        return LoadedModel(self.name, self.model.with_config(budget=budget).eval(), bounded=True)

    def with_digits(self, digits: int | None) -> "LoadedModel":
        """The same for numbers of so many digits; None leaves them as they are."""
        return self if digits is None else replace(self, model=self.model.with_digits(digits).eval())

    def check(self, program: Program) -> None:
        """Refuse a model that predicts no value, and a program of a task that it cannot do or was not trained for."""
        if VALUE not in self.model.targets:
            predicted = ", ".join(target.name for target in self.model.targets)
            raise ValueError(
                f"The model {self.name} predicts {predicted}, and not the value of a program, which is what is asked "
                "here; choose another model, or measure this one with `ipagnn evaluate`."
            )
        if not program.is_partial or ("partial" in self.model.tasks and self.task != "full"):
            return
        other = DEFAULT_MODELS["partial"]
        fitting = f"choose {other}" if other in available_models() else "choose a model of the task partial"
        raise ValueError(
            f"The model {self.name} needs complete programs, and this one has a masked line; put a statement in its "
            f"place, or {fitting}."
        )

    def prune_for(self, node_steps: int) -> float:
        """What to prune in a program of so many nodes times steps."""
        return PRUNE if node_steps > EXACT_NODE_STEPS and self.model.can_prune else 0.0


def choose_models(
    model: ModelLike | None,
    sources: Sequence[str],
    budget: StepBudget | str | float | None = None,
    digits: int | None = None,
) -> list[tuple[LoadedModel, list[int]]]:
    """Which model answers which of the programs.

    Args:
        model: The model that is asked for; None takes the one in the package that fits each program.
        sources: The programs as text.
        budget: Its step budget; None takes the model's own.
        digits: Digits that variables have, for models whose values are digits; None takes the model's own.

    Raises:
        ValueError: None is asked for and none fits.
        ProgramError: None is asked for, and a text is not a program.
    """
    steps = None if budget is None else StepBudget.of(budget)
    if isinstance(model, ProgramModel):
        loaded = LoadedModel(model.name, model.eval()).with_digits(digits)
        return [(loaded.with_budget(steps), [*range(len(sources))])]
    if model is not None:
        return [(load_cached(model, digits).with_budget(steps), [*range(len(sources))])]
    by_task: dict[ProgramKind, list[int]] = {}
    for i, source in enumerate(sources):
        by_task.setdefault(_task_of(source), []).append(i)
    return [
        (load_cached(default_model(task, digits), digits).with_budget(steps), which) for task, which in by_task.items()
    ]


def _task_of(source: str) -> ProgramKind:
    """The task of a program of the paper's language, which is that of the models that answer where none is named."""
    try:
        return "partial" if parse(source).is_partial else "full"
    except ProgramError as error:
        reader = load_cached(EXTENDED_MODEL) if EXTENDED_MODEL in available_models() else None
        say = f'`--model {EXTENDED_MODEL}` (in Python model="{EXTENDED_MODEL}") reads such programs.'
        raise with_hint(error, source, reader, say) from None


def with_hint(error: ProgramError, source: str, reader: LoadedModel | None, sentence: str) -> ProgramError:
    """The error about a text, with a sentence more if a model can run what the text says.

    Args:
        error: What another language has against the text.
        source: The text.
        reader: The model; None if it is not there.
        sentence: What to say then.
    """
    if reader is not None:
        with suppress(ProgramError):
            error.hint = "" if reader.parse(source).is_partial else sentence
    return error


def default_model(task: ProgramKind, digits: int | None = None) -> str:
    """Name of the model in the package for a task, and for a number of digits where one is asked for.

    Raises:
        ValueError: There is none.
    """
    usual = DEFAULT_MODELS[task] if digits is None else DIGITS_MODEL
    available = available_models()
    if usual in available:
        return usual
    what = find_task(task).subject
    come = f"those that come with it are {', '.join(available)}" if available else "none comes with it"
    raise ValueError(
        f"This installation has no model {usual} for {what} ({come}); name one with --model (in Python model=…): a "
        f"file, or a run folder such as `ipagnn train runs/a --preset quick --task {task}` makes."
    )


def load_cached(name: str | Path, digits: int | None = None) -> LoadedModel:
    """Load a model, or give the one that was loaded from the same, unchanged file before.

    Args:
        name: As in `load_model`.
        digits: As in `choose_models`.
    """
    status = model_path(name).stat()
    return _load(str(name), (status.st_mtime_ns, status.st_size, status.st_ino), digits)


@lru_cache(maxsize=_KEPT_MODELS)
def _load(name: str, version: tuple[int, int, int], digits: int | None) -> LoadedModel:
    """`version` tells a new file from the one that was loaded."""
    return LoadedModel(name, load_model(name)).with_digits(digits)
