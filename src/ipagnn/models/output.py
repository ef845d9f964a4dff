"""What a model returns: predictions by target, and what was recorded on request."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from torch import Tensor

from ipagnn._common.hints import near_miss

AXES: Final[dict[str, tuple[str, ...]]] = {
    "pointer": ("step+1", "node"),
    "branch": ("step", "node"),
    "states": ("step+1", "node", "state"),
    "dropped": ("program",),
    "exit_mass": ("program",),
}
"""Axes of the quantities that models of this package record. `step+1` counts from before the first step on.

- `pointer`: p_{t,n}. The packed execution leaves out (as 0) node-steps from which the exit is out of reach, and so may
  sum to less than 1.
- `branch`: Probability of the true branch, NaN where nothing was decided.
- `states`: h_{t,n}; 0 where the packed execution computes none.
- `dropped`: Pointer mass dropped by pruning where the exit could be reached in time, summed over steps.
- `exit_mass`: Pointer mass at the exit in the end.
"""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A quantity that a model recorded on its way to a prediction.

    Attributes:
        data: Its values, one axis for each of `axes`.
        axes: Names of the axes; `step+1` has one entry more than `step`.
    """

    data: Tensor
    axes: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.data.ndim != len(self.axes):
            raise ValueError(f"The data has {self.data.ndim} axes, and {len(self.axes)} are named: {self.axes}.")


@dataclass(frozen=True, slots=True)
class Output:
    """What a model returns for a batch.

    Attributes:
        predictions: Logits or log-probabilities by target; `value` is v0 at the end. [program, class]
        recorded: What was asked for with `model(batch, record=(...))`, by name; see `AXES`.
    """

    predictions: dict[str, Tensor]
    recorded: dict[str, Recorded] = field(default_factory=dict)

    @property
    def logits(self) -> Tensor:
        """`predictions["value"]`. [program, class]"""
        return self.predictions["value"]

    def __getitem__(self, name: str) -> Tensor:
        """The data of a quantity that was recorded: `output["pointer"]`.

        Raises:
            KeyError: It was not recorded.
        """
        if name not in self.recorded:
            raise KeyError(f"{name} was not recorded; ask for it with model(batch, record=({name!r},)).")
        return self.recorded[name].data


def chosen_records(record: Iterable[str], known: frozenset[str], model: str) -> frozenset[str]:
    """The names of quantities to record.

    Args:
        record: What was asked for.
        known: What the model can record.
        model: Its name, for the error message.

    Raises:
        ValueError: The model does not record one of them.
    """
    chosen = frozenset([record] if isinstance(record, str) else record)
    for name in sorted(chosen - known):
        hint = near_miss(name, sorted(known), "It records") if known else "It records nothing."
        raise ValueError(f"The model {model!r} does not record {name!r}. {hint}")
    return chosen


def recorded(tensors: Mapping[str, Tensor], chosen: Iterable[str]) -> dict[str, Recorded]:
    """Quantities of `AXES` that were computed and asked for."""
    return {name: Recorded(tensors[name], AXES[name]) for name in sorted(chosen) if name in tensors}
