"""Stages of a run: what they draw, how fast they learn, when they end, and that nothing but steps decides it."""

import json
import math
import tomllib
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ipagnn._common.toml import to_toml
from ipagnn.data.splits import training_sampler
from ipagnn.languages.arithmetic import Lengths
from ipagnn.languages.arithmetic.interpreter import trace
from ipagnn.models import StageProgress
from ipagnn.models.line_rnn import LineRNN
from ipagnn.training import Progress, RunFolder, Stage, TrainConfig, preset, read_config, read_metrics, resolve, train
from ipagnn.training.config import DataConfig, OptimizerConfig
from ipagnn.training.runs.checkpoint import Checkpoint
from ipagnn.training.schedule import stage_rate_at
from ipagnn.training.sources import make_source, stage_costs
from ipagnn.training.sweep.grid import expand

Tensors = dict[str, torch.Tensor]
Final = Callable[[Path], Tensors]
Same = Callable[[Tensors, Tensors], bool]
Lines = Callable[[Path], list[dict[str, object]]]

STAGES = (
    Stage(length=2, batch_size=8, steps=50, until=0.1, learning_rate=1e-2),
    Stage(length=3, batch_size=16, steps=7, learning_rate=1e-2, final_learning_rate=1e-3),
    Stage(length=4, lengths="paper", batch_size=8, steps=5, learning_rate=1e-3),
)


@pytest.fixture
def staged(tiny: TrainConfig) -> TrainConfig:
    """A run of three stages, of which the first ends by its accuracy."""
    return tiny.replace(
        data=DataConfig(length=tiny.data.length),
        optimizer=OptimizerConfig(averaging=0.9, warmup=32),
        stages=STAGES,
        validation_every=100,
        checkpoint_steps=3,
    )


@pytest.fixture
def whole(staged: TrainConfig, tmp_path: Path) -> Path:
    """A run that nothing interrupted."""
    train(staged, tmp_path / "whole")
    return tmp_path / "whole"


def stage_lines(run: Path) -> list[dict[str, Any]]:
    return [line for line in read_metrics(RunFolder(run)) if line["kind"] == "train"]


def test_rates_by_hand(staged: TrainConfig) -> None:
    first, second, third = STAGES
    # The warm-up takes 32 examples, which are 4 steps of the first stage.
    assert [stage_rate_at(staged, first, step, 0) for step in (0, 1, 3, 4, 20)] == pytest.approx(
        [0.0025, 0.005, 0.01, 0.01, 0.01]
    )
    rates = [stage_rate_at(staged, second, 10 + i, 10) for i in range(7)]
    assert rates[0] == pytest.approx(1e-2)
    assert rates == pytest.approx([1e-3 + 9e-3 * (1 + math.cos(math.pi * i / 7)) / 2 for i in range(7)])
    assert stage_rate_at(staged, third, 17, 17) == 1e-3


def test_stages_draw_their_lengths_and_never_by_the_same_numbers(staged: TrainConfig) -> None:
    first, second, third = (make_source(staged, None, stage, 1_000).table(0, 400) for stage in STAGES)
    assert set(first.lengths.tolist()) == {2}
    assert set(second.lengths.tolist()) == {2, 3}
    assert abs(float((second.lengths == 3).mean()) - 0.5) < 0.1
    assert float((third.lengths == 4).mean()) > 0.8
    sampler = training_sampler("full", staged.data.length, staged.seed, staged.model.grammar)
    expected = type(sampler)(sampler.task, Lengths.uniform((2, 3)), sampler.grammar, sampler.seed, False)
    assert np.array_equal(second.line_tokens, expected.table(1_000, 400).line_tokens)


def test_training_programs_have_short_traces() -> None:
    config = preset("environment", "ipa-gnn").replace(trace_limit=12)
    table = make_source(config, None, config.stages[-1], 0).table(0, 300)
    assert max(len(list(trace(program))) for program in table) <= 12
    free = config.replace(trace_limit=0)
    longer = make_source(free, None, free.stages[-1], 0).table(0, 300)
    assert max(len(list(islice(trace(program), 100))) for program in longer) > 12


def test_a_stage_ends_at_the_look_at_which_enough_were_right(whole: Path, staged: TrainConfig) -> None:
    lines = stage_lines(whole)
    first = [line for line in lines if line["stage"] == 1]
    assert all(line["accuracy"] < 0.1 for line in first[:-1])
    assert first[-1]["accuracy"] >= 0.1
    assert first[-1]["step"] % staged.run.log_every == 0
    ended = first[-1]["step"]
    assert ended < STAGES[0].steps, "choose a lower share, or the stage did not end by it"
    assert [line["step"] for line in lines if line["stage"] == 2][-1] == ended + 7
    result = json.loads((whole / "result.json").read_text())
    assert (result["step"], result["examples"]) == (ended + 12, 8 * ended + 16 * 7 + 8 * 5)
    position = Checkpoint.read(RunFolder(whole).last).position
    assert (position.stage, position.stage_step) == (3, ended + 12)
    validated = [line["step"] for line in read_metrics(RunFolder(whole)) if line["kind"] == "validation"]
    assert {ended, ended + 7, ended + 12} <= set(validated)


