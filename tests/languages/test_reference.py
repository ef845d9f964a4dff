"""The authors' published records: graphs, tokens, T(x) and targets, field by field and as hashes.

The records lie beside the repository where they are there at all. `record_hashes.json` keeps a SHA-256 for each, of
what our code makes of its text; that code agreed with all fields of all records. In a clone the same code is held to
the hash of the graphs and tokens of programs that the sampler draws, taken at the same time, and to the cases by hand
in `test_cfg.py`.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from ipagnn.languages.arithmetic import (
    Lengths,
    Program,
    ProgramTable,
    Sampler,
    control_flow_graph,
    execute,
    format_program,
    parse,
    steps,
    trace,
    value,
)

HASHES = Path(__file__).parent / "record_hashes.json"


def digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def program_digest(program: Program) -> str:
    """Of tokens, graph, T(x) and target, as the records have them."""
    graph = control_flow_graph(program)
    return digest(
        program.line_tokens.tolist(),
        graph.nodes.tolist(),
        graph.true.tolist(),
        graph.false.tolist(),
        graph.node_tokens.tolist(),
        graph.exit,
        steps(program),
        value(program),
    )


def record_digest(record: dict[str, Any]) -> str:
    fields = (
        "line_tokens",
        "node_lines",
        "true_branch",
        "false_branch",
        "node_tokens",
        "exit_index",
        "steps",
        "target",
    )
    return digest(*(record[field] for field in fields))


def sampled() -> ProgramTable:
    return Sampler("full", Lengths.uniform((5, 10, 30, 60, 100)), seed=2020).table(0, 300)


def test_all_records_agree(reference_records: list[dict[str, Any]]) -> None:
    assert len(reference_records) == 50
    for record in reference_records:
        program = parse(record["source"])
        graph = control_flow_graph(program)
        assert format_program(program) == record["source"]
        assert program.line_tokens.tolist() == record["line_tokens"]
        assert graph.nodes.tolist() == record["node_lines"]
        assert graph.true.tolist() == record["true_branch"]
        assert graph.false.tolist() == record["false_branch"]
        assert graph.node_tokens.tolist() == record["node_tokens"]
        assert graph.exit == record["exit_index"]
        assert steps(program) == record["steps"]
        execution = execute(program)
        assert execution.value == record["target"]
        walked = list(trace(program))
        assert len(walked) == execution.trace_length
        assert walked[-1].v0 == record["target"]


def test_records_have_the_hashes_that_the_repository_keeps(reference_records: list[dict[str, Any]]) -> None:
    kept = json.loads(HASHES.read_text())["records"]
    assert [record_digest(record) for record in reference_records] == kept
    assert [program_digest(parse(record["source"])) for record in reference_records] == kept


def test_sampled_programs_have_the_hash_they_had_when_all_records_agreed() -> None:
    assert digest(*map(program_digest, sampled())) == json.loads(HASHES.read_text())["sampled"]
