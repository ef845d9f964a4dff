"""One vector for each program: what a model knows of it when it predicts."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ipagnn.data import StepBudget
from ipagnn.inference.loaded import ModelLike, choose_models
from ipagnn.inference.run import run_programs


def embed(
    sources: Sequence[str], model: ModelLike | None = None, *, budget: StepBudget | str | float | None = None
) -> npt.NDArray[np.float32]:
    """One vector for each program, from any model.

    It is what the model's output layer reads: the state that arrived at the exit for a model with an instruction
    pointer, and the final state for the others. Of a model without an output layer it is the predicted distribution.

    Args:
        sources: Programs as text; lines may be masked. They run in batches.
        model: A name in the package, a file, a run folder or a model; None takes the one in the package that fits.
        budget: Steps that the model may take; see `ipagnn.predict`.

    Shapes:
        float32 [program, width]; the width is a property of the model

    Raises:
        ProgramError: A text is not a program.
        ValueError: There is no such model, it cannot run one of the programs, or no model was named and the programs
            need two, whose vectors have nothing in common.
    """
    if isinstance(sources, str):
        raise TypeError("embed takes a list of programs; for one program write embed([source]).")
    chosen = choose_models(model, sources, budget)
    if not chosen or not sources:
        raise ValueError("There are no programs to embed; give at least one.")
    if len(chosen) > 1:
        names = " and ".join(each.name for each, _ in chosen)
        raise ValueError(
            f"Some of the programs are complete and some have masked lines, which {names} answer; vectors of two "
            "models cannot be compared. Name one model for all."
        )
    [(loaded, _)] = chosen
    runs = run_programs([loaded.parse(source) for source in sources], loaded)
    return np.stack([run.embedding for run in runs])
