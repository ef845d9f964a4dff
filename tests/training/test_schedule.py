import pytest

from ipagnn.training import TrainConfig
from ipagnn.training.schedule import rate_at


def config(**changes: object) -> TrainConfig:
    # 10 steps of 4, of which the first 2 are the warm-up.
    whole = TrainConfig().replace(batch_size=4, examples=39, warmup=7, learning_rate=0.8)
    return whole.replace(**changes)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.4, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8]),
        ("linear", [0.4, 0.8, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]),
        (
            "cosine",  # 0.4 * (1 + cos(k pi / 8))
            [0.4, 0.8, 0.8, 0.769552, 0.682843, 0.553073, 0.4, 0.246927, 0.117157, 0.030448],
        ),
    ],
)
def test_rates_by_hand(schedule: str, expected: list[float]) -> None:
    chosen = config(schedule=schedule)
    assert chosen.steps == 10
    assert [rate_at(chosen, step) for step in range(10)] == pytest.approx(expected, abs=1e-6)


def test_without_warmup_the_first_step_has_the_whole_rate() -> None:
    for schedule in ("constant", "linear", "cosine"):
        assert rate_at(config(schedule=schedule, warmup=0), 0) == 0.8
