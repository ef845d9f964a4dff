"""The arithmetic language satisfies what `languages.base` asks of one, and says so for other grammars too."""

import numpy as np
import pytest

from ipagnn.languages.arithmetic import ARITHMETIC, Arithmetic, Grammar, Lengths, Sampler
from ipagnn.languages.base import Language

SOURCE = "v0 = 7\nif v0 % 10 > 4:\n  v0 += 1\nelse:\n  pass\nv0 *= 2"


def check_language(language: Language[object], source: str) -> None:
    """What holds for a program of any language."""
    assert isinstance(language, Language)
    assert language.name.isidentifier()
    assert language.version >= 1
    program = language.parse(source)
    assert language.format(program) == source
    graph, tokens = language.graph(program), language.tokens(program)
    nodes = len(graph.successors)
    assert graph.successors.shape == (nodes, 2)
    assert graph.successors.min() >= 0
    assert graph.successors.max() < nodes
    assert graph.successors[-1].tolist() == [nodes - 1, nodes - 1]
    assert len(graph.nodes) == nodes - 1
    assert len(tokens) == nodes
    assert tokens.min() >= 0
    assert tokens.max() < language.vocabulary
    assert not tokens[-1].any()
    assert language.run(program).trace_length > 0
    with pytest.raises(ValueError, match="line 1, column 1"):
        language.parse("?" + source)


def test_the_arithmetic_language_is_one() -> None:
    check_language(ARITHMETIC, SOURCE)  # type: ignore[arg-type]
    assert ARITHMETIC.graph(ARITHMETIC.parse(SOURCE)).successors.tolist() == [[1, 1], [2, 3], [3, 3], [4, 4], [4, 4]]
    assert ARITHMETIC.run(ARITHMETIC.parse(SOURCE)).value == 16


def test_a_grammar_decides_remainders() -> None:
    language = Arithmetic(Grammar(modulus=12, condition_modulus=4))
    source = SOURCE.replace("10", "4").replace("> 4", "> 2")
    check_language(language, source)
    assert language.run(language.parse(source)).value == 16 % 12
    with pytest.raises(ValueError, match="`4` after `%`"):
        language.parse(SOURCE)
    table = Sampler(lengths=Lengths.exact(20), grammar=language.grammar, seed=3).table(0, 50)
    assert [language.run(program).value for program in table] == table.target.tolist()
    for program in table:
        assert np.array_equal(language.parse(language.format(program)).line_tokens, program.line_tokens)
