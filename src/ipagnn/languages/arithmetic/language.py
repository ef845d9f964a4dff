"""The arithmetic language as the object that `languages.base` describes."""

from dataclasses import dataclass
from typing import ClassVar, Final

from ipagnn.languages.arithmetic.cfg import ControlFlowGraph, control_flow_graph
from ipagnn.languages.arithmetic.grammar import PAPER, Grammar
from ipagnn.languages.arithmetic.interpreter import Execution, execute
from ipagnn.languages.arithmetic.program import Program, TokenArray
from ipagnn.languages.arithmetic.text import format_program, parse
from ipagnn.languages.arithmetic.vocabulary import VOCABULARY_SIZE, VOCABULARY_VERSION
from ipagnn.languages.base import Language


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The language of the paper's programs, with the moduli of a grammar.

    Attributes:
        grammar: Decides what `%` may be followed by, and what a program's result is taken modulo.
    """

    name: ClassVar[str] = "arithmetic"
    version: ClassVar[int] = VOCABULARY_VERSION
    vocabulary: ClassVar[int] = VOCABULARY_SIZE

    grammar: Grammar = PAPER

    def parse(self, source: str) -> Program:
        """Read a program; see `text.parse`."""
        return parse(source, self.grammar.condition_modulus)

    def format(self, program: Program) -> str:
        """Write a program in the paper's form; see `text.format_program`."""
        return format_program(program, self.grammar.condition_modulus)

    def graph(self, program: Program) -> ControlFlowGraph:
        """The control flow graph; see `cfg.control_flow_graph`."""
        return control_flow_graph(program)

    def tokens(self, program: Program) -> TokenArray:
        """Token ids of the statement at each node; zeros for the exit. [node, 4]"""
        return control_flow_graph(program).node_tokens

    def run(self, program: Program) -> Execution:
        """Execute a complete program; see `interpreter.execute`."""
        return execute(program, self.grammar.modulus, self.grammar.condition_modulus)


ARITHMETIC: Final[Language[Program]] = Arithmetic()
"""The language of the paper."""
