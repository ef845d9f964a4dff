"""Which programs a split holds: a recipe anyone can follow to the same programs, bit for bit.

- `train` has the training lengths and never a program that is withheld;
- `validation` has length exactly C and withheld programs only, so it is disjoint from training by program;
- `test` has the same number of programs at each of its lengths, in the order of the lengths. They are longer than C,
  and so disjoint from training by construction.

What is withheld is decided by a hash of the tokens that a model sees: of the program in the full task, of the masked
program in the partial task, so that the side a program is on says nothing about its masked line. No list is kept: it
holds for any seed, on disk or in a stream.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from ipagnn.data.tasks import FULL, Task, find_task
from ipagnn.languages.arithmetic.grammar import PAPER, Grammar, Lengths
from ipagnn.languages.arithmetic.program import ProgramKind, ProgramTable
from ipagnn.languages.arithmetic.sampler import Sampler

Split = Literal["train", "validation", "test"]

TRAINING_LENGTH: Final = 10
"""C, the longest training length of the paper."""
TEST_LENGTHS: Final = (20, 30, 40, 50, 60, 70, 80, 90, 100)
TEST_COUNT_PER_LENGTH: Final = 500
VALIDATION_COUNT: Final = 5_000
TRAIN_SEED: Final = 0
VALIDATION_SEED: Final = 1_000_001
TEST_SEED: Final = 2_000_002

_SEEDS: Final[dict[Split, int]] = {"train": TRAIN_SEED, "validation": VALIDATION_SEED, "test": TEST_SEED}
_LENGTHS: Final[dict[Split, Lengths]] = {
    "train": Lengths.training(TRAINING_LENGTH),
    "validation": Lengths.exact(TRAINING_LENGTH),
    "test": Lengths.uniform(TEST_LENGTHS),
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that decides the programs of a split.

    Attributes:
        split: `train`, `validation` or `test`.
        task: The kind of its programs: `full`, or `partial` with one masked line. Tasks may share them.
        count: Number of programs.
        seed: Which programs.
        lengths: Their lengths. `test` spreads its programs evenly over them, the shorter ones having one more where the
            count does not divide; the other splits draw from the distribution.
        grammar: The language.
    """

    split: Split
    task: ProgramKind
    count: int
    seed: int
    lengths: Lengths
    grammar: Grammar = PAPER

    def __post_init__(self) -> None:
        if self.split not in get_args(Split):
            raise ValueError(f"The split is {self.split!r}; it must be one of {', '.join(get_args(Split))}.")
        if not isinstance(self.count, int) or self.count < 1:
            raise ValueError(f"The count is {self.count!r}; it must be a whole number of at least 1.")
        if self.split == "test" and len(set(self.lengths.weights)) > 1:
            raise ValueError(
                f"The lengths of a test split weigh {self.lengths.weights}; it holds as many programs of each length, "
                "so give all of them the same weight."
            )
        self.sampler(self.lengths)  # checks the rest

    def sampler(self, lengths: Lengths) -> Sampler:
        """The sampler of this split's side of the hash for `lengths`."""
        withheld = {"train": False, "validation": True, "test": None}[self.split]
        return Sampler(self.task, lengths, self.grammar, self.seed, withheld)

    def table(self, start: int, stop: int, threads: int = 1) -> ProgramTable:
        """The programs `start:stop` of the split; the same for any number of threads."""
        if not 0 <= start <= stop <= self.count:
            raise ValueError(f"Programs {start}:{stop} were asked of a split of {self.count}.")
        if self.split != "test":
            return self.sampler(self.lengths).table(start, stop - start, threads)
        lengths = sorted(self.lengths.lengths)
        each, rest = divmod(self.count, len(lengths))
        pieces = []
        first = 0
        for i, length in enumerate(lengths):
            last = first + each + (i < rest)
            low, high = max(start, first), min(stop, last)
            if low < high:  # indices go on from length to length, so that no two programs share their random numbers
                pieces.append(self.sampler(Lengths.exact(length)).table(low, high - low, threads))
            first = last
        return ProgramTable.concatenate(pieces)

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON knows them; `from_dict` reads it back."""
        grammar = self.grammar.to_dict()
        if not self.grammar.block_limit:
            del grammar["block_limit"]  # so that data sets without it keep the manifest and fingerprint they always had
        return {
            "split": self.split,
            "task": self.task,
            "count": self.count,
            "seed": self.seed,
            "lengths": {"lengths": list(self.lengths.lengths), "weights": list(self.lengths.weights)},
            "grammar": grammar,
        }

    @staticmethod
    def from_dict(values: dict[str, Any]) -> "Recipe":
        """The recipe that `to_dict` wrote.

        Raises:
            ValueError, KeyError: It is not one.
        """
        lengths = Lengths(tuple(values["lengths"]["lengths"]), tuple(values["lengths"]["weights"]))
        grammar = Grammar.from_dict(values["grammar"])
        return Recipe(values["split"], values["task"], values["count"], values["seed"], lengths, grammar)


def recipe(
    split: Split,
    task: Task | str = FULL,
    count: int | None = None,
    seed: int | None = None,
    lengths: Lengths | None = None,
    grammar: Grammar = PAPER,
) -> Recipe:
    """The recipe of a split; what is not given is as in the paper.

    Args:
        split: `train`, `validation` or `test`.
        task: The task that the programs are for, or its name.
        count: Number of programs; by default 500 for each test length, 5,000 for validation. Training has no default.
        seed: Which programs; by default `TRAIN_SEED`, `VALIDATION_SEED` or `TEST_SEED`.
        lengths: By default the training lengths up to 10, exactly 10, and each of 20, 30, ..., 100.
        grammar: The language.
    """
    if split not in get_args(Split):
        raise ValueError(f"The split is {split!r}; it must be one of {', '.join(get_args(Split))}.")
    lengths = _LENGTHS[split] if lengths is None else lengths
    if count is None:
        if split == "train":
            raise ValueError("A training split has no usual size; say how many programs it is to have.")
        count = VALIDATION_COUNT if split == "validation" else TEST_COUNT_PER_LENGTH * len(lengths.lengths)
    return Recipe(split, find_task(task).programs, count, _SEEDS[split] if seed is None else seed, lengths, grammar)


def training_sampler(
    task: Task | str = FULL, c: int = TRAINING_LENGTH, seed: int = TRAIN_SEED, grammar: Grammar = PAPER
) -> Sampler:
    """The endless training programs of a task, of length up to `c`; nothing withheld is among them."""
    return recipe("train", task, 1, seed, Lengths.training(c), grammar).sampler(Lengths.training(c))


def build_validation_set(
    task: Task | str = FULL, count: int = VALIDATION_COUNT, c: int = TRAINING_LENGTH, threads: int = 1
) -> ProgramTable:
    """The first `count` withheld programs of length exactly `c`, which select models."""
    return recipe("validation", task, count, lengths=Lengths.exact(c)).table(0, count, threads)


def build_test_set(
    task: Task | str = FULL,
    count_per_length: int = TEST_COUNT_PER_LENGTH,
    threads: int = 1,
) -> ProgramTable:
    """The test set of a task: 500 programs at each of 20, 30, ..., 100, in this order."""
    count = count_per_length * len(TEST_LENGTHS)
    return recipe("test", task, count).table(0, count, threads)
