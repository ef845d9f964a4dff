"""The arithmetic language as the object that `languages.base` describes."""

from dataclasses import dataclass
from typing import ClassVar, Final

from ipagnn.languages.arithmetic.cfg import ControlFlowGraph, control_flow_graph
from ipagnn.languages.arithmetic.grammar import PAPER, Grammar
from ipagnn.languages.arithmetic.interpreter import ExecutionResult, execute
from ipagnn.languages.arithmetic.program import Program, TokenArray
from ipagnn.languages.arithmetic.text import format_program, parse
from ipagnn.languages.arithmetic.vocabulary import (
    EXTENDED_VOCABULARY_SIZE,
    VOCABULARY_SIZE,
    VOCABULARY_VERSION,
)
from ipagnn.languages.base import Language


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The language of a grammar: the paper's, or one that goes past it.

    Attributes:
        grammar: Decides which variables, numbers and forms of statements there are, what `%` may be followed by, and
            which variable's value, modulo what, is a program's result.
    """

    name: ClassVar[str] = "arithmetic"
    version: ClassVar[int] = VOCABULARY_VERSION

    grammar: Grammar = PAPER

    @property
    def vocabulary(self) -> int:
        """Number of token ids."""
        return EXTENDED_VOCABULARY_SIZE if self.grammar.is_extended else VOCABULARY_SIZE

    def parse(self, source: str) -> Program:
        """Read a program; see `text.parse`."""
        return parse(source, grammar=self.grammar)

    def format(self, program: Program) -> str:
        """Write a program in the paper's form; see `text.format_program`."""
        return format_program(program, self.grammar.condition_modulus)

    def graph(self, program: Program) -> ControlFlowGraph:
        """The control flow graph; see `cfg.control_flow_graph`."""
        return control_flow_graph(program)

    def tokens(self, program: Program) -> TokenArray:
        """Token ids of the statement at each node; zeros for the exit. [node, token]"""
        return control_flow_graph(program).node_tokens

    def run(self, program: Program) -> ExecutionResult:
        """Execute a complete program; see `interpreter.execute`."""
        g = self.grammar
        return execute(program, g.modulus, g.condition_modulus, wrap=g.wrap, variable=g.target_variable)


ARITHMETIC: Final[Language[Program]] = Arithmetic()
"""The language of the paper."""
