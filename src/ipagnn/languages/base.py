"""What a language is: all that data and models need to know about the programs of one.

A language lives in a package of its own beside `arithmetic/` and offers one object that satisfies `Language`.
"""

from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

P = TypeVar("P")
"""The type of a language's programs."""


class Graph(Protocol):
    """The control flow graph of one program. Control starts at node 0; the last node is the exit, its own successor."""

    @property
    def nodes(self) -> npt.NDArray[np.int32]:
        """The line of each node but the exit, counted from 0. [node - 1]"""

    @property
    def successors(self) -> npt.NDArray[np.int32]:
        """Where control goes from each node: if its condition holds, and if not. Equal without one. [node, 2]"""


class Run(Protocol):
    """What running a program to its end gives."""

    @property
    def value(self) -> int:
        """The program's result, which models predict."""

    @property
    def trace_length(self) -> int:
        """Number of statements executed."""


@runtime_checkable
class Language(Protocol[P]):
    """A language: text to programs and back, their graphs and tokens, and exact execution."""

    @property
    def name(self) -> str:
        """Its name in files and options."""

    @property
    def version(self) -> int:
        """Rises when a token id changes its meaning; stored with every weight file and data set."""

    @property
    def vocabulary(self) -> int:
        """Number of token ids."""

    def parse(self, source: str) -> P:
        """Read a program. A text outside the language is a ValueError that names line, column and what is accepted."""

    def format(self, program: P) -> str:
        """Write a program as text; `parse` reads it back."""

    def graph(self, program: P) -> Graph:
        """The control flow graph."""

    def tokens(self, program: P) -> npt.NDArray[np.int16]:
        """Token ids of the statement at each node; zeros for the exit. [node, token]"""

    def run(self, program: P) -> Run:
        """Execute a program. One without a result is a ValueError that says why."""
