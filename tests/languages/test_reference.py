"""The authors' published records, field by field."""

from typing import Any

from ipagnn.languages.arithmetic import control_flow_graph, execute, format_program, parse, steps, trace


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
