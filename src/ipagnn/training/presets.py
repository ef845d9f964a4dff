"""Configurations with a name: the paper's, one for two CPU cores and a few minutes, and one for seconds."""

from typing import Any, Final, Literal, get_args

from ipagnn._common.hints import near_miss
from ipagnn.languages.arithmetic.grammar import Grammar
from ipagnn.models import model_config
from ipagnn.training.config import DataConfig, OptimizerConfig, RunConfig, TrainConfig
from ipagnn.training.stages import Stage

PresetName = Literal["paper", "environment", "numbers", "extended", "quick", "smoke"]


PAPER_ROWS: Final[dict[str, tuple[int, float]]] = {
    "ipa-gnn": (200, 1e-3),
    "hard-ip-rnn": (200, 1e-3),
    "trace-rnn": (200, 1e-3),
    "line-rnn": (200, 1e-3),
    "no-control": (200, 1e-3),
    "no-execute": (200, 1e-3),
    "ggnn": (200, 1e-3),
    "r-gat": (200, 1e-3),
}
"""H and learning rate of each row of the paper's table. The paper chose among H in {200, 300} and the rates 3e-3, 1e-3,
3e-4 and 1e-4 for each row, and does not say what it chose: these are the middle of its grid."""

QUICK_LANGUAGE: Final = Grammar(
    modulus=10,
    initial_values=(0, 9),
    operands=(1, 3),
    loop_counts=(1, 2),
    condition_operands=(1, 8),
    counters=3,
)
"""The last digit of v0 decides everything, operands are few, and no loop has more rounds than T(x) has steps for."""

QUICK_HIDDEN: Final[dict[str, int]] = {"ggnn": 32, "r-gat": 32}
"""H of models that compute every node at every step, for which 64, the others' size, would take four times as long."""

OPTIONS: Final[dict[str, dict[str, Any]]] = {"no-execute": {"normalise": False, "absorbing_exit": True}}
"""What models are trained with. NoExecute does not divide messages by the mass that arrived: once divided, a GRU cannot
tell a message of all mass from one of next to none (records/README.md has what that gives). Its exit absorbs what
arrives, as that of the IPA-GNN, whose control it has."""

SMOKE_LANGUAGE: Final = Grammar(
    modulus=10,
    initial_values=(0, 3),
    operands=(1, 2),
    loop_counts=(2, 3),
    condition_operands=(1, 4),
    arithmetic_operations=("+=",),
)
"""Small sums."""


STAGES: Final = (
    Stage(length=2, batch_size=512, steps=4_000, until=0.95, learning_rate=3e-3),
    Stage(length=3, batch_size=512, steps=3_000, learning_rate=3e-3, final_learning_rate=3e-4),
    Stage(length=4, batch_size=512, steps=600, learning_rate=6e-4, final_learning_rate=3e-4),
    Stage(length=6, batch_size=512, steps=500, learning_rate=4e-4, final_learning_rate=1e-4),
    Stage(length=10, batch_size=512, steps=150, learning_rate=1e-4, final_learning_rate=1e-5),
)
"""Stages of the preset `environment`. Programs of two lines teach single statements. The rate has fallen before loops
come, with four lines: a long program that is confidently wrong has a large loss, which would undo what was learnt."""

NUMBER_MODEL: Final[dict[str, Any]] = {
    "hidden": 128,
    "width": 32,
    "target_digits": 5,
    "widths": (1, 3, 5),
    "noise_stage": 3,
    "grammar": Grammar(modulus=10**18),
}
"""The model of the preset `numbers`: values are digits."""

NUMBER_STAGES: Final = (
    Stage(length=2, batch_size=512, steps=4_000, until=0.95, learning_rate=3e-3),
    Stage(length=3, batch_size=512, steps=800, learning_rate=3e-3, final_learning_rate=5e-4),
    Stage(length=3, batch_size=512, steps=1_500, learning_rate=2e-3, final_learning_rate=2e-4),
    Stage(length=6, batch_size=256, steps=80, learning_rate=2e-4, final_learning_rate=5e-5),
)
"""Stages of the preset `numbers`. What statements do is learnt with soft states first, in the second stage: a fact that
is wrong when noise makes states discrete stays wrong. The noise rises in the third."""

EXTENDED_LANGUAGE: Final = Grammar(
    modulus=10**18,
    variables=4,
    digit_variables=1,
    initial_values=(0, 99_999),
    operands=(0, 99_999),
    factors=(0, 9),
    by_digits=True,
    operand_variable=1,
    condition_variable=3,
    stmt_assign=1,
    stmt_if=40,
    wrap=True,
    counters=5,
)
"""The language of the preset `extended`: operands that are variables or have up to five digits, conditions between
variables. Few data variables, as a model treats all alike, and many conditions, which are the hardest to learn."""

