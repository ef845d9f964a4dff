"""Runs become records, and their weights come into the package with a card."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from ipagnn.evaluation import build_test_recipe, evaluate_on_test_set
from ipagnn.languages.arithmetic import ProgramKind
from ipagnn.models import find_model_file, load_model
from ipagnn.reporting.records import CHECKED, FILES, make_record, package_weights
from ipagnn.reporting.runs import load_run, read_run, save_evaluation
from ipagnn.training import preset, train


def finished(path: Path, task: ProgramKind = "full", model: str = "ipa-gnn", *, evaluated: bool = True) -> Path:
    config = preset("smoke", model, task)
    train(config.replace(examples=64, validation_count=20, log_every=1, device="cpu"), path)
    if evaluated:
        wanted = build_test_recipe(task, (5, 6), 4, None, config.model.grammar)
        save_evaluation(path, evaluate_on_test_set(load_model(path / "model.safetensors"), wanted))
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished(tmp_path_factory.mktemp("runs") / "mine")


def test_a_record_is_the_run_without_its_weights(run: Path, tmp_path: Path) -> None:
    record = make_record(run, tmp_path / "records")
    ended = json.loads((run / "result.json").read_text())["ended"]
    assert record == tmp_path / "records" / f"{ended[:10]}-mine"
    assert sorted(file.name for file in record.iterdir()) == sorted(FILES)
    assert all((record / file).read_bytes() == (run / file).read_bytes() for file in FILES)
    assert [path.name for path in record.parent.iterdir()] == [record.name]
    original, copied = read_run(run), read_run(record)
    assert (copied.config, copied.result, copied.evaluation) == (original.config, original.result, original.evaluation)
    with pytest.raises(ValueError, match="never overwritten"):
        make_record(run, tmp_path / "records")
    assert make_record(run, tmp_path / "records", "other").name == "other"


def test_what_is_not_complete_is_no_record(run: Path, tmp_path: Path) -> None:
    bare = finished(tmp_path / "bare", evaluated=False)
    with pytest.raises(ValueError, match=r"has not been evaluated; run `ipagnn evaluate .* --save` first"):
        make_record(bare, tmp_path / "records")
    (bare / "result.json").unlink()
    with pytest.raises(ValueError, match="has not finished"):
        make_record(bare, tmp_path / "records")
    assert not (tmp_path / "records").exists()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], None),
        ([(10, 0.5)], 0.5),
        ([(9_000, 0.1), (9_800, 0.2), (9_990, 0.6), (10_000, 1.0)], (190 * 0.6 + 10) / 200),  # one line is too few
        ([(9_000, 0.1), (9_890, 0.2), (10_000, 1.0)], 1.0),
    ],
)
def test_the_last_hundredth_of_training_speaks(
    run: Path, tmp_path: Path, lines: list[tuple[int, float]], message: float | None
) -> None:
    shutil.copytree(run, tmp_path / "run")
    metrics = [
        {"kind": "train", "step": examples, "examples": examples, "accuracy": accuracy} for examples, accuracy in lines
    ]
    metrics.append({"kind": "validation", "step": 10_000, "examples": 10_000, "accuracy": 0.3})
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics))
    assert read_run(tmp_path / "run").trained == pytest.approx(message)


def test_weights_are_found_again_by_their_record(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = make_record(run, tmp_path / "records")
    path = package_weights(run, tmp_path / "weights", record.name)
    assert path.name == "ipa-gnn-full.safetensors"
    assert path.stat().st_mode == path.with_suffix(".md").stat().st_mode
    assert path.stat().st_size < 0.6 * (run / "model.safetensors").stat().st_size
    whole, half = load_model(run / "model.safetensors"), load_model(path)
    for name, weight in whole.state_dict().items():
        torch.testing.assert_close(half.state_dict()[name], weight, rtol=1e-3, atol=1e-6)
    assert (find_model_file(path).record, find_model_file(path).task) == (record.name, "full")
    assert find_model_file(run).record is None
    assert load_run(read_run(record)) is None  # these weights are not in the package
    monkeypatch.setattr("ipagnn.reporting.runs.available_models", lambda: [str(path)])
    assert load_run(read_run(record)) is not None
    assert load_run(read_run(make_record(run, tmp_path / "records", "other"))) is None
    assert load_run(read_run(run)) is not None


@pytest.mark.parametrize(("task", "model"), [("full", "trace-rnn"), ("partial", "line-rnn")])
def test_the_card_says_what_the_record_says(tmp_path: Path, task: ProgramKind, model: str) -> None:
    run = finished(tmp_path / "run", task, model)
    card = package_weights(run, tmp_path / "weights", "a-record").with_suffix(".md").read_text()
    original = read_run(run)
    assert original.evaluation is not None
    overall = original.evaluation["overall"]
    assert card.startswith(f"# {model}-{task}\n")
    for expected in (
        "16 hidden units",
        "64 programs of up to 4 lines",
        "batch 32, 2 steps",
        "`records/a-record`",
        f"{100 * original.result['accuracy']:.1f}% of 20",
        f"{100 * overall['accuracy']:.1f}% ± {100 * overall['stderr']:.1f} of 8 (not D_test)",
        "| lines | 5 | 6 |",
        f"of {CHECKED:,} withheld programs",
        "v0 mod 10 ",
    ):
        assert expected in card
    assert ("the best possible" in card) == (task == "partial")
    assert ("oracle" in card) == (model == "trace-rnn")
    assert "the paper's:" not in card  # of another language


def test_weights_may_take_more_steps_than_the_run_did(run: Path, tmp_path: Path) -> None:
    path = package_weights(run, tmp_path / "weights", "a-record", factor=3)
    longer, own = load_model(path), load_model(run / "model.safetensors")
    assert longer.config.budget.factor == 3 * own.config.budget.factor
    assert longer.config.replace(budget=own.config.budget) == own.config
    card = path.with_suffix(".md").read_text()
    assert "3 times as many" in card
    assert f"of {CHECKED:,} withheld programs 0 got another prediction" in card  # rounding alone is compared
    assert "times as many" not in package_weights(run, tmp_path / "own", "a-record").with_suffix(".md").read_text()
