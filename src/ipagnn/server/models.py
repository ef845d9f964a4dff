"""The models that a server offers. Requests name these and can name nothing else: no path ever comes from outside."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from ipagnn.inference.explain import explain_programs
from ipagnn.inference.loaded import DEFAULT_MODELS, LoadedModel, load_cached, with_hint
from ipagnn.languages.arithmetic import Lengths, Program, ProgramError, ProgramKind, Sampler
from ipagnn.languages.arithmetic.card import EXTENDED_MODEL
from ipagnn.models import available_models
from ipagnn.models.files import MODEL_FILE

WARM_UP_LINES: Final = 8


class Offer:
    """Models by short names, in the order given.

    Args:
        names: Names in the package, files and run folders.

    Raises:
        ValueError: There are none, or one cannot be loaded.
    """

    def __init__(self, names: Sequence[str | Path]) -> None:
        if not names:
            raise ValueError(
                "There is no model to serve; name one with --model: a file, or a run folder such as "
                "`ipagnn train runs/a --preset quick` makes."
            )
        self.models: dict[str, LoadedModel] = {}
        for name in names:
            short = wanted = _short(name)
            number = 1
            while short in self.models:
                number += 1
                short = f"{wanted}-{number}"
            self.models[short] = replace(load_cached(name), name=short)

    @staticmethod
    def packaged() -> "Offer":
        """All that come with the package: first those that answer where none is named, then the IPA-GNNs to compare."""
        first = set(DEFAULT_MODELS.values())
        names = sorted(available_models(), key=lambda name: (name not in first, not name.startswith("ipa-gnn")))
        return Offer(names)

    def warm_up(self) -> None:
        """Load and compile what the first request would otherwise wait for."""
        for model in self.models.values():
            program = Sampler("full", Lengths.exact(WARM_UP_LINES), model.grammar).table(0, 1)[0]
            explain_programs([program], model)

    def choose(self, name: str | None, task: ProgramKind) -> LoadedModel:
        """The model of that name; without one, the first that was trained for the task, or can do it.

        Raises:
            ValueError: There is none.
        """
        if name is not None:
            if name not in self.models:
                raise ValueError(f"There is no model {name[:100]!r}; choose one of {', '.join(self.models)}.")
            return self.models[name]
        fitting = [model for model in self.models.values() if task in model.model.tasks]
        if not fitting:
            raise ValueError(
                "No model here can run a program with a masked line; put a statement in its place, or let the server "
                "offer another model with --model."
            )
        return next((model for model in fitting if model.task == task), fitting[0])

    def parse(self, source: str, model: LoadedModel) -> Program:
        """Read a program in a model's language; the error names the model here that reads more, if that helps."""
        try:
            return model.parse(source)
        except ProgramError as error:
            sentence = f"The model {EXTENDED_MODEL} reads such programs."
            raise with_hint(error, source, self.models.get(EXTENDED_MODEL), sentence) from None


def _short(name: str | Path) -> str:
    path = Path(name)
    if path.is_dir():
        return path.resolve().name
    if path.is_file():
        return path.resolve().parent.name if path.name == MODEL_FILE else path.stem
    return str(name)