EXTENDED_STAGES: Final = (
    Stage(length=2, batch_size=512, steps=4_000, until=0.95, learning_rate=3e-3),
    Stage(length=5, batch_size=512, steps=2_500, learning_rate=3e-3, final_learning_rate=5e-4),
    Stage(length=5, batch_size=512, steps=10_000, learning_rate=2e-3, final_learning_rate=2e-4),
    Stage(length=8, batch_size=256, steps=150, learning_rate=2e-4, final_learning_rate=5e-5),
)
"""Stages of the preset `extended`, as those of `numbers`."""

EXTENDED_MODEL: Final = NUMBER_MODEL | {"widths": (1, 2, 3, 5), "states": 12, "grammar": EXTENDED_LANGUAGE}
"""The model of the preset `extended`. Numbers of two and three digits often agree in their higher ones, where a
comparison must remember what the lower ones said; with few states there is little else that it could remember."""

STAGED: Final[dict[str, tuple[tuple[Stage, ...], dict[str, Any]]]] = {
    "environment": (STAGES, {"hidden": 256}),
    "numbers": (NUMBER_STAGES, NUMBER_MODEL),
    "extended": (EXTENDED_STAGES, EXTENDED_MODEL),
}
"""Presets that train in stages, which are for `env-ipa-gnn`: their stages, and options of the model."""


def preset(name: PresetName, model: str = "", task: str = "full") -> TrainConfig:
    """The configuration of that name, for a model and a task.

    Without a model, it is `env-ipa-gnn` for `environment`, `numbers` and `extended`, and `ipa-gnn` for the others.

    - `paper`: Adam, batch 32, three epochs of 5 million, clipping at 5.
    - `environment`: `STAGES`, steps by the loop counts that stand in the text, programs that execute at most 60
      statements; minutes on 2 CPU cores.
    - `numbers`: numbers of 18 digits, of which training sees the lowest five of final values; `NUMBER_STAGES`, programs
      of at most 6 lines; minutes on 2 CPU cores.
    - `extended`: the same for `EXTENDED_LANGUAGE`, which goes past the paper's; `EXTENDED_STAGES`, programs of at most
      8 lines; a quarter of an hour on 2 CPU cores.
    - `quick`: a smaller language (`QUICK_LANGUAGE`), programs of up to 6 lines; minutes on 2 CPU cores.
    - `smoke`: a tiny language (`SMOKE_LANGUAGE`), programs of up to 4 lines; seconds. It shows that all works, no more.
    """
    if name not in get_args(PresetName):
        known = list(get_args(PresetName))
        raise ValueError(f"There is no preset {name!r}. {near_miss(name, known, 'The presets are')}")
    model = model or ("env-ipa-gnn" if name in STAGED else "ipa-gnn")
    options = OPTIONS.get(model, {})
    if name in ("numbers", "extended") and model in PAPER_ROWS:
        raise ValueError(f"The preset {name} has more values than {model} could tell apart; train env-ipa-gnn with it.")
    if name in STAGED:
        stages, size = STAGED[name]
        return TrainConfig(
            model=model_config(model, **size, **options),
            task=task,
            data=DataConfig(trace_limit=60, budget="static", budget_cap=60),
            optimizer=OptimizerConfig(beta_2=0.98, max_grad_norm=1.0, warmup=200 * stages[0].batch_size),
            run=RunConfig(
                threads=2 if name == "environment" else 1,  # its compiled code shares a step among threads; torch waits
                validation_count=1_000 if name == "environment" else 250,
                validation_every=10_000_000,  # so only at the end of each stage
                checkpoint_every=30.0,
            ),
            stages=stages,
        )
    if name == "paper":
        hidden, rate = PAPER_ROWS.get(model, PAPER_ROWS["ipa-gnn"])
        return TrainConfig(
            model=model_config(model, hidden=hidden, **options),
            task=task,
            optimizer=OptimizerConfig(learning_rate=rate),
        )
    if name == "quick":
        return TrainConfig(
            model=model_config(model, hidden=QUICK_HIDDEN.get(model, 64), grammar=QUICK_LANGUAGE, **options),
            task=task,
            data=DataConfig(length=6, examples=160_000),
            optimizer=OptimizerConfig(learning_rate=3e-3, schedule="cosine", warmup=3_200),
            run=RunConfig(
                threads=1,  # the other core makes batches; more threads wait for each other
                validation_count=1_000,
                validation_every=16_000,
                checkpoint_every=30.0,
            ),
        )
    return TrainConfig(
        model=model_config(model, hidden=16, grammar=SMOKE_LANGUAGE, **options),
        task=task,
        data=DataConfig(length=4, examples=4_800),
        optimizer=OptimizerConfig(learning_rate=1e-2),
        run=RunConfig(threads=1, validation_count=200, validation_every=1_600, log_every=10, checkpoint_every=5.0),
    )
