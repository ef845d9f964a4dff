"""What a model says a program comes to, beside what it does come to."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from ipagnn.data import Batch, collate
from ipagnn.inference.loaded import LoadedModel, ModelLike, choose_model
from ipagnn.languages.arithmetic import ExecutionError, Grammar, Program, Task, execute, format_program
from ipagnn.languages.arithmetic.holes import hole_distribution
from ipagnn.languages.arithmetic.interpreter import MAX_STEPS
from ipagnn.models import Output

TOP: Final = 5
"""Likeliest results that are told."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A result and its probability."""

    value: int
    probability: float


@dataclass(frozen=True, slots=True)
class Truth:
    """What a program really comes to.

    Attributes:
        value: v0 modulo the modulus at the end of a complete program; None if it has none.
        trace_length: Statements until then; None without a value.
        exact: For a masked program, the distribution over all fillings, likeliest first; None otherwise, or where one
            of the fillings has no value.
        why: Why neither is known, as a sentence; None if one is.
    """

    value: int | None = None
    trace_length: int | None = None
    exact: tuple[Candidate, ...] | None = None
    why: str | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Prediction:
    """What a model says about a program.

    Attributes:
        program: The program.
        model: Name of the model.
        grammar: Its language.
        steps: How many steps it was given.
        probabilities: Of every result, float64 [class].
        truth: What the program really comes to.
        dropped: Pointer mass that was not followed, for the program was long; 0 if all was.
    """

    program: Program
    model: str
    grammar: Grammar
    steps: int
    probabilities: npt.NDArray[np.float64] = field(repr=False)
    truth: Truth
    dropped: float = 0.0

    @property
    def task(self) -> Task:
        """`partial` if a line is masked."""
        return "partial" if self.program.is_partial else "full"

    @property
    def value(self) -> int | None:
        """The true result; None if a line is masked or the program does not end."""
        return self.truth.value

    @property
    def lines(self) -> list[str]:
        """The program in the paper's form."""
        return format_program(self.program, self.grammar.condition_modulus).split("\n")

    def top(self, count: int = TOP) -> list[Candidate]:
        """The likeliest results, of equals the smallest first."""
        order = np.argsort(-self.probabilities, kind="stable")[:count]
        return [Candidate(int(value), float(self.probabilities[value])) for value in order]

    def to_dict(self, count: int = TOP) -> dict[str, Any]:
        """As JSON knows it: what `ipagnn predict --json` and `POST /api/predict` answer."""
        truth, p = self.truth, self.probabilities
        exact = truth.exact and [
            {"value": c.value, "probability": c.probability, "predicted": float(p[c.value])} for c in truth.exact
        ]
        return {
            "model": self.model,
            "task": self.task,
            "lines": self.lines,
            "steps": self.steps,
            "top": [{"value": c.value, "probability": c.probability} for c in self.top(count)],
            "value": truth.value,
            "value_probability": None if truth.value is None else float(p[truth.value]),
            "trace_length": truth.trace_length,
            "exact": exact,
            "why": truth.why,
            "dropped": self.dropped,
        }

    def _repr_html_(self) -> str:
        from ipagnn.inference.html import prediction_html

        return prediction_html(self)


def predict(source: str, model: ModelLike | None = None, *, max_steps: int = MAX_STEPS) -> Prediction:
    """Let a model predict what a program comes to.

    Args:
        source: The program as text; one line may be masked (`[MASK]` or `_`).
        model: A name in the package, a file, a run folder or a model; None takes the one in the package that fits.
        max_steps: Steps that finding the true result may take, as in `ipagnn.languages.arithmetic.execute`.

    Raises:
        ProgramError: The text is not a program.
        ValueError: There is no such model, or it cannot run this program.
    """
    chosen = choose_model(model, source)
    return predict_program(chosen.parse(source), chosen, max_steps=max_steps)


def predict_program(program: Program, chosen: LoadedModel, *, max_steps: int = MAX_STEPS) -> Prediction:
    """`predict` for a program and a model that are at hand."""
    batch, output = run(program, chosen)
    return prediction_of(program, chosen, batch, output, max_steps)


def run(program: Program, chosen: LoadedModel, record: Iterable[str] = ()) -> tuple[Batch, Output]:
    """Run the model on the one program, pruned if it is long.

    Args:
        program: The program.
        chosen: The model.
        record: Quantities to record, out of what the model can record, beside the dropped mass.
    """
    chosen.check(program)
    # Without rows, which are many for a long program.
    outline = collate([program], None, chosen.config.budget, indent=chosen.config.indent)
    model = chosen.for_size(len(outline.true) * int(outline.steps[0]))
    batch = outline if model.needed_rows is None else model.collate([program])
    with torch.inference_mode():
        wanted = {"dropped", *record} & model.records
        output = model(batch.to(next(model.parameters()).device), record=wanted)
    if not output.logits.isfinite().all():
        raise ValueError(f"The model {chosen.name} computes what is not a number; its weights are damaged.")
    return batch, output


def prediction_of(
    program: Program, chosen: LoadedModel, batch: Batch, output: Output, max_steps: int = MAX_STEPS
) -> Prediction:
    """What an output means."""
    probabilities = torch.softmax(output.logits[0].double().cpu(), dim=0).numpy()
    return Prediction(
        program,
        chosen.name,
        chosen.grammar,
        int(batch.steps[0]),
        probabilities,
        true_result(program, chosen.grammar, max_steps),
        float(output["dropped"][0]) if "dropped" in output.recorded else 0.0,
    )


def true_result(program: Program, grammar: Grammar, max_steps: int = MAX_STEPS) -> Truth:
    """What a program really comes to: its value, or for a masked one the distribution over all fillings."""
    try:
        if program.is_partial:
            exact = hole_distribution(program, replace(grammar, block_limit=0), max_steps)
            return Truth(exact=tuple(Candidate(value, p) for value, p in exact.probabilities.items()))
        value, length = execute(program, grammar.modulus, grammar.condition_modulus, max_steps)
        return Truth(value, length)
    except ExecutionError as error:
        return Truth(why=f"{'With one of its fillings, l' if program.is_partial else 'L'}{str(error)[1:]}")
