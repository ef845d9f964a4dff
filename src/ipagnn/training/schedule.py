"""The learning rate of each step."""

import math

from ipagnn.training.config import TrainConfig
from ipagnn.training.stages import Stage


def rate_at(config: TrainConfig, step: int) -> float:
    """The learning rate of step `step`, counted from 0.

    It rises linearly over the warm-up, whose last step has the whole rate, and then stays (`constant`) or falls to what
    would be 0 one step after the last (`linear`, `cosine`).
    """
    warmup = -(-config.optimizer.warmup // config.data.batch_size)
    if step < warmup:
        return config.optimizer.learning_rate * (step + 1) / warmup
    gone = (step - warmup) / max(1, config.steps - warmup)
    if config.optimizer.schedule == "linear":
        return config.optimizer.learning_rate * (1 - gone)
    if config.optimizer.schedule == "cosine":
        return config.optimizer.learning_rate * 0.5 * (1 + math.cos(math.pi * gone))
    return config.optimizer.learning_rate


def stage_rate_at(config: TrainConfig, stage: Stage, step: int, first: int) -> float:
    """The learning rate of step `step` of a run, counted from 0, in a stage that began with step `first`.

    It falls along a cosine from `learning_rate` to `final_learning_rate`, or stays. In the warm-up of the run it is
    multiplied by what rises from 0 to 1.
    """
    warmup = -(-config.optimizer.warmup // config.stages[0].batch_size)
    last = stage.final_learning_rate or stage.learning_rate
    rate = last + (stage.learning_rate - last) * 0.5 * (1 + math.cos(math.pi * (step - first) / stage.steps))
    return rate * min(1.0, (step + 1) / warmup) if warmup else rate