def test_the_folder_holds_the_stages(whole: Path, staged: TrainConfig) -> None:
    assert read_config(whole / "config.toml") == staged
    assert "until 10% are right, at most 50 steps" in json.loads((whole / "run.json").read_text())["data"]
    assert RunFolder(whole).config().stages == STAGES


def test_workers_change_nothing(
    whole: Path, staged: TrainConfig, tmp_path: Path, final: Final, same: Same, lines: Lines
) -> None:
    train(staged.replace(workers=3), tmp_path / "again")
    assert same(final(whole), final(tmp_path / "again"))
    assert lines(whole) == lines(tmp_path / "again")


class Stopped(Exception):
    pass


def test_goes_on_exactly_after_a_stop_at_any_look(
    whole: Path, staged: TrainConfig, tmp_path: Path, final: Final, same: Same, lines: Lines
) -> None:
    looks = [line["step"] for line in stage_lines(whole)]
    for step in looks:

        def fail(now: Progress, step: int = step) -> None:
            if now.step == step:
                raise Stopped

        run = tmp_path / str(step)
        with pytest.raises(Stopped):
            train(staged, run, report=fail)
        train(staged, run)
        assert same(final(whole), final(run)), step
        assert lines(whole) == lines(run), step


def test_goes_on_exactly_after_every_single_step(
    whole: Path, staged: TrainConfig, tmp_path: Path, final: Final, same: Same
) -> None:
    starts = 0
    while train(staged, tmp_path / "r", time_limit=1e-9).state == "stopped":
        starts += 1
    assert starts > 12
    assert same(final(tmp_path / "r"), final(whole))


def test_models_are_told_where_training_is(
    staged: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[StageProgress] = []
    monkeypatch.setattr(LineRNN, "on_step", lambda self, progress: seen.append(progress))
    train(staged, tmp_path / "r")
    assert [x.step for x in seen] == list(range(len(seen)))
    assert {x.stages for x in seen} == {3}
    assert [x.progress for x in seen if x.stage == 2] == pytest.approx([i / 7 for i in range(7)])
    assert [x.progress for x in seen if x.stage == 1][:3] == pytest.approx([0, 1 / 50, 2 / 50])


def test_time_left_counts_later_stages_by_their_steps(staged: TrainConfig, tmp_path: Path) -> None:
    costs = stage_costs(staged)
    assert costs[1] > 2 * costs[0] * 0.9  # twice the batch, and longer programs
    found: list[Progress] = []
    train(staged, tmp_path / "r", report=found.append)
    assert found[-1].seconds_left == 0
    assert {now.stage for now in found} == {1, 2, 3}
    assert [now.length for now in found if now.stage == 2] == [3] * len([now for now in found if now.stage == 2])
    assert all(now.seconds_left > 0 for now in found[:-1])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"learning_rate": 0.1}, r"optimizer\.learning_rate is 0\.1, and there are stages"),
        ({"examples": 32}, r"data\.examples is 32, and there are stages"),
        ({"schedule": "cosine"}, r"optimizer\.schedule is 'cosine', and there are stages"),
        ({"source": "some/where"}, r"stages is 3 and data\.source is 'some/where'"),
        ({"warmup": 10_000}, "warmup is 10000, which leaves nothing of"),
    ],
)
def test_what_stages_take_the_place_of_is_refused(staged: TrainConfig, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        staged.replace(**changes)


def test_stages_survive_toml_and_can_be_set_by_number(staged: TrainConfig, tmp_path: Path) -> None:
    assert TrainConfig.from_dict(tomllib.loads(to_toml(staged.to_dict()))) == staged
    model = {"model": {"name": "ipa-gnn"}}
    changed = resolve(tmp_path / "new", "environment", None, model | {"stages": {"2": {"steps": 9}}})
    expected = list(preset("environment", "ipa-gnn").stages)
    assert [stage.steps for stage in changed.stages] == [expected[0].steps, 9, *(x.steps for x in expected[2:])]
    for stages, sentence in (
        ({"9": {"steps": 9}}, r"There is no stages\.9; stages are numbered from 1 to 5"),
        ({"1": {"setps": 9}}, r"'stages\.1\.setps' is not a setting\. Did you mean 'stages\.1\.steps'"),
        ({"1": {"until": 2}}, "until is 2.0; it must be from 0 to 1"),
        (3, "stages is 3; it must be a list of tables"),
    ):
        with pytest.raises(ValueError, match=sentence):
            resolve(tmp_path / "new", "environment", None, model | {"stages": stages})


def test_sweeps_vary_stages() -> None:
    trials = expand({"stages.2.learning_rate": [1e-3, 2e-3]}, "environment", {"model": {"name": "ipa-gnn"}})
    assert [trial.config.stages[1].learning_rate for trial in trials] == [1e-3, 2e-3]
    assert trials[0].config.stages[0] == trials[1].config.stages[0]


def test_betas_reach_the_optimizer(tiny: TrainConfig, tmp_path: Path, final: Final) -> None:
    train(tiny, tmp_path / "a")
    train(tiny.replace(beta_2=0.9), tmp_path / "b")
    a, b = final(tmp_path / "a"), final(tmp_path / "b")
    assert not torch.equal(a["state.optimizer.exp_avg_sq"], b["state.optimizer.exp_avg_sq"])
