"""The learning rate of each step."""

import math

from ipagnn.training.config import TrainConfig


def rate_at(config: TrainConfig, step: int) -> float:
    """The learning rate of step `step`, counted from 0.

    It rises linearly over the warm-up, whose last step has the whole rate, and then stays (`constant`) or falls to what
    would be 0 one step after the last (`linear`, `cosine`).
    """
    warmup = -(-config.warmup // config.batch_size)
    if step < warmup:
        return config.rate * (step + 1) / warmup
    gone = (step - warmup) / max(1, config.steps - warmup)
    if config.schedule == "linear":
        return config.rate * (1 - gone)
    if config.schedule == "cosine":
        return config.rate * 0.5 * (1 + math.cos(math.pi * gone))
    return config.rate
