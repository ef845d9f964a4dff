"""Programs that people bring: what is read, and what is said about what cannot be."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ipagnn.data import generate, program_files, recipe
from ipagnn.data.program_files import ProgramFile
from ipagnn.languages.arithmetic import Grammar, Lengths, ProgramTable, format_program

from ..conftest import memory_taken

GOOD = "v0 = 4\nv0 += 3"
MASKED = "v0 = 4\n[MASK]"
ENDLESS = "v0 = 1\nwhile v0 % 10 > 0:\n  pass"


def write_lines(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def read(path: Path, **options: Any) -> tuple[ProgramTable, ProgramFile]:
    file = ProgramFile(path, **options)
    return ProgramTable.concatenate(list(file)), file


def test_json_lines_of_strings_and_objects(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "p.jsonl", [json.dumps(GOOD), "", {"source": GOOD, "target": 7}, {"source": GOOD, "other": 1}]
    )
    table, file = read(path)
    assert [format_program(program) for program in table] == [GOOD] * 3
    assert table.target.tolist() == [7, 7, 7]
    assert (file.task, file.count, file.skipped) == ("full", 3, 0)


def test_partial_programs_bring_their_targets(tmp_path: Path) -> None:
    table, file = read(write_lines(tmp_path / "p.jsonl", [{"source": MASKED, "target": 11}]))
    assert file.task == "partial"
    assert table.target.tolist() == [11]


def test_values_are_those_of_the_models_language(tmp_path: Path) -> None:
    grammar = Grammar(modulus=6, condition_modulus=3)
    table, _ = read(
        write_lines(tmp_path / "p.jsonl", [{"source": "v0 = 4\nif v0 % 3 > 0:\n  v0 += 9"}]), grammar=grammar
    )
    assert table.target.tolist() == [1]


def test_data_sets_with_a_block_limit_are_read_by_a_model_with_it(tmp_path: Path) -> None:
    grammar, lengths = Grammar(block_limit=5), Lengths.exact(12)
    generate(tmp_path / "d", "full", "test", 50, 3, lengths, grammar=grammar, threads=1)
    table, _ = read(tmp_path / "d", grammar=grammar)
    true = recipe("test", "full", 50, 3, lengths).table(0, 50)
    assert 0 < (table.target != true.target).sum() < 50
    assert set(table.target[table.target != true.target].tolist()) == {1}
    with pytest.raises(ValueError, match="the target is 1, but the program's value is"):
        read(tmp_path / "d")


@pytest.mark.parametrize("with_source", [False, True])
@pytest.mark.parametrize("task", ["full", "partial"])
def test_data_sets_as_they_lie(tmp_path: Path, task: Any, with_source: bool) -> None:
    lengths = Lengths.uniform((5, 12))
    generate(tmp_path / "d", task, "test", 30, 3, lengths, with_source=with_source, threads=1)
    expected = recipe("test", task, 30, 3, lengths).table(0, 30)
    file = ProgramFile(tmp_path / "d")
    assert len(file) == 30
    table = ProgramTable.concatenate(list(file))
    assert np.array_equal(table.line_tokens, expected.line_tokens)
    assert np.array_equal(table.target, expected.target)
    shard = next((tmp_path / "d").glob("*.parquet"))
    assert np.array_equal(read(shard)[0].line_tokens, expected.line_tokens)


def test_a_folder_of_python_files_in_the_order_of_their_paths(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "1.py").write_text("v0 = 3\n# any remark\n")
    (tmp_path / "a.py").write_text("v0 = 2\n# 99\n")
    table, _ = read(tmp_path)
    assert table.target.tolist() == [2, 3]


def test_python_files_of_partial_programs_end_with_their_target(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(f"{MASKED}\n# 12\n")
    assert read(tmp_path)[0].target.tolist() == [12]
    (tmp_path / "b.py").write_text(MASKED)
    with pytest.raises(ValueError, match=r"b\.py: the program has a masked line and no target"):
        read(tmp_path)


BAD: list[tuple[Any, str]] = [
    ({"source": "v0 = 1\nv0 /= 2"}, "line 2: in the program, line 2, column 4: found `/=`"),
    ({"source": MASKED, "target": 3}, "line 2: the program is masked, but the programs before it are full."),
    ({"source": GOOD, "target": 8}, "line 2: the target is 8, but the program's value is 7."),
    ({"source": GOOD, "target": 1000}, "line 2: the target is 1000; it must be a whole number from 0 to 999."),
    ({"source": GOOD, "target": True}, "line 2: the target is true; it must be a whole number"),
    ({"source": GOOD, "target": "7"}, 'line 2: the target is "7"; it must be a whole number'),
    ({"source": ENDLESS}, "line 2: in the program, line 2: .* never ends"),
    ({"target": 3}, "line 2: found an object with the keys 'target'; a line is a string"),
    ({"source": 3}, "line 2: found an object with the keys 'source'; a line is a string"),
    ("[1, 2]", "line 2: found no object"),
    ("v0 = 1", "line 2: 'v0 = 1' is not JSON"),
    ("[" * 100_000, "is not JSON"),
    ('"\udcff"'.encode("utf-8", "surrogateescape").decode("latin-1"), "line 2: in the program"),
]


@pytest.mark.parametrize(("line", "sentence"), BAD)
def test_a_bad_line_is_named_or_skipped_and_counted(tmp_path: Path, line: Any, sentence: str) -> None:
    path = write_lines(tmp_path / "p.jsonl", [{"source": GOOD}, line, {"source": GOOD}])
    with pytest.raises(ValueError, match=sentence) as error:
        read(path)
    assert str(path) in str(error.value)
    assert str(error.value).endswith("leave out what is invalid with --skip-invalid.")
    table, file = read(path, skip_invalid=True)
    assert (len(table), file.count, file.skipped) == (2, 2, 1)
    assert file.first_skipped is not None
    assert "line 2" in file.first_skipped


def test_the_task_can_be_given(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "p.jsonl", [{"source": GOOD}, {"source": MASKED, "target": 5}])
    table, file = read(path, task="partial", skip_invalid=True)
    assert table.target.tolist() == [5]
    assert file.skipped == 1
    with pytest.raises(ValueError, match="line 1: the program is complete, but the task is partial"):
        read(path, task="partial")


def test_programs_with_more_steps_than_are_ever_run_are_refused(tmp_path: Path) -> None:
    deep = "v0 = 1\nv1 = 0\n" + "\n".join("  " * d + "while v1 > 0:" for d in range(25)) + "\n" + "  " * 25 + "pass"
    with pytest.raises(ValueError, match=r"line 1: .*steps or more"):
        read(write_lines(tmp_path / "p.jsonl", [{"source": deep}]))


def test_two_gigabytes_are_not_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p.jsonl"
    with path.open("wb") as file:
        file.write(json.dumps(GOOD).encode() + b"\n")
        file.truncate(2**31)  # the rest is one line of zeros, which takes no room on the disk
    reader = iter(ProgramFile(path, skip_invalid=False))
    monkeypatch.setattr(program_files, "WINDOW", 1)
    assert len(next(reader)) == 1
    with pytest.raises(ValueError, match="line 2: the line is longer than 16,777,216 bytes"):
        next(reader)


def test_windows_are_bounded_and_nothing_is_lost_between_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_files, "WINDOW", 3)
    path = write_lines(tmp_path / "p.jsonl", [{"source": f"v0 = {n}"} for n in range(10)])
    tables = list(ProgramFile(path))
    assert [len(table) for table in tables] == [3, 3, 3, 1]
    assert ProgramTable.concatenate(tables).target.tolist() == list(range(10))


def test_a_line_that_is_too_long_is_skipped_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_files, "LINE_LIMIT", 50)
    path = write_lines(tmp_path / "p.jsonl", [json.dumps("#" * 500), json.dumps(GOOD), json.dumps("v0 = 1")])
    table, file = read(path, skip_invalid=True)
    assert table.target.tolist() == [7, 1]
    assert file.skipped == 1


def test_bad_parquet(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"x\.parquet is not a Parquet file"):
        read(tmp_path / "x.parquet")
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "y.parquet")
    with pytest.raises(ValueError, match="has the columns text; it needs `source`"):
        read(tmp_path / "y.parquet")
    pq.write_table(pa.table({"source": [GOOD, None]}), tmp_path / "z.parquet")
    with pytest.raises(ValueError, match="row 1: `source` is missing; it must be text"):
        read(tmp_path / "z.parquet")
    tokens = [[1, 1004, 1036, 5], [1, 1004, 1036], [1, -5, 1036, 5], [1, 5, 5, 5], []]
    pq.write_table(pa.table({"tokens": tokens, "target": [4, 4, 4, 4, 4]}), tmp_path / "t.parquet")
    table, file = read(tmp_path / "t.parquet", skip_invalid=True)
    assert (len(table), file.skipped) == (1, 4)
    with pytest.raises(ValueError, match="row 1: its `tokens` spell no program"):
        read(tmp_path / "t.parquet")


READERS = (
    "from pathlib import Path; from ipagnn.data.program_files import ProgramFile; "
    "from ipagnn.data.shards import decode_shard"
)


@pytest.mark.parametrize(
    "kind", [pytest.param("text", marks=pytest.mark.slow), pytest.param("tokens", marks=pytest.mark.slow), "plain"]
)
def test_small_files_cannot_take_much_memory(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "bomb.parquet"
    columns: dict[str, Callable[[], dict[str, Any]]] = {
        "text": lambda: {"source": pa.array(["#" * 2_600_000] * 1024)},
        "tokens": lambda: {"tokens": pa.array([np.ones(2**26, np.int16)] * 4, pa.list_(pa.int16()))},
        "plain": lambda: {"source": pa.array(["#" * 2_600_000] * 200)},
    }
    pq.write_table(pa.table(columns[kind]()), path, compression="zstd", use_dictionary=kind != "plain")
    assert path.stat().st_size < 300_000
    for read in (
        "list(ProgramFile(Path(sys.argv[1]), skip_invalid=True))",
        "decode_shard(Path(sys.argv[1]).read_bytes(), 'x')",
    ):
        script = f"try:\n    {read}\nexcept ValueError as error:\n    assert not str(error).startswith('none')"
        assert memory_taken(READERS, script, path) < 400 * 2**20


def test_pipes_and_unreadable_files_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("v0 = 1")
    os.mkfifo(tmp_path / "b.py")
    (tmp_path / "c.py").symlink_to(tmp_path / "nowhere")
    table, file = read(tmp_path, skip_invalid=True)
    assert (len(table), file.skipped) == (1, 2)
    with pytest.raises(ValueError, match=r"b\.py: it is not a file"):
        read(tmp_path)
    with pytest.raises(ValueError, match="neither a file nor a folder"):
        ProgramFile(tmp_path / "b.py")


def test_nothing_to_evaluate(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="There is no file or folder"):
        ProgramFile(tmp_path / "missing")
    with pytest.raises(ValueError, match="holds neither"):
        read(tmp_path)
    empty = write_lines(tmp_path / "p.jsonl", [])
    with pytest.raises(ValueError, match=r"holds no program that can be evaluated\."):
        read(empty)
    with pytest.raises(ValueError, match=r": 1 left out as invalid, the first is .*line 1"):
        read(write_lines(tmp_path / "q.jsonl", ["nonsense"]), skip_invalid=True)
