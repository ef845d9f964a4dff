import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ipagnn.languages.arithmetic import Lengths, Sampler, format_program, parse, value

ENDLESS = b"v0 = 1\nv1 = 1\nwhile v1 > 0:\n  v0 += 1\n"


def test_sample_prints_what_the_sampler_draws(run: Any) -> None:
    code, out, err = run("sample", "--length", 7, "--count", 3, "--seed", 5)
    table = Sampler(lengths=Lengths.exact(7), seed=5).table(0, 3)
    expected = [f"{format_program(p)}\n# {t}\n" for p, t in zip(table, table.target.tolist(), strict=True)]
    assert (code, out, err) == (0, "\n".join(expected), "")


def test_sample_json_has_source_and_target(run: Any) -> None:
    code, out, _ = run("sample", "--length", 12, "--count", 20, "--seed", 1, "--json")
    objects = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert len(objects) == 20
    for each in objects:
        assert list(each) == ["source", "target"]
        program = parse(each["source"])
        assert len(program) == 12
        assert value(program) == each["target"]


def test_sample_partial_masks_one_line(run: Any) -> None:
    full, partial = (
        [json.loads(x) for x in run("sample", "--count", 20, "--json", "--task", task).out.splitlines()]
        for task in ("full", "partial")
    )
    assert all(x["source"].count("[MASK]") == 1 for x in partial)
    assert not any("[MASK]" in x["source"] for x in full)


def test_sample_train_lengths_are_mostly_the_longest(run: Any) -> None:
    out = run("sample", "--length", 10, "--train-lengths", "--count", 400, "--json").out
    lengths = [len(json.loads(line)["source"].splitlines()) for line in out.splitlines()]
    assert 0.85 < lengths.count(10) / 400 < 0.95
    assert min(lengths) < 9


def test_sample_goes_on_past_one_block(run: Any) -> None:
    out = run("sample", "--length", 2, "--count", 4100, "--json").out.splitlines()
    last, target = Sampler(lengths=Lengths.exact(2)).program(4099)
    assert len(out) == 4100
    assert json.loads(out[-1]) == {"source": format_program(last), "target": target}


def test_sample_of_none_prints_nothing(run: Any) -> None:
    assert run("sample", "--count", 0) == (0, "", "")


def test_inspect_agrees_with_the_authors_records(
    run: Any, reference_records: list[dict[str, Any]], tmp_path: Path
) -> None:
    files = []
    for i, record in enumerate(reference_records):
        files.append(tmp_path / f"{i}.py")
        files[-1].write_text(record["source"])
    code, out, _ = run("inspect", "--json", *files)
    seen = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert len(seen) == len(reference_records)
    for ours, record in zip(seen, reference_records, strict=True):
        assert list(ours) == [
            *("lines", "nodes", "true", "false", "exit", "steps", "node_tokens", "line_tokens", "value"),
            "trace_length",
        ]
        assert "\n".join(ours["lines"]) == record["source"]
        theirs = {"nodes": "node_lines", "true": "true_branch", "false": "false_branch", "exit": "exit_index"}
        theirs |= {"value": "target"} | {name: name for name in ("steps", "node_tokens", "line_tokens")}
        assert {name: ours[name] for name in theirs} == {name: record[key] for name, key in theirs.items()}


def test_inspect_counts_executed_statements(run: Any) -> None:
    source = b"v0 = 1\nv1 = 2\nwhile v1 > 0:\n  v1 -= 1\n  pass\n  v0 += 3"
    seen = json.loads(run("inspect", "-", "--json", stdin=source).out)
    assert (seen["value"], seen["trace_length"]) == (7, 2 + 3 + 2 * 2)


@pytest.mark.parametrize("source", [b"v0 = 1\n[MASK]", b"v0 = 1\n_", b"v0 = 1\n_ = 0", ENDLESS])
def test_inspect_gives_null_where_there_is_no_value(run: Any, source: bytes) -> None:
    code, out, _ = run("inspect", "-", "--json", stdin=source)
    seen = json.loads(out)
    assert code == 0
    assert seen["value"] is None
    assert seen["trace_length"] is None


def test_inspect_writes_lines_in_the_papers_form(run: Any) -> None:
    source = b"# a comment\r\nv0=5\r\n\r\nif v0%10>3 :\r\n\t_ = 0 # hidden\r\n"
    seen = json.loads(run("inspect", "-", "--json", stdin=source).out)
    assert seen["lines"] == ["v0 = 5", "if v0 % 10 > 3:", "  [MASK]"]


def test_inspect_table_shows_lines_nodes_and_result(run: Any) -> None:
    code, out, err = run("inspect", "-", stdin=b"v0 = 1\nif v0 % 10 > 3:\n  v0 += 1\nelse:\n  [MASK]\n")
    assert (code, err) == (0, "")
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")]
    assert rows == [
        ["1", "v0 = 1", "0", "1", "", "1 1004 1036 2"],
        ["2", "if v0 % 10 > 3:", "1", "2", "3", "1 1025 1036 4"],
        ["3", "v0 += 1", "2", "4", "", "2 1001 1036 2"],
        ["4", "else:", "", "", "", "1 1015 1015 1"],
        ["5", "[MASK]", "3", "4", "", "2 1047 1047 1"],
        ["", "exit", "4", "4", "", ""],
    ]
    assert "T(x) = 6" in out
    assert "no value: line 5" in out


def test_inspect_table_tells_an_endless_loop(run: Any) -> None:
    code, out, _ = run("inspect", "-", stdin=ENDLESS)
    assert code == 0
    assert "`while v1 > 0:` never ends" in out


def test_inspect_dot_draws_every_edge(run: Any) -> None:
    code, out, _ = run("inspect", "-", "--dot", stdin=b"v0 = 1\nif v0 % 10 > 3:\n  v0 += 1\n")
    assert code == 0
    assert out.startswith("digraph")
    for edge in ("n0 -> n1;", 'n1 -> n2 [label="true"];', 'n1 -> n3 [label="false"];', "n2 -> n3;"):
        assert edge in out


def test_inspect_names_the_file_and_the_place_of_an_error(
    run: Any, tmp_path: Path, is_sentence: Callable[[str], bool]
) -> None:
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text("v0 = 1\n")
    bad.write_text("v0 = 1\nfor i in range(3):\n  v0 += 1\n")
    code, out, err = run("inspect", "--json", good, bad)
    assert code == 2
    assert len(out.splitlines()) == 1
    assert is_sentence(err)
    assert f"{bad}, line 2, column 1" in err


def test_inspect_survives_long_deep_and_huge_input(run: Any, is_sentence: Callable[[str], bool]) -> None:
    long = json.loads(run("inspect", "-", "--json", stdin=b"v0 = 1\n" * 10_000).out)
    assert len(long["lines"]) == long["exit"] == 10_000
    deep = b"v0 = 1\n" + b"".join(b" " * i + b"if v0 % 10 > 0:\n" for i in range(200)) + b" " * 200 + b"v0 += 1\n"
    assert json.loads(run("inspect", "-", "--json", stdin=deep).out)["value"] == 2
    code, out, err = run("inspect", "-", stdin=b"#" * 6_000_000)
    assert (code, out) == (2, "")
    assert is_sentence(err)
