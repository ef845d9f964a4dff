import itertools
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from ipagnn.data import DataSetError, Stream, generate, read_shards
from ipagnn.data._compiled.collate import build_graphs
from ipagnn.data.collate import StepBudget
from ipagnn.languages.arithmetic import Lengths, ProgramTable, Sampler
from ipagnn.models import ModelConfig, build_model, model_config
from ipagnn.training import TrainConfig, preset
from ipagnn.training.sources import Epochs, Windows, data_fingerprint, make_source, open_data, steps_of

SAMPLER = Sampler(seed=3)


def programs(table: ProgramTable) -> list[tuple[bytes, int]]:
    return [(p.line_tokens.tobytes(), int(t)) for p, t in zip(table, table.target, strict=True)]


windows = partial(Windows, steps=partial(steps_of, model_config("ipa-gnn")))


def steps(table: ProgramTable) -> list[int]:
    counted: list[int] = build_graphs(table.line_offsets, table.line_tokens, False)[-1].tolist()
    return counted


def test_windows_hold_the_same_programs_by_like_steps() -> None:
    source = windows(SAMPLER, 8, 5, seed=1)
    for window in range(3):
        batches = [source.table(8 * (5 * window + k), 8) for k in range(5)]
        together = ProgramTable.concatenate(batches)
        assert sorted(programs(together)) == sorted(programs(SAMPLER.table(40 * window, 40)))
        ranges = sorted((min(steps(batch)), max(steps(batch))) for batch in batches)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(ranges))


@pytest.mark.parametrize(
    "model",
    [
        model_config("trace-rnn", hidden=4),
        model_config("line-rnn", hidden=4),
        model_config("ipa-gnn", hidden=4, budget=StepBudget("static", cap=60)),
    ],
    ids=lambda model: model.name,
)
def test_windows_sort_by_the_steps_that_the_model_takes(model: ModelConfig) -> None:
    source = make_source(TrainConfig(model=model).replace(batch_size=8, bucket_batches=5), None)
    ranges = []
    for k in range(5):
        table = source.table(8 * k, 8)
        built = build_model(model)
        batch = built.collate(table)
        graphs, _ = built.walked(batch)  # type: ignore[operator]
        taken = graphs.steps.numpy()
        np.testing.assert_array_equal(steps_of(model, table), taken)
        ranges.append((taken.min(), taken.max()))
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(sorted(ranges)))


def test_windows_shuffle_their_batches() -> None:
    source = windows(SAMPLER, 8, 6, seed=1)
    means = [[np.mean(steps(source.table(8 * (6 * w + k), 8))) for k in range(6)] for w in range(4)]
    orders = {tuple(np.argsort(window)) for window in means}
    assert len(orders) > 1
    assert tuple(range(6)) not in orders


def test_windows_are_a_function_of_the_position() -> None:
    whole = programs(windows(SAMPLER, 8, 4, seed=1).table(0, 96))
    source = windows(SAMPLER, 8, 4, seed=1)
    for start, count in ((88, 8), (0, 8), (4, 4), (30, 10), (60, 36), (31, 1)):  # across windows and back again
        assert programs(source.table(start, count)) == whole[start : start + count]
    assert programs(windows(SAMPLER, 8, 4, seed=2).table(0, 96)) != whole


def test_windows_are_made_once_whatever_the_threads() -> None:
    class Counted:
        calls: list[int] = []  # noqa: RUF012

        def table(self, start: int, count: int) -> ProgramTable:
            self.calls.append(start)
            return SAMPLER.table(start, count)

    source = windows(Counted(), 4, 8, seed=1)
    expected = [programs(windows(SAMPLER, 4, 8, seed=1).table(4 * k, 4)) for k in range(24)]
    with Stream(source, 4, lambda table: table, threads=4, ahead=12) as stream:
        assert [programs(next(stream)) for _ in range(24)] == expected
    assert len(Counted.calls) == len(set(Counted.calls))
    assert set(Counted.calls) >= set(range(0, 24 * 4, 4))


