import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipagnn._common.options import describe, flatten, phrases
from ipagnn._common.toml import parse_settings, to_toml
from ipagnn.languages.arithmetic import AUTHORS
from ipagnn.models import IPAGNN, MODELS
from ipagnn.training import TrainConfig, preset, read_config, train
from ipagnn.training.config import RESUMABLE_FIELDS, OptimizerConfig, differing
from ipagnn.training.legacy import RENAMED, RETIRED
from ipagnn.training.presets import PAPER_ROWS
from ipagnn.training.resolve import resolve
from ipagnn.training.runs.files import RunError
from ipagnn.training.sweep.grid import read_grid

tables = st.recursive(
    st.dictionaries(
        st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True),
        st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats(allow_nan=False)
        | st.text(st.characters(exclude_categories=["Cs"]))
        | st.lists(st.integers() | st.text(st.characters(exclude_categories=["Cs"]), max_size=3), max_size=3),
        max_size=4,
    ),
    lambda below: st.dictionaries(st.from_regex(r"[a-z_]{1,5}", fullmatch=True), below, max_size=3),
    max_leaves=6,
)


@given(tables)
def test_toml_reads_back(values: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml(values)) == values


@pytest.mark.parametrize("name", ["paper", "environment", "quick", "smoke"])
@pytest.mark.parametrize("model", list(MODELS))
def test_every_preset_reads_back(name: Any, model: str) -> None:
    config = preset(name, model)
    assert TrainConfig.from_dict(tomllib.loads(to_toml(config.to_dict()))) == config


@pytest.mark.parametrize("name", ["paper", "environment", "quick", "smoke"])
def test_only_no_execute_sums_literally_and_has_to_be_told_to_absorb(name: Any) -> None:
    found = {model: phrases(preset(name, model).model) for model in MODELS}
    assert found.pop("no-execute") == ["the exit absorbs", "sums not divided"]
    assert set(map(tuple, found.values())) == {()}


def test_paper_preset_is_the_papers_recipe() -> None:
    assert MODELS.keys() - PAPER_ROWS.keys() == {"env-ipa-gnn"}
    for model in PAPER_ROWS:
        config = preset("paper", model)
        assert (config.data.batch_size, config.data.examples, config.optimizer.algorithm) == (32, 15_000_000, "adam")
        assert (config.optimizer.max_grad_norm, config.optimizer.schedule, config.data.length) == (5.0, "constant", 10)
        assert config.model.hidden in (200, 300)
        assert config.optimizer.learning_rate in (3e-3, 1e-3, 3e-4, 1e-4)
        assert config.steps == 468_750


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"bach_size": 3}, "'bach_size' is not a setting. Did you mean 'data.batch_size'?"),
        ({"hiden": 3}, "Did you mean 'model.hidden'?"),
        ({"model": {"hiden": 3}}, "'model.hiden' is not a setting. Did you mean 'model.hidden'?"),
        ({"model": {"grammar": {"modulo": 10}}}, "Did you mean 'model.grammar.modulus'?"),
        ({"model": {"name": "ipa-gn"}}, "Did you mean 'ipa-gnn'?"),
        ({"model": "ipa-gnn"}, "model is 'ipa-gnn'; it must be a table of settings"),
        ({"rate": 0.1}, "'rate' is not a setting any more. Did you mean 'optimizer.learning_rate'?"),
        ({"data": "some/place"}, "'data' is not a setting any more. Did you mean 'data.source'?"),
        ({"learning_rate": 0.1}, "'learning_rate' is not a setting. Did you mean 'optimizer.learning_rate'?"),
        ({"optimizer": {"learning_rat": 0.1}}, "Did you mean 'optimizer.learning_rate'?"),
        ({"data": {"batch_size": 1.5}}, "data.batch_size is 1.5; it must be a whole number"),
        ({"data": {"batch_size": True}}, "whole number"),
        ({"optimizer": {"learning_rate": "fast"}}, "optimizer.learning_rate is 'fast'; it must be a number"),
        ({"model": {"hidden": "wide"}}, "model.hidden is 'wide'; it must be a whole number"),
        ({"model": {"name": "no-execute", "absorbing_exit": 1}}, "model.absorbing_exit is 1; it must be true or false"),
        ({"model": {"absorbing_exit": True}}, "'model.absorbing_exit' is not a setting"),
        ({"data": {"batch_size": 0}}, "batch_size is 0; it must be from 1 to 16777216"),
        ({"optimizer": {"averaging": 2.0}}, "averaging is 2.0; it must be at least 0 and below 1"),
        ({"optimizer": {"averaging": 1.0}}, "averaging is 1.0; it must be at least 0 and below 1"),
        ({"data": {"curriculum": 1.5}}, "from 0 to 1"),
        ({"data": {"curriculum": 0.5, "source": "some/place"}}, "train on the stream"),
        ({"data": {"trace_limit": 20, "source": "some/place"}}, "have the traces that they have"),
        ({"data": {"budget": "trace"}, "task": "partial"}, "a masked line leaves no trace to count"),
        ({"optimizer": {"learning_rate": 0}}, "learning_rate is 0.0; it must be above 0"),
        ({"optimizer": {"learning_rate": float("nan")}}, "learning_rate is nan"),
        ({"optimizer": {"schedule": "step"}}, "constant, linear, cosine"),
        ({"task": "both"}, "full, partial"),
        ({"run": {"device": "gpu"}}, "auto, cpu, cuda"),
        ({"data": {"examples": 100}, "optimizer": {"warmup": 100}}, "leaves nothing"),
        ({"run": {"precision": "tf32", "device": "cpu"}}, "only NVIDIA GPUs"),
        ({"model": {"prune": 0.1}}, "version 0.1.0 was the last"),
        ({"model": {"name": "trace-rnn"}, "task": "partial"}, "cannot be trained on the partial task"),
        ({"model": {"classes": 10}}, "'model.classes' is not a setting"),
    ],
)
def test_mistakes_and_contradictions_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        TrainConfig.from_dict(values)
    assert message in str(caught.value)


