"""What a training run is: every choice with its meaning and unit, checked before any data is made."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Final, Literal, Self

from ipagnn._common.options import check_options, flatten, option, options_from_dict, options_to_dict
from ipagnn.data.collate import STEP_LIMIT, StepBudget
from ipagnn.data.splits import TRAINING_LENGTH, VALIDATION_COUNT
from ipagnn.data.tasks import find_task
from ipagnn.languages.arithmetic.grammar import MAX_LENGTH, MIN_LENGTH
from ipagnn.models import IPAGNN, MODELS, ModelConfig, config_from_dict
from ipagnn.models.legacy import upgrade_model
from ipagnn.training.legacy import RENAMED, RETIRED
from ipagnn.training.optim.algorithms import ALGORITHMS
from ipagnn.training.stages import Stage

STREAM: Final = "stream"
"""`data.source` of runs that draw their programs as they go."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The programs of a run, the batches they come in, and the steps they get."""

    source: str = option(
        STREAM, "`stream` draws new programs without end; otherwise a directory that `ipagnn generate` wrote."
    )
    length: int = option(
        TRAINING_LENGTH,
        "C, the longest training length in lines, and the exact length of validation programs.",
        least=MIN_LENGTH,
        most=MAX_LENGTH,
    )
    examples: int = option(15_000_000, "Programs to train on in all, rounded up to whole batches.", least=1, most=2**53)
    batch_size: int = option(32, "Programs a step, over all processes together.", least=1, most=2**24)
    bucket_batches: int = option(
        1,
        "Batches drawn at a time, sorted by steps and cut into batches of programs of like steps, which then come in "
        "random order; 1 leaves programs as they come.",
        least=1,
        most=2**16,
    )
    curriculum: float = option(
        0.0,
        "Share of `examples`, the first ones, whose lengths are drawn evenly from 2 to `length`; the others have the "
        "paper's training lengths. Only for the stream.",
        least=0,
        most=1,
    )
    trace_limit: int = option(
        0,
        "Training programs execute at most this many statements; others are drawn again. 0 keeps all. A choice of "
        "data, which nothing else in training knows of. Only for the stream.",
        least=0,
        most=STEP_LIMIT,
    )
    budget: Literal["model", "static", "trace"] = option(
        "model",
        "Steps that programs get in training: `model`, those of the model's own budget, which always decides in "
        "validation and afterwards; `static`, enough for the true trace by the loop counts that stand in the text; or "
        "`trace`, a quarter more than the true trace has, which is fewer; for complete programs only.",
    )
    budget_cap: int = option(
        100,
        "Most steps that a program gets in training where `budget` is not the model's. With `trace` the stream has no "
        "programs that need more.",
        least=1,
        most=STEP_LIMIT,
    )

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """What is minimised, and how weights follow from gradients."""

    algorithm: str = option(
        "adam",
        "`adam` (with 1e-8), plain `sgd`, or `muon`: orthogonalised momentum for the square blocks of recurrent and "
        "input weights, Adam for the rest.",
        choices=tuple(ALGORITHMS),
    )
    learning_rate: float = option(1e-3, "Learning rate, at its highest.", above=0, most=1e6)
    beta_1: float = option(0.9, "Decay of Adam's average of the gradient.", least=0, below=1)
    beta_2: float = option(0.999, "Decay of Adam's average of the squared gradient.", least=0, below=1)
    schedule: Literal["constant", "linear", "cosine"] = option(
        "constant", "`constant`, or `linear` or `cosine` decay to 0 after the warm-up."
    )
    warmup: int = option(0, "Examples over which the learning rate rises from 0.", least=0, most=2**53)
    max_grad_norm: float = option(
        5.0, "Gradients with a global norm above this are scaled down to it; 0 never does.", least=0, most=1e30
    )
    norm_limit: float = option(
        1e6, "Norms above this count as exploded: the gradient is not applied.", above=0, most=1e30
    )
    on_nan: Literal["stop", "skip"] = option(
        "stop",
        "What to do about a step whose gradient is not finite or beyond `norm_limit`: `stop`, or `skip` it. It is "
        "never applied.",
    )
    averaging: float = option(
        0.0,
        "Decay of the exponential moving average of weights (a step); 0 keeps none. With it, the average is what is "
        "validated and kept.",
        least=0,
        below=1,
    )

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Where a run computes, and what it does every so often."""

    precision: Literal["fp32", "tf32", "bf16"] = option(
        "fp32", "`fp32`, `tf32` (products on NVIDIA GPUs) or `bf16` (autocast); weights are fp32 with all of them."
    )
    device: str = option("auto", "`auto` (a GPU if there is one), `cpu`, `cuda` or `cuda:N`.")
    threads: int = option(0, "Threads that torch computes with on a CPU; 0 leaves it to torch.", least=0, most=1024)
    workers: int = option(1, "Threads that make batches in the background.", least=1, most=1024)
    gpu_processes: int = option(
        1,
        "Runs that train side by side on one Hopper GPU (NVIDIA MPS), each with its part of it. Set it to the same "
        "number in each.",
        least=1,
        most=64,
    )
    validation_count: int = option(
        VALIDATION_COUNT,
        "Withheld programs of length exactly `data.length` that select the weights to keep.",
        least=1,
        most=2**24,
    )
    validation_every: int = option(
        250_000, "Examples between two validations; there is always one at the end of each stage.", least=1, most=2**53
    )
    log_every: int = option(
        50,
        "Steps between two lines of metrics, and two looks at whether a validation or checkpoint is due.",
        least=1,
        most=2**31,
    )
    checkpoint_every: float = option(
        60.0, "Seconds between two checkpoints; 0 writes none by the clock.", least=0, most=1e9
    )
    checkpoint_steps: int = option(0, "Steps between two checkpoints; 0 writes none by steps.", least=0, most=2**53)

    def __post_init__(self) -> None:
        check_options(self)
        if self.device not in ("auto", "cpu", "cuda") and not re.fullmatch("cuda:[0-9]{1,2}", self.device):
            raise ValueError(f"device is {self.device!r}; it must be auto, cpu, cuda or cuda:N.")
        if self.precision == "tf32" and self.device == "cpu":
            raise ValueError("precision is tf32, which only NVIDIA GPUs have; choose fp32 or bf16, or another device.")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """All that decides a training run; the defaults are the paper's settings.

    Examples are programs. What is counted in examples is looked at every `run.log_every` steps, so it happens at the
    first multiple of `run.log_every` steps that reaches it.
    """

    model: ModelConfig = option(IPAGNN.Config(), "The model, its size, its step budget and the language it is for.")
    task: str = option("full", "`full`: complete programs; `partial`: one line is masked; or one of your own.")
    seed: int = option(
        0,
        "Decides new weights, the programs of the stream, and the order of programs.",
        least=0,
        most=2**63 - 1,
    )
    init_from: str = option(
        "", "Weights to begin with: a file, or the name of a model that comes with the package; empty for new ones."
    )
    data: DataConfig = option(DataConfig(), "The programs.")
    optimizer: OptimizerConfig = option(OptimizerConfig(), "How weights follow from gradients.")
    run: RunConfig = option(RunConfig(), "Where it computes, and what it does every so often.")
    stages: tuple[Stage, ...] = option(
        (),
        "Parts of the run, each with lengths, batch size, learning rate and end of its own; the settings whose place "
        "they take keep their defaults. Without stages, those settings make the one part of a run. Only for the "
        "stream.",
    )
    retired: str = option(
        "",
        "Settings of a run of an earlier version that this one does not have. Such runs are read, and not trained.",
    )

    def __post_init__(self) -> None:
        check_options(self)
        find_task(self.task)  # refuses what is unknown
        if self.optimizer.warmup >= self.most_examples:
            raise ValueError(
                f"warmup is {self.optimizer.warmup}, which leaves nothing of {self.most_examples} examples to train on."
            )
        self._check_stages()
        self._check_data()
        self._check_model()

    def _check_stages(self) -> None:
        """Refuse stages beside settings that they take the place of."""
        for group, name in _OF_STAGES if self.stages else ():
            value, default = getattr(getattr(self, group), name), getattr(getattr(_DEFAULT, group), name)
            if value != default:
                raise ValueError(
                    f"{group}.{name} is {value!r}, and there are stages, which say that themselves; leave it at "
                    f"{default!r}, or set stages=[]."
                )

    def _check_data(self) -> None:
        """Refuse what only the stream can do of programs on disk, and what only complete programs have of others."""
        data = self.data
        for name, value, have, none in (
            ("curriculum", data.curriculum, "lengths", 0),
            ("trace_limit", data.trace_limit, "traces", 0),
            ("stages", len(self.stages), "lengths", "[]"),
        ):
            if value and data.source != STREAM:
                raise ValueError(
                    f"{name} is {value:g} and data.source is {data.source!r}; programs on disk have the {have} that "
                    f"they have, so train on the stream, or with {name} {none}."
                )
        if data.budget == "trace" and find_task(self.task).masked:
            raise ValueError(
                f"budget is trace and task is {self.task}; a masked line leaves no trace to count, so choose static."
            )

    def _check_model(self) -> None:
        """Refuse what the model cannot do."""
        model = MODELS[self.model.name]
        if self.task not in model.tasks:
            why = ": it needs the true trace of complete programs" if model.walks == "trace" else ""
            raise ValueError(
                f"The model {self.model.name} cannot be trained on the {self.task} task, only on "
                f"{' and '.join(model.tasks)}{why}."
            )

    @property
    def steps(self) -> int:
        """Steps of the whole run; the most, where the accuracy may end stages earlier."""
        return sum(stage.steps for stage in self.stages) or -(-self.data.examples // self.data.batch_size)

    @property
    def most_examples(self) -> int:
        """Programs of the whole run before they are rounded up to batches; the most, as `steps`."""
        return sum(stage.steps * stage.batch_size for stage in self.stages) or self.data.examples

    @property
    def most_lines(self) -> int:
        """Lines of the longest programs of the whole run."""
        return max((stage.length for stage in self.stages), default=self.data.length)

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Programs a step, in each stage."""
        return tuple(stage.batch_size for stage in self.stages) or (self.data.batch_size,)

    @property
    def trained_model(self) -> ModelConfig:
        """The model as it is trained: with the steps that programs get in training."""
        if self.data.budget == "model":
            return self.model
        factor = 1.25 if self.data.budget == "trace" else 1.0
        return self.model.replace(budget=StepBudget(self.data.budget, factor, self.data.budget_cap))

    def to_dict(self) -> dict[str, Any]:
        """All fields as TOML and JSON know them; `from_dict` reads it back."""
        values = options_to_dict(self) | {"model": self.model.to_dict()}
        if not self.retired:
            del values["retired"]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """A configuration from some or all of its fields; the others keep their defaults.

        Raises:
            ValueError: A key is unknown (the sentence names the near miss), or a value is not what its field holds.
        """
        for key, value in values.items():
            if key in RENAMED and not (isinstance(value, Mapping) and key in _GROUPS):
                raise ValueError(f"{key!r} is not a setting any more. Did you mean {RENAMED[key]!r}?")
        for key in flatten(values):
            if key in RETIRED:
                raise ValueError(f"{key!r} is not a setting any more. Version 0.2.0 was the last that had it.")
        given = dict(values)
        if "model" in given:
            model = given["model"]
            if not isinstance(model, Mapping):
                raise ValueError(f"model is {model!r}; it must be a table of settings, such as model.name.")
            given["model"] = config_from_dict(upgrade_model(model), "model")
        return options_from_dict(cls, given)

    def replace(self, **changes: Any) -> Self:
        """The same with some fields changed, its own or those of its groups: `config.replace(seed=1, examples=320)`."""
        own = {each.name for each in fields(self)}
        for name in [name for name in changes if name not in own]:
            group = next((group for group, names in _GROUPS.items() if name in names), None)
            if group is None:
                raise TypeError(f"{name!r} is no field of a training configuration, nor of one of its groups.")
            changed = changes.get(group, getattr(self, group))
            changes[group] = replace(changed, **{name: changes.pop(name)})
        return replace(self, **changes)


