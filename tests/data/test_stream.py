import threading
from itertools import islice

import numpy as np
import pytest

from ipagnn.data import Batch, Stream, check_batch, collate, training_sampler
from ipagnn.languages.arithmetic import ProgramTable, Sampler

SAMPLER = training_sampler("partial", seed=6)


def tokens(table: ProgramTable) -> bytes:
    return table.line_tokens.tobytes() + table.target.tobytes()


def identity(table: ProgramTable) -> ProgramTable:
    return table


def take(stream: Stream[ProgramTable], count: int) -> list[bytes]:
    return [tokens(table) for table in islice(stream, count)]


@pytest.fixture(scope="module")
def expected() -> list[bytes]:
    return [tokens(SAMPLER.table(k * 7, 7)) for k in range(30)]


@pytest.mark.parametrize(("threads", "ahead"), [(1, 1), (1, 5), (4, 2), (4, 9)])
def test_batches_come_in_order_whatever_makes_them(expected: list[bytes], threads: int, ahead: int) -> None:
    with Stream(SAMPLER, 7, identity, threads=threads, ahead=ahead) as stream:
        assert take(stream, 30) == expected


def test_position_counts_what_was_taken_and_restores_it(expected: list[bytes]) -> None:
    with Stream(SAMPLER, 7, identity, threads=2, ahead=6) as stream:
        take(stream, 11)
        position = stream.position
        assert position == 77
    with Stream(SAMPLER, 7, identity, position=position) as stream:
        assert take(stream, 5) == expected[11:16]


def test_batch_size_does_not_change_the_programs(expected: list[bytes]) -> None:
    with Stream(SAMPLER, 210, identity) as stream:
        whole = next(stream)
    assert [tokens(whole.slice(k * 7, k * 7 + 7)) for k in range(30)] == expected


@pytest.mark.parametrize("world", [2, 3])
def test_processes_share_the_batches_of_one(expected: list[bytes], world: int) -> None:
    taken = []
    for rank in range(world):
        with Stream(SAMPLER, 7, identity, rank=rank, world=world, threads=2) as stream:
            taken.append(take(stream, 5))
            assert stream.position == 5 * 7 * world
    assert [batch for step in zip(*taken, strict=True) for batch in step] == expected[: 5 * world]
    # And from there one process alone can go on.
    with Stream(SAMPLER, 7, identity, position=5 * 7 * world) as stream:
        assert take(stream, 1) == [expected[5 * world]]


def test_collate_runs_in_the_background() -> None:
    names = []

    def make(table: ProgramTable) -> Batch:
        names.append(threading.current_thread().name)
        return collate(table)

    with Stream(SAMPLER, 32, make) as stream:
        batch = next(stream)
    check_batch(batch)
    assert len(batch) == 32
    assert threading.current_thread().name not in names


def test_training_streams_draw_nothing_withheld() -> None:
    assert SAMPLER.withheld is False
    assert Sampler().withheld is None


def test_an_error_in_the_background_reaches_the_consumer_in_its_place() -> None:
    def make(table: ProgramTable) -> int:
        if int(table.target[0]) == int(third.target[0]):
            raise ArithmeticError("the third batch")
        return len(table)

    third = SAMPLER.table(14, 7)
    stream = Stream(SAMPLER, 7, make, threads=3, ahead=6)
    assert [next(stream), next(stream)] == [7, 7]
    with pytest.raises(ArithmeticError, match="the third batch"):
        next(stream)
    assert stream.position == 14
    with pytest.raises(ValueError, match="closed"):
        next(stream)


def test_closing_leaves_no_thread() -> None:
    before = threading.active_count()
    stream = Stream(SAMPLER, 50, identity, threads=4, ahead=20)
    next(stream)
    assert threading.active_count() > before
    stream.close()
    stream.close()
    assert threading.active_count() == before


def test_closing_when_the_consumer_fails() -> None:
    before = threading.active_count()

    def fail() -> None:
        with Stream(SAMPLER, 50, identity, threads=2) as stream:
            next(stream)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert threading.active_count() == before


def test_no_more_than_ahead_is_made() -> None:
    class Counting:
        starts: list[int] = []  # noqa: RUF012

        def table(self, start: int, count: int) -> ProgramTable:
            self.starts.append(start)
            return SAMPLER.table(start, count)

    with Stream(Counting(), 5, identity, ahead=3) as stream:
        next(stream)
        next(stream)
    assert sorted(Counting.starts) == [5 * k for k in range(len(Counting.starts))]
    assert 2 <= len(Counting.starts) <= 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"position": -1}, "position is -1"),
        ({"threads": 0}, "threads is 0"),
        ({"ahead": 0}, "ahead is 0"),
        ({"world": 2, "rank": 2}, "one of 0..1"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Stream(SAMPLER, **{"batch_size": 4, **arguments}, collate=identity)


def test_far_positions_are_as_good_as_near_ones() -> None:
    far = 2**62
    with Stream(SAMPLER, 4, identity, position=far) as stream:
        table = next(stream)
    assert np.array_equal(table.target, SAMPLER.table(far, 4).target)
