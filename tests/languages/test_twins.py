"""Every compiled function of the language gives what its plain twin gives."""

import random
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipagnn.languages.arithmetic import (
    Grammar,
    Lengths,
    Program,
    ProgramTable,
    Sampler,
    StepLimitError,
    control_flow_graph,
    execute,
    parse,
    reference,
    trace,
)
from ipagnn.languages.arithmetic._compiled.blocks import block_starts, exceeds_blocks
from ipagnn.languages.arithmetic._compiled.graph import static_steps
from ipagnn.languages.arithmetic._compiled.hash import program_hash
from ipagnn.languages.arithmetic._compiled.random import below, mix, seed_stream
from ipagnn.languages.arithmetic._compiled.statements import apply_modulo, multiply_modulo
from ipagnn.languages.arithmetic._compiled.trace import loop_depths, trace_nodes
from ipagnn.languages.arithmetic.reference import RandomStream, Statement, syntax_tree
from ipagnn.languages.arithmetic.statements import apply
from ipagnn.languages.arithmetic.targets import values_of
from ipagnn.languages.arithmetic.vocabulary import ADD, ASSIGN, MULTIPLY, SUBTRACT


def assert_twins_agree(program: Program) -> None:
    graph = control_flow_graph(program)
    assert reference.control_flow(program) == (graph.nodes.tolist(), graph.true.tolist(), graph.false.tolist())
    tokens = program.line_tokens
    assert reference.static_steps(program) == static_steps(tokens, np.empty(len(program) + 1, np.int64))
    assert reference.loop_depths(program) == loop_depths(graph.node_tokens).tolist()
    assert reference.program_hash(program) == int(program_hash(tokens))
    lines = np.append(graph.nodes, np.int32(len(program)))
    starts = block_starts(tokens, lines, graph.true, graph.false)
    assert reference.block_starts(program) == np.flatnonzero(starts).tolist()


@pytest.mark.parametrize("length", [2, 5, 10, 30, 100])
def test_on_sampled_programs(length: int) -> None:
    for task in ("full", "partial"):
        for program in Sampler(task, Lengths.exact(length), seed=length).table(0, 3_000 // length):  # type: ignore[arg-type]
            assert_twins_agree(program)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_on_any_program(sources: st.SearchStrategy[str], data: st.DataObject) -> None:
    assert_twins_agree(parse(data.draw(sources)))


def test_traces_are_those_of_the_interpreter() -> None:
    for program in Sampler("full", Lengths.uniform((10, 40)), seed=9).table(0, 200):
        graph = control_flow_graph(program)
        nodes, problem = trace_nodes(graph.node_tokens, graph.true, graph.false, 0, 1000, 10, 500)
        plain = [step.line for step in trace(program, limit=500)]
        assert (graph.nodes[nodes].tolist(), problem) == (plain, 0)


def test_a_program_exceeds_the_blocks_that_its_trace_enters() -> None:
    for program in Sampler("full", Lengths.exact(20), seed=10).table(0, 100):
        graph = control_flow_graph(program)
        lines = np.append(graph.nodes, np.int32(len(program)))
        starts = np.isin(np.arange(graph.exit), reference.block_starts(program))
        entered = sum(step.line in graph.nodes[starts] for step in trace(program, limit=5_000))
        arguments = (program.line_tokens, lines, graph.true, graph.false, starts, 1000, 10)
        if entered < 1_000:
            assert exceeds_blocks(*arguments, entered - 1)
            assert not exceeds_blocks(*arguments, entered)


@pytest.mark.parametrize(("seed", "index"), [(0, 0), (1, 5), (2**64 - 1, 2**63 - 1), (12345, 2**40)])
def test_random_numbers(seed: int, index: int) -> None:
    state = np.empty(2, np.uint64)
    seed_stream(state, np.uint64(seed), np.uint64(index))
    plain = RandomStream(seed, index)
    bounds = [1, 2, 3, 10, 999, 2**20 + 7, 2**31 - 1, 3 * 2**30] * 40  # one draw in four at the last bound is repeated
    assert [int(below(state, bound)) for bound in bounds] == [plain.below(bound) for bound in bounds]
    assert state.tolist() == [plain.a, plain.b]
    assert int(mix(np.uint64(seed))) == reference.mix(seed)


def test_a_syntax_tree_by_hand() -> None:
    source = "v0 = 1\nif v0 > 2:\n  pass\nelse:\n  v0 += 1\n  if v0 > 3:\n    v0 -= 1\nv0 *= 2"

    def shape(block: list[Statement]) -> list[object]:
        return [(s.index, s.node, shape(s.body), shape(s.orelse)) for s in block]

    nested = (5, 3, [(6, 4, [], [])], [])
    assert shape(syntax_tree(parse(source))) == [
        (0, 0, [], []),
        (1, 1, [(2, None, [], [])], [(4, 2, [], []), nested]),
        (7, 5, [], []),
    ]


@pytest.mark.parametrize("modulus", [1, 2, 10**6, 10**12, 10**18, 10**18 - 6, 2**59])
def test_products_modulo_large_numbers(modulus: int) -> None:
    draw = random.Random(1)
    edges = [0, 1, modulus - 1, modulus // 2, 2**30 - 1, 2**30, 2**30 + 1]
    pairs = [(a % modulus, b % modulus) for a in edges for b in edges]
    pairs += [(draw.randrange(modulus), draw.randrange(modulus)) for _ in range(3_000)]
    pairs += [(draw.randrange(modulus), draw.randrange(1_000) % modulus) for _ in range(3_000)]
    for a, b in pairs:
        assert multiply_modulo(a, b, modulus) == a * b % modulus
        for operation in (ADD, SUBTRACT, MULTIPLY, ASSIGN):
            assert apply_modulo(operation, a, 999, modulus) == apply(operation, a, 999) % modulus


@pytest.mark.parametrize("modulus", [1000, 10**6, 10**12, 10**18, 30, 10 * (10**16 + 61)])
def test_values_under_any_modulus(modulus: int) -> None:
    compared = 0
    for length in (5, 10, 30):
        table = Sampler(lengths=Lengths.exact(length), seed=12).table(0, 200)
        found = values_of(table, modulus, threads=2)
        drawn = Sampler("full", Lengths.exact(length), Grammar(modulus=modulus), 12).table(0, 200)
        assert np.array_equal(found, drawn.target)
        for program, value in zip(table, found.tolist(), strict=True):
            with suppress(StepLimitError):
                assert execute(program, modulus, max_steps=20_000).value == value
                compared += 1
    assert compared > 550


def test_nine_nested_loops_modulo_10_to_the_18() -> None:
    source = "v0 = 1"
    for depth in range(9):
        indent = "  " * depth
        source += f"\n{indent}v{depth + 1} = 9\n{indent}while v{depth + 1} > 0:\n{indent}  v{depth + 1} -= 1"
    for body, expected in (("+= 7", 1 + 7 * 9**9), ("-= 7", 1 - 7 * 9**9), ("*= 7", pow(7, 9**9, 10**18))):
        table = ProgramTable.from_programs([parse(f"{source}\n{'  ' * 9}v0 {body}")])
        assert values_of(table, 10**18).tolist() == [expected % 10**18]
