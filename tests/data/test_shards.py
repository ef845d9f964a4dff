import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ipagnn.data import DataSet, DataSetError, collate, generate, read_shards
from ipagnn.data.manifest import MANIFEST, OLD_MANIFEST
from ipagnn.data.shards import SCHEMA, decode_shard, encode_shard
from ipagnn.languages.arithmetic import Grammar, Lengths, ProgramTable, Sampler, format_program, parse, steps


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data")
    generate(directory, "partial", "train", 500, 3, shard_size=120, with_source=True)
    return directory


@pytest.fixture(scope="module")
def data(directory: Path) -> DataSet:
    return read_shards(directory)


def same(a: ProgramTable, b: ProgramTable) -> bool:
    return all(np.array_equal(getattr(a, f), getattr(b, f)) for f in ("line_offsets", "line_tokens", "target"))


def test_a_table_comes_back_as_it_was(mixed: ProgramTable) -> None:
    decoded = decode_shard(encode_shard(mixed), "x")
    assert same(decoded, mixed)
    assert [getattr(decoded, f).dtype for f in ("line_offsets", "line_tokens", "target")] == [
        np.int64,
        np.int16,
        np.int64,
    ]
    assert same(decode_shard(encode_shard(mixed.slice(50, 60)), "x"), mixed.slice(50, 60))


def test_large_moduli_fit() -> None:
    grammar = Grammar(modulus=100_000, loop_counts=(9, 9))
    table = Sampler("full", Lengths.exact(15), grammar).table(0, 300)
    assert table.target.max() > 2**15
    assert same(decode_shard(encode_shard(table), "x"), table)


def test_targets_of_64_bits(tmp_path: Path) -> None:
    manifest = generate(tmp_path, "full", "train", 300, 3, shard_size=120, grammar=Grammar(modulus=10**18))
    assert manifest.to_dict()["format_version"] == 2
    assert generate(tmp_path, "full", "train", 300, 3, shard_size=120, grammar=Grammar(modulus=10**18)) == manifest
    wide, narrow = read_shards(tmp_path).table(), Sampler(seed=3, withheld=False).table(0, 300)
    assert same(wide, ProgramTable(narrow.line_offsets, narrow.line_tokens, wide.target))
    assert wide.target.max() > 2**31
    assert np.array_equal(wide.target % 1000, narrow.target)


def test_reading_by_parts(data: DataSet) -> None:
    whole = data.table()
    assert len(data) == len(whole) == 500
    assert same(ProgramTable.concatenate(list(data.shards())), whole)
    for start, stop in ((0, 1), (119, 121), (100, 400), (480, 500), (7, 7), (0, 500)):
        assert same(data.table(start, stop), whole.slice(start, stop))
    with pytest.raises(ValueError, match="Programs 400:501 were asked of a data set of 500"):
        data.table(400, 501)


def test_what_was_read_makes_batches(data: DataSet) -> None:
    for shard in data.shards():
        assert len(collate(shard)) == len(shard)


def test_pandas_reads_it(directory: Path, data: DataSet) -> None:
    check_rows(pd.read_parquet(directory), data)


def test_duckdb_reads_it(directory: Path, data: DataSet) -> None:
    with duckdb.connect() as connection:
        check_rows(connection.sql(f"from '{directory}/*.parquet'").df(), data)
        found = connection.sql(f"select count(*), sum(len(tokens)) from '{directory}/*.parquet'").fetchall()
    assert found == [(500, 4 * len(data.table().line_tokens))]


def test_data_sets_of_the_first_version_are_read(directory: Path, data: DataSet, tmp_path: Path) -> None:
    old = tmp_path / "old"
    shutil.copytree(directory, old)
    (old / MANIFEST).rename(old / OLD_MANIFEST)
    assert read_shards(old).fingerprint == data.fingerprint
    assert generate(old, "partial", "train", 500, 3, shard_size=120, with_source=True) == data.manifest
    assert not (old / OLD_MANIFEST).exists()
    check_rows(pd.read_parquet(old), data)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of the library itself
