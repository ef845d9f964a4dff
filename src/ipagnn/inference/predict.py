"""The prediction of a model for a program, and the true result."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ipagnn.inference.ask import ask_with
from ipagnn.inference.loaded import LoadedModel
from ipagnn.inference.run import Run, run_programs
from ipagnn.inference.trust import doubts_of, trust_sentence, warnings_of
from ipagnn.languages.arithmetic import ExecutionError, Grammar, Program, ProgramKind, execute, format_program
from ipagnn.languages.arithmetic.holes import hole_distribution
from ipagnn.languages.arithmetic.interpreter import MAX_STEPS

TOP: Final = 5
"""Number of results, the most likely first."""
LEAST_SHOWN: Final = 0.0005
"""What is less likely prints as 0.0%."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A result and its probability."""

    value: int
    probability: float


@dataclass(frozen=True, slots=True)
class Truth:
    """The true result of a program.

    Attributes:
        value: v0 modulo the modulus at the end of a complete program; None if it has none.
        trace_length: Statements until then; None without a value.
        exact: For a masked program, the distribution over all fillings, likeliest first; None otherwise, or where one
            of the fillings has no value.
        samples: Fillings that `exact` is estimated from; 0 if it is over all of them.
        why: Why neither is known, as a sentence; None if one is.
    """

    value: int | None = None
    trace_length: int | None = None
    exact: tuple[Candidate, ...] | None = None
    samples: int = 0
    why: str | None = None


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Prediction:
    """What a model says about a program.

    Attributes:
        program: The program.
        model: Name of the model.
        grammar: Its language.
        steps: How many steps it was given; None for a model that takes one for each line or statement.
        probabilities: Of every result; where there are `results`, of those. float64 [class] or [result]
        truth: The true result.
        exit_mass: Share of the instruction pointer that reached the exit, on which the answer rests; None for a model
            without a pointer.
        dropped: Pointer mass that was not followed, for the program was long; 0 if all was.
        warnings: What speaks against the answer, each as a sentence; empty where there is nothing to say.
        results: The results that are possible, of a model that runs over automata; None for all from 0 on.
            int64 [result]
        proved: Whether it is proved, of a complete program that runs over automata, that the model runs it as the
            language says; None for others.
    """

    program: Program
    model: str
    grammar: Grammar
    steps: int | None
    probabilities: npt.NDArray[np.float64] = field(repr=False)
    truth: Truth
    exit_mass: float | None = None
    dropped: float = 0.0
    warnings: list[str] = field(default_factory=list)
    results: npt.NDArray[np.int64] | None = field(default=None, repr=False)
    proved: bool | None = None

    @property
    def task(self) -> ProgramKind:
        """`partial` if a line is masked."""
        return "partial" if self.program.is_partial else "full"

    @property
    def value(self) -> int:
        """The prediction: the likeliest result, of equals the smallest."""
        return self.top(1)[0].value

    @property
    def confidence(self) -> float:
        """Probability of `value`, given the part of the pointer that reached the exit (`exit_mass`).

        Runs over automata are certain of every step, right or wrong: what their answer is worth, `proved` says.
        """
        return self.top(1)[0].probability

    @property
    def true_value(self) -> int | None:
        """The true result; None if a line is masked or the program does not end."""
        return self.truth.value

    @property
    def trust(self) -> str:
        """What the answer rests on, in one line."""
        return trust_sentence(self.exit_mass, self.steps, self.truth.trace_length, len(self.warnings), self.proved)

    @property
    def lines(self) -> list[str]:
        """The program in the paper's form."""
        return format_program(self.program, self.grammar.condition_modulus).split("\n")

    def top(self, count: int = TOP) -> list[Candidate]:
        """The likeliest results, of equals the smallest first."""
        order = np.argsort(-self.probabilities, kind="stable")[:count]
        values = order if self.results is None else self.results[order]
        return [Candidate(int(v), float(p)) for v, p in zip(values, self.probabilities[order], strict=True)]

    def shown(self, count: int = TOP) -> list[Candidate]:
        """Those of `top` that print as more than 0.0%, and the first."""
        first, *others = self.top(count)
        return [first, *(each for each in others if each.probability >= LEAST_SHOWN)]

    def probability(self, value: int) -> float:
        """The probability of a result."""
        if self.results is None:
            return float(self.probabilities[value])
        return float(self.probabilities[self.results == value].sum())

    def to_dict(self, count: int = TOP) -> dict[str, Any]:
        """As JSON knows it: what `ipagnn predict --json` and `POST /api/predict` answer."""
        truth = self.truth
        exact = truth.exact and [
            {"value": c.value, "probability": c.probability, "predicted": self.probability(c.value)}
            for c in truth.exact
        ]
        return {
            "model": self.model,
            "task": self.task,
            "lines": self.lines,
            "variable": self.grammar.target_variable,
            "modulus": self.grammar.modulus,
            "value": self.value,
            "confidence": self.confidence,
            "exit_mass": self.exit_mass,
            "steps": self.steps,
            "trust": self.trust,
            "proved": self.proved,
            "warnings": list(self.warnings),
            "top": [{"value": c.value, "probability": c.probability} for c in self.top(count)],
            "true_value": truth.value,
            "true_probability": None if truth.value is None else self.probability(truth.value),
            "trace_length": truth.trace_length,
            "exact": exact,
            "samples": truth.samples,
            "why": truth.why,
            "dropped": self.dropped,
        }

    def __repr__(self) -> str:
        """One line, with the answer."""
        mass = "" if self.exit_mass is None else f", exit_mass={self.exit_mass:.1%}"
        true = "" if self.true_value is None else f", true_value={self.true_value}"
        warnings = f", warnings={len(self.warnings)}" if self.warnings else ""
        return f"Prediction(value={self.value}, confidence={self.confidence:.1%}{mass}{true}{warnings})"

    def _repr_html_(self) -> str:
        from ipagnn.inference.html import prediction_html

        return prediction_html(self)


