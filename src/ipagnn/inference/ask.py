"""`predict` and `explain` have one way of taking programs: as text, one or several, for any model."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar, get_args, get_type_hints, overload

from ipagnn.data import StepBudget
from ipagnn.inference.loaded import LoadedModel, ModelLike, choose_models
from ipagnn.languages.arithmetic import Program
from ipagnn.languages.arithmetic.interpreter import MAX_STEPS

Answer = TypeVar("Answer")

_ARGUMENTS: Final = """

Args:
    source: The program as text; one line may be masked (`[MASK]` or `_`). Several programs run in batches.
    model: A name in the package, a file, a run folder or a model; None takes the one in the package that fits.
    budget: Steps that the model may take: a multiple of T(x), `"static"`, `"trace"` or a `StepBudget`; None takes
        the model's own.
    digits: Digits that variables have, for models whose values are digits; None takes the model's own.
    max_steps: Steps that finding the true result may take, as in `ipagnn.languages.arithmetic.execute`.

Returns:
    One answer for a text, a list of them for several.

Raises:
    ProgramError: A text is not a program.
    ValueError: There is no such model, or it cannot run this program.
"""


class Ask(Protocol[Answer]):
    """What `predict` and `explain` are."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # a text is a sequence of texts
        self,
        source: str,
        model: ModelLike | None = None,
        *,
        budget: StepBudget | str | float | None = None,
        digits: int | None = None,
        max_steps: int = MAX_STEPS,
    ) -> Answer: ...

    @overload
    def __call__(
        self,
        source: Sequence[str],
        model: ModelLike | None = None,
        *,
        budget: StepBudget | str | float | None = None,
        digits: int | None = None,
        max_steps: int = MAX_STEPS,
    ) -> list[Answer]: ...


def ask_with(answers: Callable[[Sequence[Program], LoadedModel, int], list[Answer]], name: str) -> Ask[Answer]:
    """The function for texts that belongs to one for programs and a model that are at hand.

    Args:
        answers: Gets programs, the model and `max_steps`. Its first sentence describes the new function too.
        name: Name of the new function.
    """

    def ask(
        source: str | Sequence[str],
        model: ModelLike | None = None,
        *,
        budget: StepBudget | str | float | None = None,
        digits: int | None = None,
        max_steps: int = MAX_STEPS,
    ) -> Answer | list[Answer]:
        sources = [source] if isinstance(source, str) else list(source)
        found: dict[int, Answer] = {}
        for chosen, which in choose_models(model, sources, budget, digits):
            programs = [chosen.parse(sources[i]) for i in which]
            found.update(zip(which, answers(programs, chosen, max_steps), strict=True))
        return found[0] if isinstance(source, str) else [found[i] for i in range(len(sources))]

    ask.__name__ = ask.__qualname__ = name
    ask.__module__ = answers.__module__
    many = get_type_hints(answers)["return"]
    ask.__annotations__["return"] = get_args(many)[0] | many
    ask.__doc__ = (answers.__doc__ or "").partition("\n")[0] + _ARGUMENTS
    return ask  # type: ignore[return-value]  # a function cannot be overloaded in its body
