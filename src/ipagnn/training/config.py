"""What a training run is: every choice with its meaning and unit, checked before any data is made."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from ipagnn._common.hints import near_miss
from ipagnn._common.options import flatten, options_from_dict, options_to_dict
from ipagnn.data.collate import STEP_LIMIT, StepBudget
from ipagnn.data.splits import TRAINING_LENGTH, VALIDATION_COUNT
from ipagnn.languages.arithmetic.grammar import MAX_LENGTH, MAX_WEIGHT, MIN_LENGTH
from ipagnn.languages.arithmetic.program import Task
from ipagnn.models import IPAGNN, MODELS, ModelConfig, config_from_dict
from ipagnn.models.legacy import upgrade_model
from ipagnn.training.stages import Stage

Optimizer = Literal["adam", "sgd", "muon"]
ScheduleName = Literal["constant", "linear", "cosine"]
Precision = Literal["fp32", "tf32", "bf16"]
TrainBudget = Literal["model", "static", "trace"]

STREAM: Final = "stream"
"""`data` of runs that draw their programs as they go."""


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """All that decides a training run; the defaults are the paper's recipe.

    Examples are programs. What is counted in examples is looked at every `log_every` steps, so it happens at the first
    multiple of `log_every` steps that reaches it.

    Attributes:
        model: The model, its size, its step budget and the language it is for.
        task: Complete programs, or programs with one masked line.
        length: C, the longest training length in lines, and the exact length of validation programs.
        start: Weights to begin with: a file, or the name of a model that comes with the package; empty for fresh ones.
        data: `stream` draws fresh programs without end; otherwise a directory that `ipagnn generate` wrote.
        seed: Decides fresh weights, the programs of the stream, and the order of programs.
        batch_size: Programs a step, over all processes together.
        examples: Programs to train on in all, rounded up to whole batches.
        stages: Parts of the run, each with lengths, batch size, learning rate and end of its own; in their place,
            `batch_size`, `examples`, `curriculum`, `rate` and `schedule` keep their defaults. Without stages, those
            make the one part of a run. Only for the stream.
        trace_limit: Training programs execute at most this many statements; others are drawn again. 0 keeps all. A
            choice of data, which nothing else in training knows of. Only for the stream.
        window: Batches drawn at a time, sorted by steps and cut into batches of programs of like steps, which then come
            in random order; 1 leaves programs as they come.
        curriculum: Share of `examples`, the first ones, whose lengths are drawn evenly from 2 to `length`, as short
            programs teach single statements; the others have the paper's training lengths. Only for the stream.
        loops: Weight of loops among the statements of training programs, in place of the grammar's `stmt_repeat`, which
            validation and tests keep; 0 leaves it as it is. Only for the stream.
        budget: Steps that programs get in training: `model`, those of the model's own budget, which always decides in
            validation and afterwards; `static`, enough for the true trace by the loop counts that stand in the text; or
            `trace`, a quarter more than the true trace has, which is fewer; for complete programs only.
        budget_cap: Most steps that a program gets in training where `budget` is not the model's. With `trace` the
            stream has no programs that need more.
        trace_loss: Weight of a second loss, the negative logarithm of the probability of all decisions that a program's
            true trace takes; 0 learns from final values alone, as the paper does. For the models that walk the graph
            with a pointer, packed, and complete programs only.
        optimizer: `adam` (with `beta_1`, `beta_2` and 1e-8), plain `sgd`, or `muon`: orthogonalised momentum for the
            square blocks of recurrent and input kernels, Adam for the rest.
        rate: Learning rate, at its highest.
        beta_1, beta_2: Decays of Adam's averages of the gradient and of its square.
        clip: Gradients with a global norm above this are scaled down to it; 0 never does.
        schedule: `constant`, or `linear` or `cosine` decay to 0 after the warm-up.
        warmup: Examples over which the rate rises from 0.
        averaging: Decay of the exponential moving average of weights (a step); 0 keeps none. With it, the average is
            what is validated and kept.
        precision: `fp32`, `tf32` (products on NVIDIA GPUs) or `bf16` (autocast); weights are fp32 with all of them.
        device: `auto` (a GPU if there is one), `cpu`, `cuda` or `cuda:N`.
        threads: Threads that torch computes with on a CPU; 0 leaves it to torch.
        workers: Threads that make batches in the background.
        validation_count: Withheld programs of length exactly `length` that select the weights to keep.
        validation_every: Examples between two validations; there is always one at the end.
        log_every: Steps between two lines of metrics, and two looks at whether a validation or checkpoint is due.
        checkpoint_every: Seconds between two checkpoints; 0 writes none by the clock.
        checkpoint_steps: Steps between two checkpoints; 0 writes none by steps.
        on_nan: What to do about a step whose gradient is not finite or beyond `norm_limit`: `stop`, or `skip` it. It is
            never applied.
        norm_limit: Norms above this count as exploded.
    """

    model: ModelConfig = field(default_factory=IPAGNN.Config)
    task: Task = "full"
    length: int = TRAINING_LENGTH
    start: str = ""
    data: str = STREAM
    seed: int = 0
    batch_size: int = 32
    examples: int = 15_000_000
    stages: tuple[Stage, ...] = ()
    trace_limit: int = 0
    window: int = 1
    curriculum: float = 0.0
    loops: int = 0
    budget: TrainBudget = "model"
    budget_cap: int = 100
    trace_loss: float = 0.0
    optimizer: Optimizer = "adam"
    rate: float = 1e-3
    beta_1: float = 0.9
    beta_2: float = 0.999
    clip: float = 5.0
    schedule: ScheduleName = "constant"
    warmup: int = 0
    averaging: float = 0.0
    precision: Precision = "fp32"
    device: str = "auto"
    threads: int = 0
    workers: int = 1
    validation_count: int = VALIDATION_COUNT
    validation_every: int = 250_000
    log_every: int = 50
    checkpoint_every: float = 60.0
    checkpoint_steps: int = 0
    on_nan: Literal["stop", "skip"] = "stop"
    norm_limit: float = 1e6

    def __post_init__(self) -> None:
        for name, least, most in _RANGES:
            value = getattr(self, name)
            if not least <= value <= most:
                raise ValueError(f"{name} is {value}; it must be from {least:,.15g} to {most:,.15g}.")
        for name, hint in get_type_hints(TrainConfig).items():
            if get_origin(hint) is Literal and getattr(self, name) not in get_args(hint):
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be one of {', '.join(get_args(hint))}.")
        if self.rate == 0 or self.norm_limit == 0:
            raise ValueError("rate and norm_limit must be above 0: with 0 nothing would ever be learnt.")
        if self.device not in ("auto", "cpu", "cuda") and not re.fullmatch("cuda:[0-9]{1,2}", self.device):
            raise ValueError(f"device is {self.device!r}; it must be auto, cpu, cuda or cuda:N.")
        if self.averaging >= 1:
            raise ValueError("averaging is 1, which would keep the first weights for ever; choose less, such as 0.999.")
        if self.warmup >= self.most_examples:
            raise ValueError(
                f"warmup is {self.warmup}, which leaves nothing of {self.most_examples} examples to train on."
            )
        self._check_stages()
        if self.curriculum and self.data != STREAM:
            raise ValueError(
                f"curriculum is {self.curriculum:g} and data is {self.data!r}; programs on disk have the lengths "
                "that they have, so train on the stream, or with curriculum 0."
            )
        if self.loops and self.data != STREAM:
            raise ValueError(
                f"loops is {self.loops} and data is {self.data!r}; programs on disk have the loops that they have, so "
                "train on the stream, or with loops 0."
            )
        if self.trace_limit and self.data != STREAM:
            raise ValueError(
                f"trace_limit is {self.trace_limit} and data is {self.data!r}; programs on disk have the traces that "
                "they have, so train on the stream, or with trace_limit 0."
            )
        if self.budget == "trace" and self.task != "full":
            raise ValueError(
                "budget is trace and task is partial; a masked line leaves no trace to count, so choose static."
            )
        if self.trace_loss and self.task != "full":
            raise ValueError(
                f"trace_loss is {self.trace_loss:g} and task is partial; a masked line leaves no trace to learn from, "
                "so set it to 0."
            )
        if self.precision == "tf32" and self.device == "cpu":
            raise ValueError("precision is tf32, which only NVIDIA GPUs have; choose fp32 or bf16, or another device.")
        model = MODELS[self.model.name]
        if self.trace_loss and "trace_loss" not in model.records:
            able = ", ".join(name for name, known in MODELS.items() if "trace_loss" in known.records)
            raise ValueError(
                f"trace_loss is {self.trace_loss:g}, and {self.model.name} does not record its decisions along the "
                f"trace; set it to 0, or train one of {able}."
            )
        if self.task not in model.tasks:
            raise ValueError(
                f"The model {self.model.name} cannot be trained on the {self.task} task, only on "
                f"{' and '.join(model.tasks)}: it needs the true trace of complete programs."
            )

    def _check_stages(self) -> None:
        """Refuse stages beside settings that they take the place of, and stages of programs on disk."""
        if not self.stages:
            return
        if self.data != STREAM:
            raise ValueError(
                f"There are stages, and data is {self.data!r}; programs on disk have the lengths that they have, so "
                "train on the stream, or without stages."
            )
        for each in fields(self):
            if each.name in _OF_STAGES and getattr(self, each.name) != each.default:
                raise ValueError(
                    f"{each.name} is {getattr(self, each.name)!r}, and there are stages, which say that themselves; "
                    f"leave it at {each.default!r}, or set stages=[]."
                )

    @property
    def steps(self) -> int:
        """Steps of the whole run; the most, where the accuracy may end stages earlier."""
        return sum(stage.steps for stage in self.stages) or -(-self.examples // self.batch_size)

    @property
    def most_examples(self) -> int:
        """Programs of the whole run before they are rounded up to batches; the most, as `steps`."""
        return sum(stage.steps * stage.batch_size for stage in self.stages) or self.examples

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Programs a step, in each stage."""
        return tuple(stage.batch_size for stage in self.stages) or (self.batch_size,)

    @property
    def trained_model(self) -> ModelConfig:
        """The model as it is trained: with the steps that programs get in training."""
        if self.budget == "model":
            return self.model
        factor = 1.25 if self.budget == "trace" else 1.0
        return self.model.replace(budget=StepBudget(self.budget, factor, self.budget_cap))

    def to_dict(self) -> dict[str, Any]:
        """All fields as TOML and JSON know them; `from_dict` reads it back."""
        shallow = {f.name: getattr(self, f.name) for f in fields(self)}
        return shallow | {"model": self.model.to_dict(), "stages": [options_to_dict(stage) for stage in self.stages]}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "TrainConfig":
        """A configuration from some or all of its fields; the others keep their defaults.

        Raises:
            ValueError: A key is unknown (the sentence names the near miss), or a value is not what its field holds.
        """
        hints = get_type_hints(TrainConfig)
        given: dict[str, Any] = {}
        for key, value in values.items():
            if key == "model":
                if not isinstance(value, Mapping):
                    raise ValueError(f"model is {value!r}; it must be a table of settings, such as model.name.")
                given[key] = config_from_dict(upgrade_model(value), "model")
            elif key == "stages":
                if not isinstance(value, list | tuple) or not all(isinstance(each, Mapping) for each in value):
                    raise ValueError(f"stages is {value!r}; it must be a list of tables.")
                given[key] = tuple(options_from_dict(Stage, x, f"stages.{i}") for i, x in enumerate(value, 1))
            elif key not in hints:
                known = flatten(TrainConfig().to_dict())
                raise ValueError(f"{key!r} is not a setting. {near_miss(key, known, 'The settings are')}")
            else:
                given[key] = _typed(key, value, hints[key])
        return TrainConfig(**given)

    def replace(self, **changes: Any) -> "TrainConfig":
        """The same with some fields changed."""
        return replace(self, **changes)


