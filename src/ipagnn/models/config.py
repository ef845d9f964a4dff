"""What all models' configurations have in common. Each model declares its own options in its `Config`."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from ipagnn._common.options import check_options, option, options_to_dict
from ipagnn.data.collate import StepBudget
from ipagnn.languages.arithmetic.grammar import Grammar


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Everything that defines a model but its weights.

    A model with options of its own declares them in a nested class, which derives from this one:

        @dataclass(frozen=True, kw_only=True)
        class Config(ModelConfig):
            heads: int = option(1, "Number of attention heads.", least=1)

    Attributes:
        name: Name of the model in the registry.
    """

    name: ClassVar[str] = ""

    hidden: int = option(200, "Width of embeddings and of each LSTM layer (H in the paper).", least=1)
    indent: bool = option(
        True,
        "Read how far statements are indented, as the paper's models do. The graph holds the same information, and "
        "programs longer than those of training are indented further than any that the model has seen.",
        phrase="no indentation read",
    )
    budget: StepBudget = option(StepBudget(), "How many steps the model takes on a program.")
    grammar: Grammar = option(Grammar(), "The language: its modulus is the number of classes.")

    def __post_init__(self) -> None:
        check_options(self)

    def to_dict(self) -> dict[str, Any]:
        """The name of the model and all options as JSON knows them; `config_from_dict` reads it back."""
        return {"name": self.name} | options_to_dict(self)

    def replace(self, **changes: Any) -> Self:
        """The same with some options changed."""
        return replace(self, **changes)