def test_hugging_face_reads_it(directory: Path, data: DataSet, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    loaded = datasets.load_dataset(str(directory), cache_dir=str(tmp_path))
    assert list(loaded) == ["train"]
    check_rows(loaded["train"].to_pandas(), data)


def check_rows(frame: Any, data: DataSet) -> None:
    table = data.table()
    assert list(frame.columns) == [*SCHEMA.names, "source"]
    assert frame["length"].tolist() == table.lengths.tolist()
    assert frame["target"].tolist() == table.target.tolist()
    assert frame["steps"].tolist() == [steps(program) for program in table]
    assert frame["source"].tolist() == [format_program(program) for program in table]
    for tokens, source in zip(frame["tokens"], frame["source"], strict=True):
        assert np.array_equal(np.reshape(tokens, (-1, 4)), parse(source).line_tokens)


def test_source_is_written_in_the_language_of_the_grammar() -> None:
    table = Sampler("full", Lengths.exact(12), Grammar(condition_modulus=4), seed=1).table(0, 100)
    arrow = pq.read_table(pa.BufferReader(encode_shard(table, 4)))
    assert arrow.column("source").to_pylist() == [format_program(program, 4) for program in table]


def test_fingerprint_tells_data_sets_apart(data: DataSet, tmp_path: Path) -> None:
    generate(tmp_path / "same", "partial", "train", 500, 3, shard_size=120, with_source=True, threads=1)
    generate(tmp_path / "other", "partial", "train", 500, 4, shard_size=120, with_source=True)
    assert read_shards(tmp_path / "same").fingerprint == data.fingerprint
    assert read_shards(tmp_path / "other").fingerprint != data.fingerprint
    assert len(data.fingerprint) == 64


@pytest.fixture
def copy(directory: Path, tmp_path: Path) -> Path:
    for path in directory.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_a_damaged_shard_is_named(copy: Path) -> None:
    shard = copy / "train-00002-of-00005.parquet"
    content = bytearray(shard.read_bytes())
    content[100] ^= 1
    shard.write_bytes(content)
    data = read_shards(copy)
    data.table(0, 240)  # other shards can be read
    for read in (lambda: data.table(240, 241), data.verify):
        with pytest.raises(DataSetError, match=r"train-00002-of-00005.parquet is damaged or foreign"):
            read()


def test_a_truncated_or_missing_shard_is_named_at_once(copy: Path) -> None:
    shard = copy / "train-00002-of-00005.parquet"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(DataSetError, match=r"train-00002-of-00005.parquet is damaged"):
        read_shards(copy)
    shard.unlink()
    with pytest.raises(DataSetError, match=r"train-00002-of-00005.parquet is missing"):
        read_shards(copy)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 3}, "format_version is 3, and this version of ipagnn reads 1 and 2"),
        ({"format_version": 2}, "format_version is 2, and data sets of its grammar have 1"),
        ({"vocabulary_version": 0}, "vocabulary_version is 0"),
        ({"shards": [{"name": "../x", "count": 500, "bytes": 1, "sha256": ""}]}, "names"),
        ({"shards": []}, "counts 500 programs, but its shards do not"),
        ({"shard_size": 0}, "not a manifest"),
        ({"grammar": {"moduluss": 3}}, "Did you mean 'modulus'"),
        ({"lengths": None}, "not a manifest"),
    ],
)
def test_a_manifest_that_is_none_is_refused(copy: Path, change: dict[str, Any], message: str) -> None:
    manifest = json.loads((copy / MANIFEST).read_text())
    (copy / MANIFEST).write_text(json.dumps({**manifest, **change, "checksum": ""}))
    with pytest.raises(DataSetError, match=message):
        read_shards(copy)


def test_a_manifest_has_a_checksum_of_its_own(copy: Path) -> None:
    manifest = json.loads((copy / MANIFEST).read_text())
    assert manifest["checksum"] == read_shards(copy).fingerprint
    (copy / MANIFEST).write_text(json.dumps(manifest | {"duplicates": manifest["duplicates"] + 1}))
    with pytest.raises(DataSetError, match="its checksum is not that of its content"):
        read_shards(copy)
    manifest.pop("checksum")  # as version 0.1.0 wrote them
    (copy / MANIFEST).write_text(json.dumps(manifest))
    read_shards(copy).verify()


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"format_version": 1, "vocabulary_version": 1}', "\xff"])
def test_any_other_file_is_no_manifest(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_bytes(text.encode("latin-1"))
    with pytest.raises(DataSetError, match="is not a manifest"):
        read_shards(tmp_path)


def test_no_data_set_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataSetError, match="holds no finished data set"):
        read_shards(tmp_path / "nowhere")


def test_training_programs_take_less_than_60_bytes() -> None:
    table = Sampler(seed=2).table(0, 20_000)
    assert len(encode_shard(table)) / len(table) < 25  # a limit of 300 MB for 5 million is 60


def test_languages_past_the_papers(tmp_path: Path) -> None:
    grammar = Grammar(
        modulus=10**12,
        variables=4,
        digit_variables=1,
        initial_values=(0, 10**12 - 1),
        factors=(0, 9),
        operand_variable=1,
        condition_variable=1,
        wrap=True,
    )
    lengths = Lengths.uniform((3, 12))
    manifest = generate(
        tmp_path, "partial", "train", 300, 3, lengths, shard_size=120, grammar=grammar, with_source=True
    )
    assert manifest.to_dict()["format_version"] == 2
    data = read_shards(tmp_path)
    assert data.manifest.recipe.grammar == grammar
    table = Sampler("partial", lengths, grammar, 3, withheld=False).table(0, 300)
    assert table.line_tokens.shape[1] == 7
    assert same(data.table(), table)
    sources = pd.concat([pd.read_parquet(tmp_path / shard.name) for shard in data.manifest.shards])["source"]
    assert sources.tolist() == [format_program(program) for program in table]
    assert [parse(source, grammar=grammar) for source in sources] == list(table)