_RANGES: Final[tuple[tuple[str, float, float], ...]] = (
    ("length", MIN_LENGTH, MAX_LENGTH),
    ("seed", 0, 2**63 - 1),
    ("batch_size", 1, 2**24),
    ("examples", 1, 2**53),
    ("window", 1, 2**16),
    ("trace_limit", 0, STEP_LIMIT),
    ("beta_1", 0, 0.999999),
    ("beta_2", 0, 0.999999),
    ("curriculum", 0, 1),
    ("loops", 0, MAX_WEIGHT),
    ("budget_cap", 1, STEP_LIMIT),
    ("trace_loss", 0, 1e6),
    ("rate", 0, 1e6),
    ("clip", 0, 1e30),
    ("warmup", 0, 2**53),
    ("averaging", 0, 1),
    ("threads", 0, 1024),
    ("workers", 1, 1024),
    ("validation_count", 1, 2**24),
    ("validation_every", 1, 2**53),
    ("log_every", 1, 2**31),
    ("checkpoint_every", 0, 1e9),
    ("checkpoint_steps", 0, 2**53),
    ("norm_limit", 0, 1e30),
)

_OF_STAGES: Final = ("batch_size", "examples", "curriculum", "rate", "schedule")
"""Settings that stages take the place of."""

FREE: Final = frozenset({"device", "threads", "workers", "checkpoint_every", "checkpoint_steps", "on_nan"})
"""Settings that may differ when a run goes on: where and how safely it computes, not what."""


def differing(there: TrainConfig, asked: TrainConfig) -> list[str]:
    """In what two configurations differ that must not when a run goes on, as phrases."""
    a, b = flatten(there.to_dict()), flatten(asked.to_dict())
    return [f"{key} is {a.get(key)!r}, not {b.get(key)!r}" for key in b if key not in FREE and a.get(key) != b.get(key)]


def _typed(key: str, value: Any, hint: Any) -> Any:
    """`value` as its field holds it; whole numbers will do for real ones."""
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    wanted = str if get_origin(hint) is Literal else hint
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        kinds = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
        raise ValueError(f"{key} is {value!r}; it must be {kinds[wanted]}.")
    return value
