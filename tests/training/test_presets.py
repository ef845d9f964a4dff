import tomllib
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from ipagnn._common.toml import to_toml
from ipagnn.cli.demo import LENGTHS
from ipagnn.languages.arithmetic import execute, steps
from ipagnn.models import MODELS, build_model, model_config
from ipagnn.training import RunFolder, TrainConfig, preset, read_metrics, train
from ipagnn.training.presets import OPTIONS, QUICK_HIDDEN, STAGED
from ipagnn.training.sources import make_source


def test_an_unknown_preset_names_the_near_miss() -> None:
    with pytest.raises(ValueError, match="Did you mean 'quick'"):
        preset("quik")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["numbers", "extended"])
def test_large_numbers_are_for_digits(name: Literal["numbers", "extended"]) -> None:
    config = preset(name)
    assert config == preset(name, "env-ipa-gnn")
    assert TrainConfig.from_dict(tomllib.loads(to_toml(config.to_dict()))) == config
    assert build_model(config.model).runs_on == "automata"
    assert config.steps == sum(stage.steps for stage in STAGED[name][0])
    with pytest.raises(ValueError, match="more values than ipa-gnn could tell apart; train env-ipa-gnn"):
        preset(name, "ipa-gnn")


def test_quick_differs_between_models_in_size_and_options_alone() -> None:
    base = preset("quick")
    assert QUICK_HIDDEN.keys() <= MODELS.keys()
    for model in MODELS:
        config = preset("quick", model)
        hidden = QUICK_HIDDEN.get(model, base.model.hidden)
        same = model_config(model, base.model, **{"hidden": hidden, **OPTIONS.get(model, {})})
        assert config == base.replace(model=same)


def test_quick_trains_on_programs_shorter_than_those_of_the_demo() -> None:
    config = preset("quick")
    table = make_source(config, None).table(0, 2_000)
    assert table.lengths.max() == config.data.length < min(LENGTHS)
    assert (np.bincount(table.target, minlength=10) < 0.2 * len(table)).all()  # no digit can be guessed


def test_quick_programs_end_within_the_steps_that_models_have() -> None:
    grammar = preset("quick").model.grammar
    for program in make_source(preset("quick"), None).table(0, 500):
        assert execute(program, grammar.modulus, grammar.condition_modulus)[1] <= steps(program)


@pytest.mark.parametrize("name", list(MODELS))
def test_the_loss_of_every_model_falls_on_smoke(name: str, tmp_path: Path) -> None:
    result = train(preset("smoke", name), tmp_path / "r")
    losses = [line["loss"] for line in read_metrics(RunFolder(tmp_path / "r")) if line["kind"] == "train"]
    assert len(losses) == 15
    assert sum(losses[-3:]) / 3 < losses[0] - 0.3
    assert losses[-1] < losses[1]
    assert result.state == "finished"