def test_windows_tell_every_thread_of_a_failure() -> None:
    class Broken:
        def table(self, start: int, count: int) -> ProgramTable:
            raise OSError("gone")

    source = windows(Broken(), 4, 8, seed=1)
    found = []

    def ask() -> None:
        try:
            source.table(0, 4)
        except OSError as error:
            found.append(str(error))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["gone"] * 3


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "d"
    config = preset("smoke")
    generate(
        path,
        "full",
        "train",
        50,
        0,
        Lengths.training(config.data.length),
        config.model.grammar,
        shard_size=20,
        threads=1,
    )
    return path


def test_epochs_hold_every_program_once_each_in_its_own_order(directory: Path) -> None:
    data = read_shards(directory)
    source = Epochs(data, seed=4)
    epochs = [programs(source.table(50 * e, 50)) for e in range(3)]
    assert all(sorted(epoch) == sorted(programs(data.table())) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert epochs[0] != programs(data.table())
    everything = [program for epoch in epochs for program in epoch]
    for start, count in ((0, 7), (45, 10), (19, 2), (40, 110)):
        assert programs(source.table(start, count)) == everything[start : start + count]
    assert programs(Epochs(data, seed=5).table(0, 50)) != epochs[0]


def test_data_for_something_else_is_refused(directory: Path) -> None:
    config = preset("smoke").replace(source=str(directory))
    assert open_data(config) is not None
    assert open_data(preset("smoke")) is None
    for changed, message in (
        (config.replace(task="partial"), "kind of its programs"),
        (config.replace(length=9), "longest program"),
        (preset("quick").replace(source=str(directory), length=config.data.length), "grammar"),
        (config.replace(source=str(directory / "nowhere")), "no finished data set"),
    ):
        with pytest.raises(DataSetError, match=message):
            open_data(changed)


def test_stream_draws_the_language_of_the_config() -> None:
    config = preset("smoke")
    table = make_source(config, None).table(0, 200)
    assert max(table.lengths) == config.data.length
    assert table.target.max() < config.model.grammar.modulus
    assert isinstance(make_source(config.replace(bucket_batches=4), None), Windows)


@pytest.mark.parametrize("window", [1, 4])
def test_curriculum_draws_even_lengths_first_and_the_papers_then(window: int) -> None:
    config = preset("paper").replace(examples=8_000, batch_size=100, bucket_batches=window, curriculum=0.5)
    lengths = make_source(config, None).table(0, 8_000).lengths
    even, usual = lengths[:4_000], lengths[4_000:]
    for length in range(2, 11):  # 5 standard deviations
        assert np.mean(even == length) == pytest.approx(1 / 9, abs=0.025)
    assert np.mean(usual == 10) == pytest.approx(0.9, abs=0.025)
    plain = make_source(config.replace(curriculum=0.0), None)
    assert programs(make_source(config, None).table(4_000, 500)) == programs(plain.table(4_000, 500))


@pytest.mark.parametrize("window", [1, 4])
def test_curriculum_is_a_function_of_the_position(window: int) -> None:
    config = preset("smoke").replace(
        examples=101, batch_size=8, bucket_batches=window, curriculum=0.5
    )  # its end is no batch's
    whole = programs(make_source(config, None).table(0, 104))
    source = make_source(config, None)
    for start, count in ((88, 16), (0, 8), (48, 8), (51, 1), (40, 30), (50, 1), (0, 104)):
        assert programs(source.table(start, count)) == whole[start : start + count]


def test_curriculum_is_told_by_the_fingerprint() -> None:
    config = preset("smoke")
    plain, with_it = (data_fingerprint(c, None) for c in (config, config.replace(curriculum=0.25)))
    assert with_it == f"{plain}, of even lengths for the first 0.25 of the examples"
