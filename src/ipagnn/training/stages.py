"""Stages of a run: parts with programs, learning rate and end of their own, one after the other."""

from dataclasses import dataclass
from typing import Final, Literal

from ipagnn._common.options import check_options, option
from ipagnn.languages.arithmetic.grammar import MAX_LENGTH, MIN_LENGTH, Lengths

SHORTEST: Final = MIN_LENGTH
"""Lines of the shortest programs of a stage."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A part of a run. What it does not say is as the settings of the run say."""

    length: int = option(
        10,
        "Lines of its longest programs.",
        least=MIN_LENGTH,
        most=MAX_LENGTH,
    )
    lengths: Literal["uniform", "paper"] = option(
        "uniform",
        f"How often which length is drawn: `uniform`, all from {SHORTEST} to `length` equally often; `paper`, nine of "
        "ten programs have `length` lines.",
    )
    batch_size: int = option(32, "Programs a step, over all processes together.", least=1, most=2**24)
    steps: int = option(1_000, "Steps; the most where `until` ends the stage earlier.", least=1, most=2**40)
    until: float = option(
        0.0,
        "Ends the stage once this share of the programs of the last `log_every` steps was right, each before it was "
        "learnt from; 0 never does. The share is looked at every `log_every` steps. No clock decides anything.",
        least=0,
        most=1,
    )
    learning_rate: float = option(1e-3, "Learning rate at its beginning.", above=0, most=1e6)
    final_learning_rate: float = option(
        0.0,
        "Learning rate that it falls to along a cosine by its last step; 0 keeps `learning_rate`.",
        least=0,
        most=1e6,
    )

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def distribution(self) -> Lengths:
        """The lengths of its programs."""
        if self.lengths == "paper":
            return Lengths.training(self.length)
        return Lengths.uniform(range(SHORTEST, self.length + 1))

    @property
    def words(self) -> str:
        """Its programs and its end, in words."""
        until = f"until {self.until:.0%} are right, at most " if self.until else ""
        lengths = "the paper's lengths" if self.lengths == "paper" else f"lengths from {SHORTEST}"
        return f"{lengths} to {self.length}, {until}{self.steps:,} steps"