def test_settings_are_toml_values_with_dotted_keys() -> None:
    settings = ["model.hidden=64", "rate = 3e-4", "model.grammar.operands=[1, 5]", "data=some/place", "task='partial'"]
    assert parse_settings(settings) == {
        "model": {"hidden": 64, "grammar": {"operands": [1, 5]}},
        "rate": 3e-4,
        "data": "some/place",
        "task": "partial",
    }


def test_the_authors_labels_are_a_setting_that_old_configurations_need_not_have() -> None:
    config = TrainConfig.from_dict(parse_settings(["model.grammar.block_limit=200"]))
    assert config.model.grammar == AUTHORS
    assert TrainConfig.from_dict(tomllib.loads(to_toml(config.to_dict()))) == config
    old = TrainConfig().to_dict()
    del old["model"]["grammar"]["block_limit"]
    assert TrainConfig.from_dict(old) == TrainConfig()
    assert differing(TrainConfig.from_dict(old), config) == ["model.grammar.block_limit is 0, not 200"]


@pytest.mark.parametrize("setting", ["rate", "=3", "model.=3", ".rate=3"])
def test_settings_that_are_none(setting: str) -> None:
    with pytest.raises(ValueError, match="key=value"):
        parse_settings([setting])


def test_a_setting_cannot_be_value_and_table() -> None:
    with pytest.raises(ValueError, match="contradicts"):
        parse_settings(["model=3", "model.hidden=4"])


