"""How small pointer mass may be to be dropped: smaller where the answer depends on it.

In a long program, small amounts of mass are at most nodes at most steps, and few answers depend on them. So programs
run with a coarse threshold first, and those whose answer is open with finer ones.

Logits are an affine function of the mean state at the exit. An answer with the margin g at an exit mass m cannot change
by a mass d that was dropped if m · g > d · s, where no two logits of the state that d would have brought differ by more
than s. This is proven for mass that would have met other mass only at the exit. It is an estimate in two ways:

- s is `SPREAD` times the largest difference between two logits of one program in the set.
- Dropped mass may also have met other mass on its way and changed its state, and so all steps after it. The effect of
  that has no bound; docs/evaluation.md has measurements.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

COARSE: Final = (1e-2, 5e-3)
"""Thresholds for all programs whose answer is open."""
FINE: Final = (1e-4, 1e-5, 1e-5, 1e-5)
"""Thresholds for as many of them as needed until no more than the tolerated share is open. Where an answer stays open,
another program is run with the same threshold, which takes much less time than following all mass of one."""
SPREAD: Final = 2.0

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Followed:
    """What came of following mass down to a threshold. [program] each

    Attributes:
        margin: Difference between the two largest logits.
        spread: Difference between the largest and the smallest.
        exit_mass: Mass at the exit.
        dropped: Mass that was dropped.
    """

    margin: Array
    spread: Array
    exit_mass: Array
    dropped: Array


Follow = Callable[[Indices, float], Followed]


def refine(follow: Follow, count: int, tolerance: float, negligible: float) -> tuple[npt.NDArray[np.bool_], Array]:
    """Run programs with ever finer thresholds until few enough answers are open.

    Args:
        follow: Runs the programs it is given, in ascending order, with a threshold.
        count: Number of programs.
        tolerance: Share of them whose answers may stay open.
        negligible: The finest threshold.

    Returns:
        Whether each answer is open after its last run, and the mass that this run dropped.
    """
    doubt, dropped, finest = np.full((3, count), np.inf)
    spread = 0.0
    for prune in (*COARSE, *FINE, negligible):
        chosen = np.flatnonzero((doubt >= 1) & (finest > prune))
        if prune not in COARSE:  # the smallest doubt first
            surplus = max(0, int((doubt >= 1).sum()) - int(tolerance * count))
            chosen = np.sort(chosen[np.argsort(doubt[chosen], kind="stable")][:surplus])
        if not len(chosen):
            continue
        finest[chosen] = prune
        found = follow(chosen, prune)
        spread = spread or SPREAD * float(found.spread.max())
        dropped[chosen] = found.dropped
        doubt[chosen] = rate_doubt(found, spread)
    return doubt >= 1, dropped


def rate_doubt(found: Followed, spread: float) -> Array:
    """Dropped mass as a share of what could change the answer; the answer is open at 1 or more. [program]"""
    keeps = found.exit_mass * found.margin
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(found.dropped > 0, spread * found.dropped / keeps, 0.0)
