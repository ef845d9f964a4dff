"""The paper's language: programs, their text, control flow graphs, exact execution, and the sampler that draws them.

It knows no tensors.
"""

from typing import TYPE_CHECKING

from ipagnn._common.lazy import import_lazily

if TYPE_CHECKING:
    from ipagnn.languages.arithmetic.cfg import ControlFlowGraph, control_flow_graph, steps
    from ipagnn.languages.arithmetic.grammar import AUTHORS, PAPER, Grammar, Lengths
    from ipagnn.languages.arithmetic.interpreter import (
        EndlessLoopError,
        ExecutionError,
        ExecutionResult,
        MaskedProgramError,
        Step,
        StepLimitError,
        execute,
        trace,
        trace_length,
        value,
    )
    from ipagnn.languages.arithmetic.language import ARITHMETIC, Arithmetic
    from ipagnn.languages.arithmetic.program import Line, Program, ProgramKind, ProgramTable
    from ipagnn.languages.arithmetic.sampler import Sampler
    from ipagnn.languages.arithmetic.targets import target
    from ipagnn.languages.arithmetic.text import ProgramError, format_program, parse

__all__ = [
    "ARITHMETIC",
    "AUTHORS",
    "PAPER",
    "Arithmetic",
    "ControlFlowGraph",
    "EndlessLoopError",
    "ExecutionError",
    "ExecutionResult",
    "Grammar",
    "Lengths",
    "Line",
    "MaskedProgramError",
    "Program",
    "ProgramError",
    "ProgramKind",
    "ProgramTable",
    "Sampler",
    "Step",
    "StepLimitError",
    "control_flow_graph",
    "execute",
    "format_program",
    "parse",
    "steps",
    "target",
    "trace",
    "trace_length",
    "value",
]

import_lazily(__name__)