_DEFAULT: Final = TrainConfig()

_GROUPS: Final[dict[str, frozenset[str]]] = {
    each.name: frozenset(inner.name for inner in fields(getattr(_DEFAULT, each.name)))
    for each in fields(TrainConfig)
    if each.name != "model" and is_dataclass(getattr(_DEFAULT, each.name))
}
"""Names of the fields of each group. None is in two of them."""

_OF_STAGES: Final = (
    ("data", "batch_size"),
    ("data", "examples"),
    ("data", "curriculum"),
    ("optimizer", "learning_rate"),
    ("optimizer", "schedule"),
)
"""Settings that stages take the place of."""

RESUMABLE_FIELDS: Final = frozenset(
    {
        "optimizer.on_nan",
        "run.checkpoint_every",
        "run.checkpoint_steps",
        "run.device",
        "run.gpu_processes",
        "run.threads",
        "run.workers",
    }
)
"""Settings that may differ when a run goes on: where and how safely it computes, not what."""


def differing(there: TrainConfig, asked: TrainConfig) -> list[str]:
    """In what two configurations differ that must not when a run goes on, as phrases."""
    a, b = flatten(there.to_dict()), flatten(asked.to_dict())
    keys = [key for key in b if key not in RESUMABLE_FIELDS]
    return [f"{key} is {a.get(key)!r}, not {b.get(key)!r}" for key in keys if a.get(key) != b.get(key)]
