"""Running a model without a bound, on numbers of any size: over the automata that it has learned of each statement."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from ipagnn.languages.arithmetic._compiled.tables import ENDS
from ipagnn.languages.arithmetic.automata import Automaton, Statement, disagreement_at, true_automaton
from ipagnn.languages.arithmetic.automata.doubts import UNKNOWN, Found, doubts
from ipagnn.languages.arithmetic.automata.run import (
    MAX_STEPS,
    run_automata,
    statements_of,
    walk_automata,
)
from ipagnn.languages.arithmetic.program import Program, ProgramTable
from ipagnn.languages.arithmetic.table_run import EXACT_MASKS, TableStep
from ipagnn.languages.arithmetic.tables import masked_choices
from ipagnn.languages.arithmetic.vocabulary import MASK, MAX_NUMBER, MULTIPLY, NUMBER, VARIABLE

if TYPE_CHECKING:
    from ipagnn.models.env_ipa_gnn import EnvIPAGNN

_FEW: Final = 64  # programs with masked lines that run at a time


@dataclass(frozen=True, eq=False, slots=True)
class AutomataAnswers:
    """What running programs over the automata of a model gave.

    Attributes:
        results: The values that runs of each program came to, the likeliest first, of equals the smallest; -1 behind
            the last. int64 [program, result]
        weights: Weight of the runs that came to each; 0 behind the last. A complete program has one run, of weight 1.
            Where runs did not end, the weights of a program sum to less than 1. float64 [program, result]
        steps: Statements executed; -1 for a program with masked lines. int64 [program]
        status, stopped: As in `AutomataRun`, of the first run that did not end.
    """

    results: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]
    steps: npt.NDArray[np.int64]
    status: npt.NDArray[np.int8]
    stopped: npt.NDArray[np.int32]


class AutomataModel:
    """A model as automata, and programs run over them, with hard digits and a hard pointer.

    Automata are made when a program first needs them: a change of the model's weights afterwards does not reach them.

    Args:
        model: A model whose values are digits.

    Attributes:
        model: The model.
        places: Digits that variables have.
        automata: What it has learned of the statements that were needed so far.
    """

    def __init__(self, model: "EnvIPAGNN") -> None:
        self.model = model
        self.places = len(str(model.config.grammar.modulus)) - 1
        self.automata: dict[Statement, Automaton] = {}
        self._compared: dict[tuple[Statement, int | None, bool], Found] = {}
        self._choices = [(int(o), int(k)) for o, k in masked_choices(model.config.grammar)]

    def automata_for(self, programs: ProgramTable) -> dict[Statement, Automaton]:
        """The automata with all statements of these programs, and of what their masked lines may be."""
        masked = self._choices if (programs.line_tokens[:, 1] == MASK).any() else []
        lacking = list({*statements_of(programs), *masked} - self.automata.keys())
        self.automata.update(zip(lacking, self.model.automata(lacking), strict=True))
        return self.automata

    def doubts(self, program: Program) -> list[str]:
        """What of a program is not proved to run as the language says, each as a sentence; empty if it surely does.

        Of a program with masked lines, that of all statements that they may be; nothing is said of how likely these
        are.
        """
        self.automata_for(ProgramTable.from_programs([program]))
        return doubts(program, self.model.config.grammar, self._compare)

    def _compare(self, statement: Statement, operand: int | None, same: bool) -> Found:
        """See `Compare`. What was found is kept."""
        key = statement, operand, same
        if key not in self._compared:
            self._compared[key] = self._difference(statement, operand, same)
        return self._compared[key]

    def _difference(self, statement: Statement, operand: int | None, same: bool) -> Found:
        operation, number = statement
        if operation == MULTIPLY and (number or 0) > MAX_NUMBER:
            return UNKNOWN  # as many states as the number is large
        try:
            true = true_automaton(operation, number, self.model.config.grammar.condition_modulus)
            return disagreement_at(self.automata[statement], true, self.places, operand=operand, same=same)
        except ValueError:
            return UNKNOWN

    def run(self, programs: ProgramTable, *, max_steps: int = MAX_STEPS, threads: int = 1) -> AutomataAnswers:
        """Run programs; those with masked lines once for each filling of them.

        Args:
            programs: The programs.
            max_steps: Statements after which a program is given up. Fillings of masked lines share them evenly, so that
                no program takes longer than others may.
            threads: How many threads run programs.

        Raises:
            ValueError: A program has more than two masked lines.
        """
        automata = self.automata_for(programs)
        result = self.model.config.grammar.target_variable
        masks = np.add.reduceat(programs.line_tokens[:, 1] == MASK, programs.line_offsets[:-1], dtype=np.int64)
        if not masks.any():
            run = run_automata(automata, programs, self.places, max_steps=max_steps, threads=threads, variable=result)
            weights = np.where(run.status == ENDS, 1.0, 0.0)[:, None]
            return AutomataAnswers(run.value[:, None], weights, run.steps, run.status, run.stopped)
        parts: list[Any] = [None] * len(programs)
        for count in np.unique(masks).tolist():
            which = np.flatnonzero(masks == count)
            limit = max(1, max_steps // max(1, len(self._choices) ** count))
            for some in (which[first : first + _FEW] for first in range(0, len(which), _FEW)):
                fillings = [list(self._fillings(programs[i])) for i in some]
                table = ProgramTable.from_programs([filled for each in fillings for filled, _ in each])
                run = run_automata(automata, table, self.places, max_steps=limit, threads=threads, variable=result)
                ends = np.cumsum([len(each) for each in fillings]).tolist()
                for i, each, end in zip(some, fillings, ends, strict=True):
                    runs = slice(end - len(each), end)
                    parts[i] = (programs[i], *(x[runs] for x in (run.value, run.status, run.stopped, run.steps)), each)
        return _gather(parts)

    def walks(self, program: Program, most: int) -> Iterator[tuple[Program, float, Iterator[TableStep]]]:
        """As `TabulatedModel.walks`."""
        automata = self.automata_for(ProgramTable.from_programs([program]))
        for filled, weight in self._fillings(program):
            yield filled, weight, walk_automata(automata, filled, self.places)

    def _fillings(self, program: Program) -> Iterator[tuple[Program, float]]:
        """The program with each filling of its masked lines, and the weight of each; itself if no line is masked."""
        masked = list(program.masked_lines)
        if len(masked) > EXACT_MASKS:
            raise ValueError(
                f"The program has {len(masked)} masked lines; a model that runs over automata takes at most "
                f"{EXACT_MASKS}, as it runs a program for each filling of them. Leave fewer lines masked."
            )
        if masked and not self._choices:
            raise ValueError(
                "A line of the program is masked; in languages past the paper's it may be any of too many statements. "
                "Give complete programs."
            )
        weights = self.model.mask_weights.detach().double().softmax(dim=0).tolist()
        for filling in product(range(len(self._choices)), repeat=len(masked)):
            tokens, weight = program.line_tokens.copy(), 1.0
            for line, choice in zip(masked, filling, strict=True):
                operation, operand = self._choices[choice]
                tokens[line, 1:] = operation, VARIABLE, NUMBER + operand
                weight *= weights[choice]
            yield Program(tokens), weight


def _gather(parts: list[tuple]) -> AutomataAnswers:  # type: ignore[type-arg]
    """The answers of programs from their runs: program, value, status, stopped and steps by run, and the fillings."""
    found = []
    for _, value, status, _, _, fillings in parts:
        weight = np.where(status == ENDS, [weight for _, weight in fillings], 0.0)
        results, which = np.unique(value, return_inverse=True)
        weights = np.bincount(which, weight)
        order = np.argsort(-weights, kind="stable")[: np.count_nonzero(weights)]
        found.append((results[order], weights[order]))
    width = max(1, *(len(results) for results, _ in found))
    answers = AutomataAnswers(
        np.full((len(parts), width), -1, np.int64),
        np.zeros((len(parts), width)),
        np.full(len(parts), -1, np.int64),
        np.zeros(len(parts), np.int8),
        np.full(len(parts), -1, np.int32),
    )
    for i, (program, _, status, stopped, steps, _) in enumerate(parts):
        results, weights = found[i]
        answers.results[i, : len(results)], answers.weights[i, : len(results)] = results, weights
        failed = np.flatnonzero(status != ENDS)
        if len(failed):
            answers.status[i], answers.stopped[i] = status[failed[0]], stopped[failed[0]]
        if not program.is_partial:
            answers.steps[i] = steps[0]
    return answers
