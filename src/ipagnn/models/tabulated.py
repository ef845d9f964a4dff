"""Running a model without a bound: with a hard pointer, over tables of what it has learned of each statement."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from ipagnn.languages.arithmetic.interpreter import MAX_STEPS
from ipagnn.languages.arithmetic.program import Program, ProgramTable
from ipagnn.languages.arithmetic.table_run import SAMPLES, TableRun, TableStep, fillings_of, run_tables, walk_tables
from ipagnn.languages.arithmetic.tables import ValueTables, program_statements
from ipagnn.languages.arithmetic.vocabulary import MASK
from ipagnn.models.base import ProgramModel

MAX_KEPT: Final = 4_000
"""Statements that are kept tabulated; tables for programs with more are made for these programs alone."""


class TabulatedModel:
    """A model as tables, and programs run over them: any length, and traces of any number of steps.

    The tables hold the statements of the programs that were run so far, with all that a masked line may be. Each is
    tabulated once: a change of the model's weights afterwards does not reach it.

    Args:
        model: A model that can be tabulated.

    Attributes:
        model: The model.
        tables: What it has learned.
    """

    def __init__(self, model: ProgramModel) -> None:
        self.model = model
        self.tables = model.tabulate(np.empty((0, 2), np.int16))

    def tables_for(self, programs: ProgramTable) -> ValueTables:
        """The tables with all statements of these programs."""
        tables, needed = self.tables, program_statements(programs)
        if (programs.line_tokens[:, 1] == MASK).any():
            needed = np.unique(np.concatenate([needed, tables.choices.astype(np.int16)]), axis=0)
        missing = tables.missing(needed)
        if len(missing):
            tables = tables.joined(self.model.tabulate(missing))
            if len(tables.statements) <= MAX_KEPT:
                self.tables = tables
        return tables

    def run(
        self, programs: ProgramTable, *, max_steps: int = MAX_STEPS, samples: int = SAMPLES, threads: int = 1
    ) -> TableRun:
        """Run programs; see `ipagnn.languages.arithmetic.table_run.run_tables`."""
        return run_tables(self.tables_for(programs), programs, max_steps=max_steps, samples=samples, threads=threads)

    def walks(self, program: Program, most: int) -> Iterator[tuple[Program, float, Iterator[TableStep]]]:
        """A program, with masked lines each filling of it, the weight of that, and the steps of the run.

        Args:
            program: The program.
            most: Fillings to draw where not all are run.
        """
        tables = self.tables_for(ProgramTable.from_programs([program]))
        for filled, weight in fillings_of(tables, program, most):
            yield filled, weight, walk_tables(tables, filled)
