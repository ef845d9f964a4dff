"""What a program of a language is to be answered with: its value, or the label of one that runs too long."""

import numpy as np

from ipagnn.languages.arithmetic._compiled.blocks import GIVEN_UP, block_starts
from ipagnn.languages.arithmetic.cfg import control_flow_graph
from ipagnn.languages.arithmetic.grammar import PAPER, Grammar
from ipagnn.languages.arithmetic.interpreter import MAX_STEPS, trace, value
from ipagnn.languages.arithmetic.program import Program


def target(program: Program, grammar: Grammar = PAPER, max_steps: int = MAX_STEPS) -> int:
    """The target of any complete program, as the sampler gives it to those it draws.

    Args:
        program: The program.
        grammar: The language.
        max_steps: As in `execute`.

    Raises:
        ExecutionError: The program has a masked line or does not end.
    """
    result = value(program, grammar.modulus, grammar.condition_modulus, max_steps)
    if not grammar.block_limit:
        return result
    graph = control_flow_graph(program)
    lines = np.append(graph.nodes, np.int32(len(program)))
    starts = frozenset(graph.nodes[block_starts(program.line_tokens, lines, graph.true, graph.false)].tolist())
    blocks = 0
    for step in trace(program, None, grammar.modulus, grammar.condition_modulus):
        blocks += step.line in starts
        if blocks > grammar.block_limit:
            return GIVEN_UP % grammar.modulus
    return result