def test_later_settings_win(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text('rate = 0.5\nseed = 4\n[model]\nname = "ggnn"\nhidden = 7\n')
    config = resolve(tmp_path / "run", "smoke", file, {"seed": 5, "model": {"grammar": {"modulus": 20}}})
    assert (config.optimizer.learning_rate, config.seed, config.model.name, config.model.hidden) == (0.5, 5, "ggnn", 7)
    assert config.model.grammar.modulus == 20
    assert config.model.grammar.operands == preset("smoke").model.grammar.operands
    assert config.data.batch_size == preset("smoke").data.batch_size


def test_a_mistake_in_a_file_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    for text in ("rate = ", "raet = 1.0"):
        file.write_text(text)
        with pytest.raises(ValueError, match=r"a\.toml"):
            resolve(tmp_path / "run", file=file)


def test_what_may_differ_is_not_named() -> None:
    one = preset("smoke")
    assert set(flatten(one.to_dict())) > RESUMABLE_FIELDS
    assert differing(one, one.replace(device="cpu", threads=3, workers=2, checkpoint_every=1.0, on_nan="skip")) == []
    other = one.replace(learning_rate=0.5, model=one.model.replace(hidden=8))
    assert differing(one, other) == ["model.hidden is 16, not 8", "optimizer.learning_rate is 0.01, not 0.5"]


FLAT = """
task = "partial"
start = "ipa-gnn-full"
data = "stream"
length = 8
batch_size = 64
window = 4
optimizer = "muon"
rate = 0.02
clip = 1.5
device = "cpu"
threads = 3

[model]
name = "ipa-gnn"
hidden = 7
"""


def test_old_files_are_read_under_the_new_names(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(FLAT)
    config = read_config(file)
    assert config == TrainConfig().replace(
        model=IPAGNN.Config(hidden=7),
        task="partial",
        init_from="ipa-gnn-full",
        length=8,
        batch_size=64,
        bucket_batches=4,
        algorithm="muon",
        learning_rate=0.02,
        max_grad_norm=1.5,
        device="cpu",
        threads=3,
    )
    assert resolve(tmp_path / "run", "paper", file) == config
    (tmp_path / "new.toml").write_text(to_toml(config.to_dict()))
    assert read_config(tmp_path / "new.toml") == config


def test_every_old_name_has_a_place_and_no_name_is_in_two_groups() -> None:
    known = list(flatten(TrainConfig().to_dict()))
    assert set(RENAMED.values()) <= set(known) | set(RETIRED)
    assert not set(known) & set(RETIRED)
    grouped = [name.partition(".")[2] for name in known if name.partition(".")[0] in ("data", "optimizer", "run")]
    assert len(grouped) == len(set(grouped)) > 25


def test_replace_finds_fields_in_their_groups() -> None:
    config = TrainConfig().replace(seed=3, learning_rate=0.5, examples=64, max_grad_norm=2.0)
    assert (config.seed, config.data.examples) == (3, 64)
    assert config.optimizer == OptimizerConfig(learning_rate=0.5, max_grad_norm=2.0)
    with pytest.raises(TypeError, match="'speed' is no field"):
        config.replace(speed=1.0)


def test_every_option_says_what_it_means() -> None:
    own = [each for each in describe(TrainConfig) if not each.name.startswith("model.")]
    assert len(own) > 30
    assert [each.name for each in own if not each.help.endswith(".")] == []


def test_runs_with_settings_of_earlier_versions_are_read_and_not_trained(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("loops = 0\ntrace_loss = 0.3\n" + FLAT)
    config = read_config(file)
    assert config.retired == "optimizer.trace_loss = 0.3"
    assert TrainConfig.from_dict(config.to_dict()) == config
    with pytest.raises(RunError, match=r"have optimizer.trace_loss = 0.3. Version 0.2.0 of ipagnn was the last"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    for key, without in RETIRED.items():
        with pytest.raises(ValueError, match=f"'{key}' is not a setting any more. Version 0.2.0 was the last"):
            TrainConfig.from_dict(parse_settings([f"{key}={without}"]))


def test_settings_that_are_nested_too_deeply_are_told(tmp_path: Path) -> None:
    deep = "[" * 50_000
    file = tmp_path / "settings.toml"
    file.write_text(f"seed = {deep}")
    for read in (read_grid, lambda path: resolve(tmp_path / "r", file=path)):
        with pytest.raises(ValueError, match=r"settings\.toml: it is nested too deeply"):
            read(file)
    with pytest.raises(ValueError, match="seed is '"):
        resolve(tmp_path / "r", changes=parse_settings([f"seed={deep}"]))
