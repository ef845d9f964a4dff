"""`ipagnn evaluate`, `figure` and `report`, as people call them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ipagnn.data import build_test_set
from ipagnn.evaluation import evaluate, summarise
from ipagnn.languages.arithmetic import format_program
from ipagnn.models import build_model, load_model, model_config, save_model
from ipagnn.training import RunFolder, TrainConfig
from ipagnn.training.runs.folder import Result

Run = Callable[..., Any]


def make_run(path: Path, task: Any = "full", name: str = "ipa-gnn", seed: int = 0) -> Path:
    config = TrainConfig(model=model_config(name, hidden=4), task=task, seed=seed)
    path.mkdir()
    folder = RunFolder(path)
    folder.begin(config, {"command": ["ipagnn", "train"], "commit": None, "versions": {}, "hardware": {}}, "stream")
    save_model(build_model(config.model, seed), path / "model.safetensors")
    folder.finish(
        Result("finished", 10, 320, accuracy=0.1, best_step=10, skipped=0, seconds=1.0, ended="2026-11-16T00:00:00Z")
    )
    return path


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "model.safetensors"
    save_model(build_model("line-rnn", hidden=4), path, task="full")
    return path


def test_json_tells_the_numbers_of_the_library(run: Run, weights: Path) -> None:
    done = run("evaluate", weights, "--count", 3, "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    expected = summarise(evaluate(load_model(weights), build_test_set("full", 3)))
    assert answer["overall"] == expected["overall"]
    assert answer["by_length"] == expected["by_length"]
    assert set(answer["by_length"]) == {str(n) for n in range(20, 101, 10)}
    assert answer["overall"]["count"] == 27
    assert set(answer["overall"]) == {"accuracy", "stderr", "count"}


def test_programs_of_another_language_than_that_of_training(
    run: Run, weights: Path, is_sentence: Callable[[str], bool]
) -> None:
    asked = ("evaluate", weights, "--count", 5, "--lengths", "8", "--json", "--set")
    done = run(*asked, "stmt_repeat=0")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert answer["by_loops"].keys() == {"0"}
    assert answer["set"]["name"] == "test"
    refused = run(*asked, "modulus=10")  # the model has an output for each of 1,000 values
    assert refused.code == 2
    assert "1000" in refused.err
    assert is_sentence(refused.err)
    assert "stmt_repeat" in run(*asked, "stmt_repeet=0").err


def test_one_object_for_each_of_several_weights(run: Run, weights: Path, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", "partial", "line-rnn")
    done = run("evaluate", weights, folder, "--count", 2, "--lengths", "5,10", "--json")
    first, second = map(json.loads, done.out.splitlines())
    assert (first["weights"], first["task"]) == (str(weights), "full")
    assert (second["weights"], second["task"]) == (str(folder), "partial")
    assert "ceiling" in second


def test_weights_that_do_not_say_their_task(run: Run, tmp_path: Path, refused: Callable[..., str]) -> None:
    path = tmp_path / "line-rnn-partial.safetensors"  # a name says nothing
    save_model(build_model("line-rnn", hidden=4), path)
    assert "name it: --task full or --task partial" in refused("evaluate", path, "--count", 2, "--lengths", "5")
    done = run("evaluate", path, "--count", 2, "--lengths", "5", "--task", "partial", "--json")
    assert json.loads(done.out)["task"] == "partial"


def test_what_a_terminal_shows(run: Run, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    done = run("evaluate", folder, "--count", 2, "--lengths", "5,10")
    assert done.code == 0, done.err
    for part in ("ipa-gnn on 4 full programs", "accuracy", "±", "all", "calibration", "discrete branch decisions"):
        assert part in done.out
    done = run("evaluate", folder, "--count", 2, "--lengths", "5,10", "--task", "partial", "--no-pointer")
    assert "best possible" in done.out
    assert "pointer" not in done.out


def test_pruning_and_lengths_are_options(run: Run, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    plain, pruned = (
        json.loads(run("evaluate", folder, "--count", 5, "--lengths", "10", "--json", *more).out)
        for more in ([], ["--prune", "1e-9"])
    )
    assert plain["overall"] == pruned["overall"]
    assert plain["set"] == pruned["set"]


def test_tolerance_is_an_option(run: Run, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    arguments = ("evaluate", folder, "--count", 5, "--lengths", "10,20", "--json")
    usual, exact = (json.loads(run(*arguments, *more).out) for more in ([], ["--tolerance", "0"]))
    assert 0 <= usual["dropped"]["open"] <= 2
    assert usual["dropped"]["share"] == usual["dropped"]["open"] / 10
    assert 0 < usual["dropped"]["mass"] <= usual["dropped"]["most"] < 1
    assert "dropped" not in exact
    assert abs(usual["overall"]["accuracy"] - exact["overall"]["accuracy"]) <= usual["dropped"]["share"]
    told = run(*arguments[:-1]).out
    assert f"it could change {usual['dropped']['open']} answers" in " ".join(told.split())
    assert "mass dropped" not in run(*arguments[:-1], "--tolerance", "0").out
    refused = run(*arguments, "--tolerance", "2")
    assert refused.code == 2
    assert "--tolerance" in refused.err


def test_the_step_budget_is_an_option(run: Run, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    fits = [
        json.loads(run("evaluate", folder, "--count", 40, "--lengths", "10", "--json", *more).out)["trace"]["fits"]
        for more in ([], ["--budget", "2"], ["--budget", "static"])
    ]
    plain, twice, enough = (share["count"] for share in fits)
    assert plain < twice < enough == 40


def test_programs_of_your_own(run: Run, weights: Path, tmp_path: Path, refused: Callable[..., str]) -> None:
    sources = [format_program(program) for program in build_test_set("full", 1)]
    file = tmp_path / "programs.jsonl"
    file.write_text("".join(json.dumps({"source": source}) + "\n" for source in sources))
    answer = json.loads(run("evaluate", weights, "--programs", file, "--json").out)
    assert answer["overall"] == summarise(evaluate(load_model(weights), build_test_set("full", 1)))["overall"]
    with file.open("a") as handle:
        handle.write('{"source": "v0 = 1\\nprint(v0)"}\n')
    told = refused("evaluate", weights, "--programs", file)
    assert "programs.jsonl, line 10: in the program, line 2, column 1" in told
    assert "--skip-invalid" in told
    done = run("evaluate", weights, "--programs", file, "--skip-invalid")
    assert done.code == 0
    assert "1 invalid programs were left out" in done.out
    answer = json.loads(run("evaluate", weights, "--programs", file, "--skip-invalid", "--json").out)
    assert (answer["set"]["count"], answer["set"]["skipped"]) == (9, 1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--lengths", "20,x"], "--lengths is '20,x'"),
        (["--device", "tpu9"], "--device is 'tpu9'"),
        (["--programs", "missing.jsonl"], "There is no file or folder missing.jsonl"),
        (["--save"], "--save keeps numbers in a run folder"),
        (["--prune", "0.1"], "line-rnn"),
        (["--budget", "much"], "step budget is 'much'"),
        (["--budget", "-1"], "step budget is '-1'"),
        (["--budget", "2", "--save"], "its own steps"),
    ],
)
def test_bad_options(weights: Path, refused: Callable[..., str], arguments: list[str], sentence: str) -> None:
    assert sentence in refused("evaluate", weights, *arguments)


def test_weights_that_are_none(tmp_path: Path, refused: Callable[..., str]) -> None:
    for name in (tmp_path, tmp_path / "none"):
        assert str(name) in refused("evaluate", name)


def test_figures_are_written(run: Run, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    mine = tmp_path / "mine.py"
    mine.write_text("v0 = 1\nif v0 % 10 > 0:\n  v0 += 1\n")
    calls = [
        ["representation"],
        ["paths", "--program", mine],
        ["pointer", "--model", folder, "--program", mine],
        ["accuracy", "--model", folder, "--lengths", "5,10", "--count", 2],
    ]
    for i, call in enumerate(calls):
        done = run("figure", *call, "--out", tmp_path / f"{i}.png")
        assert done.code == 0, done.err
        assert (tmp_path / f"{i}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["paths", "--out", "x.gif"], "must end in .svg, .pdf or .png"),
        (["paths", "--out", "gone/x.svg"], "there is no folder gone; make it first"),
        (["accuracy"], "name them with --model"),
        (["nonsense"], "accuracy"),
        (["representation", "--program", "a.py", "--program", "b.py"], "--program was given 2 times"),
    ],
)
def test_bad_figures(refused: Callable[..., str], arguments: list[str], sentence: str) -> None:
    assert sentence in refused("figure", *arguments)


def test_a_report_evaluates_what_is_not_evaluated_yet(run: Run, tmp_path: Path) -> None:
    folders = [make_run(tmp_path / "a"), make_run(tmp_path / "b", "partial", "line-rnn")]
    kept = run("evaluate", folders[0], "--count", 2, "--lengths", "5", "--save", "--json")
    before = (folders[0] / "evaluation.json").read_bytes()
    assert json.loads(before) == json.loads(kept.out)
    done = run("report", *folders, "--count", 3, "--lengths", "5,10", "--out", tmp_path / "out.html")
    assert done.code == 0, done.err
    assert (folders[0] / "evaluation.json").read_bytes() == before
    answer = json.loads((tmp_path / "out.json").read_text())
    assert [r["evaluation"]["overall"]["count"] for r in answer["runs"]] == [2, 6]
    assert "paper" not in (tmp_path / "out.md").read_text().splitlines()[0]  # these are not its test programs
    assert "<!doctype html>" in (tmp_path / "out.html").read_text()


def test_bad_reports(run: Run, tmp_path: Path, refused: Callable[..., str]) -> None:
    done = run("report", tmp_path, "--out", tmp_path / "x.html")
    assert done.code == 2
    assert "There is no run in" in done.err
    folder = make_run(tmp_path / "a")
    (folder / "evaluation.json").write_text("{")
    assert "evaluation.json is not JSON" in refused("report", folder, "--out", tmp_path / "x.html")
    assert run("report", folder, "--out", tmp_path / "x.pdf").code == 2