def predict_programs(programs: Sequence[Program], chosen: LoadedModel, max_steps: int = MAX_STEPS) -> list[Prediction]:
    """Predict the result of a program, or of each of several."""
    runs = run_programs(programs, chosen)
    return [prediction_of(program, chosen, run, max_steps) for program, run in zip(programs, runs, strict=True)]


predict = ask_with(predict_programs, "predict")


def prediction_of(program: Program, chosen: LoadedModel, run: Run, max_steps: int = MAX_STEPS) -> Prediction:
    """What a run means."""
    truth = true_result(program, chosen.grammar, max_steps)
    doubts = doubts_of(program, chosen)
    return Prediction(
        program,
        chosen.name,
        chosen.grammar,
        run.steps if chosen.takes_steps else None,
        run.probabilities,
        truth,
        run.exit_mass,
        run.dropped,
        warnings_of(program, chosen, run, truth.trace_length, truth.why, doubts),
        run.results,
        None if doubts is None or program.is_partial else not doubts,
    )


def true_result(program: Program, grammar: Grammar, max_steps: int = MAX_STEPS) -> Truth:
    """The true result of a program: its value, or for a masked one the distribution over all fillings."""
    try:
        if program.is_partial:
            exact = hole_distribution(program, replace(grammar, block_limit=0), max_steps)
            found = tuple(Candidate(value, p) for value, p in exact.probabilities.items())
            return Truth(exact=found, samples=exact.samples)
        moduli = grammar.modulus, grammar.condition_modulus
        return Truth(*execute(program, *moduli, max_steps, wrap=grammar.wrap, variable=grammar.target_variable))
    except ExecutionError as error:
        return Truth(why=f"{'With one of its fillings, l' if program.is_partial else 'L'}{str(error)[1:]}")
