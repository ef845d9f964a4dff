"""What makes the environment IPA-GNN work: one run per row, each with one change.

    python experiments/environment.py runs/environment [--only untied,clamped] [--threads 1]
    python experiments/environment.py runs/environment --table

The full model is the preset `environment`; seeds are rows too. A row trains in a folder of its own, which a second call
resumes or reads. The table has, for each row, the wrong facts of the learned semantics, the accuracy on withheld
programs of 10 lines, and where the model can be tabulated that on D_test.
"""

from dataclasses import replace
from typing import Final

import environment_variants  # noqa: F401 - registers the models of the rows
from ablation import Cells, Change, Row, main

from ipagnn.evaluation import build_test_recipe, evaluate_on_test_set
from ipagnn.languages.arithmetic.tables import differences, fact_counts
from ipagnn.models import ProgramModel
from ipagnn.training import TrainConfig
from ipagnn.training.presets import preset


def named(model: str) -> Change:
    """The model of that name, with the same options. Steps whose gradient is not finite are skipped."""

    def change(config: TrainConfig) -> TrainConfig:
        same = {"stages": config.stages, "seed": config.seed, "on_nan": "skip"}
        return preset("environment", model).replace(**same)

    return change


def seeded(seed: int) -> Change:
    """Another seed."""
    return lambda config: config.replace(seed=seed)


def up_to(length: int) -> Change:
    """No longer programs: longer stages are left out, but if that leaves a stage shorter, one has this length."""

    def change(config: TrainConfig) -> TrainConfig:
        kept = tuple(each for each in config.stages if each.length <= length)
        if kept[-1].length < length:
            kept += (replace(config.stages[len(kept)], length=length),)
        return config.replace(stages=kept)

    return change


def at_once(lengths: str) -> Change:
    """All lengths from the start: as many steps as the stages have together, at the rates of the first two."""

    def change(config: TrainConfig) -> TrainConfig:
        first, second, last = config.stages[0], config.stages[1], config.stages[-1]
        steps = sum(each.steps for each in config.stages[1:]) + 1_500
        rates = {"learning_rate": first.learning_rate, "final_learning_rate": second.final_learning_rate}
        return config.replace(stages=(replace(last, lengths=lengths, steps=steps, until=0.0, **rates),))

    return change


ROWS: Final[dict[str, Row]] = {
    **{f"seed-{seed}": Row(f"the full model, seed {seed}", seeded(seed)) for seed in range(5)},
    "untied": Row("untied output layer", named("env-untied")),
    "clamped": Row("likelihood clamped at 1e-9", named("env-clamped")),
    "vectors": Row("slots without beliefs", named("env-vectors")),
    "one-slot": Row("beliefs without slots: one for all variables", named("env-one-slot")),
    "learned-addresses": Row("learned instead of given addressing", named("env-learned-addresses")),
    "conditions-write": Row("conditions may write", named("env-conditions-write")),
    "conditions-write-clamped": Row(
        "conditions may write, likelihood clamped at 1e-9", named("env-conditions-write-clamped")
    ),
    "lstm": Row("an LSTM cell per slot", named("env-lstm")),
    "divided": Row("likelihood divided by the mass that arrived", named("env-divided")),
    "at-once": Row("no rising lengths: 2 to 10 lines from the start", at_once("uniform")),
    "paper-lengths": Row("the paper's training lengths from the start", at_once("paper")),
    **{f"up-to-{length}": Row(f"at most {length} lines in training", up_to(length)) for length in (3, 4, 6, 8)},
}


def measure(model: ProgramModel) -> Cells:
    """Wrong facts and accuracy on D_test, of models that can be tabulated."""
    if not model.can_tabulate:
        return {}
    d_test = evaluate_on_test_set(model, build_test_recipe("full"))["overall"]["accuracy"]
    facts = sum(fact_counts(model.config.grammar).values())
    return {f"wrong facts, of {facts:,}": len(differences(model.tabulate())), "D_test, full": f"{d_test:.2%}"}


if __name__ == "__main__":
    main(__doc__, ROWS, preset("environment"), measure)
