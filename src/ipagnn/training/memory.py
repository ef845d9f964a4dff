"""Refusing runs that cannot fit into memory before anything of them is written."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

from ipagnn._common.memory import available_memory
from ipagnn.languages.arithmetic.vocabulary import VOCABULARY_SIZE
from ipagnn.training.config import TrainConfig
from ipagnn.training.optim.algorithms import ALGORITHMS
from ipagnn.training.runs.files import RunError

_FLOAT: Final = 4
_LINE: Final = 8
"""Bytes of a line's tokens."""


def least_memory(config: TrainConfig) -> int:
    """Bytes that a run takes at the least: of weights, of what a step keeps for each program, and of programs.

    Every model has an embedding and a recurrent layer of three gates or more.
    """
    hidden = config.model.hidden
    copies = (
        3 + ALGORITHMS[config.optimizer.algorithm].moments + bool(config.optimizer.averaging)
    )  # with the gradient, and the weights that are validated
    weights = copies * (VOCABULARY_SIZE * hidden + 3 * hidden * hidden) * _FLOAT
    states = max(config.batch_sizes) * config.data.length * hidden * _FLOAT
    programs = (
        (config.data.bucket_batches * max(config.batch_sizes) + config.run.validation_count)
        * config.data.length
        * _LINE
    )
    return weights + states + programs


@contextmanager
def bounded_memory(config: TrainConfig, device: torch.device) -> Iterator[None]:
    """Refuse a run that cannot fit, before and while the block allocates what it needs.

    Raises:
        RunError: It does not fit; the sentence says how much it takes.
    """
    needed = least_memory(config)
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_memory()
    if free is not None and needed > free:
        raise _too_large(config, f"takes {needed / 1e9:,.1f} GB of memory or more, and {free / 1e9:,.1f} GB are free")
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise _too_large(config, "does not fit into memory") from error
    except RuntimeError as error:
        if "allocate memory" not in str(error) and "Storage size calculation overflowed" not in str(error):
            raise
        raise _too_large(config, "does not fit into memory") from error


def _too_large(config: TrainConfig, what: str) -> RunError:
    return RunError(
        f"A run with model.hidden={config.model.hidden:,}, batches of {max(config.batch_sizes):,} and "
        f"validation_count={config.run.validation_count:,} {what}; choose less of one of them."
    )
