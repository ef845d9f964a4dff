"""A third task, and a metric, from one place each: the code of docs/extending.md."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from rich.console import Console

import ipagnn
from ipagnn.cli.summary_text import print_summary
from ipagnn.data import TASKS, Target, Task, check_batch, find_task, recipe, register_task
from ipagnn.evaluation import evaluate, summarise
from ipagnn.evaluation.answers import Answers
from ipagnn.evaluation.metrics import METRICS, Metric, measure
from ipagnn.languages.arithmetic import ProgramTable, parse
from ipagnn.models import MODELS, Output, build_model, load_model, register_file, save_model
from ipagnn.models.line_rnn import LineRNN
from ipagnn.nn.targets import target_correct, target_loss
from ipagnn.server.models import Offer
from ipagnn.training import preset, train

PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
(VISITS,) = (code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "VisitsGGNN" in code)
LOOP = "v0 = 3\nif v0 % 10 > 5:\n  v0 += 1\nv0 -= 2"


@pytest.fixture
def visits(tmp_path: Path) -> Iterator[Task]:
    """The task of the page and its model, known for the length of a test."""
    models, tasks = dict(MODELS), dict(TASKS)
    (tmp_path / "visits.py").write_text(VISITS)
    assert register_file(tmp_path / "visits.py") == ["visits-ggnn"]
    yield TASKS["visits"]
    for registry, before in ((MODELS, models), (TASKS, tasks)):
        for name in set(registry) - set(before):
            del registry[name]


def test_the_target_of_visits_by_hand(visits: Task) -> None:
    model = build_model("visits-ggnn", hidden=4)
    batch = model.collate([parse(LOOP), parse("v0 = 3")])
    check_batch(batch, visits.targets)
    assert batch.targets["visited"].tolist() == [True, True, False, True, True, True, True]  # exits are the last two
    assert model.collator()([(parse(LOOP), 1)]).targets["visited"].tolist() == [True, True, False, True, True]


def test_a_model_without_values_is_refused_where_values_are_asked_for(visits: Task, tmp_path: Path) -> None:
    save_model(build_model("visits-ggnn", hidden=4), tmp_path / "visits.safetensors")
    for ask in (ipagnn.predict, ipagnn.explain):
        with pytest.raises(ValueError, match="predicts visited, and not the value of a program"):
            ask(LOOP, tmp_path / "visits.safetensors")
    with pytest.raises(ValueError, match="The model visits predicts visited"):
        Offer([tmp_path / "visits.safetensors"]).warm_up()


def test_loss_and_right_answers_follow_from_the_mask(visits: Task) -> None:
    model = build_model("visits-ggnn", hidden=4)
    batch = model.collate([parse(LOOP), parse("v0 = 3")])
    logits = torch.tensor([1.0, 2.0, -1.0, 1.0, 3.0, 1.0, -0.5], requires_grad=True)
    output = Output({"visited": logits})
    sure = torch.sigmoid(torch.tensor([1.0, 2.0, 1.0, 1.0, 3.0, 1.0, -0.5])).log()
    torch.testing.assert_close(model.loss(output, batch).detach(), -torch.stack([sure[:5].mean(), sure[5:].mean()]))
    assert model.correct(output, batch).tolist() == [True, False]


def test_a_third_task_trains_and_evaluates(visits: Task, tmp_path: Path) -> None:
    config = preset("smoke", "visits-ggnn", "visits").replace(examples=640, validation_every=640, validation_count=50)
    train(config, tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if line["kind"] == "train"]
    assert losses[-1] < 0.7 * losses[0]
    model = load_model(tmp_path / "run")
    assert model.task == "visits"
    table = recipe("test", "visits", 60, grammar=config.model.grammar).table(0, 60)
    evaluation = evaluate(model, table, batch_bytes=2**20)
    assert evaluation.task == "visits"
    batch = model.collate(table)
    with torch.inference_mode():
        output = model(batch)
    expected, said = (output.predictions["visited"] > 0).numpy(), evaluation.answers["visited"]
    assert np.array_equal(said.target, batch.targets["visited"].numpy())
    assert np.mean(said.prediction == expected) > 0.999  # but for rounding
    assert np.array_equal(said.offsets, batch.node_offsets.numpy())
    assert evaluation.correct.sum() == evaluation.score.correct
    assert evaluation.score.loss == pytest.approx(float(model.loss(output, batch).mean()), rel=1e-5)
    summary = summarise(evaluation)
    assert set(summary["targets"]["visited"]) == {"accuracy", "f1"}
    assert "top" not in summary


def test_masked_programs_and_unknown_tasks_are_refused(visits: Task) -> None:
    model = build_model("visits-ggnn", hidden=4)
    with pytest.raises(ValueError, match="Program 0 is partial; all must be full, which is what visits-ggnn reads"):
        evaluate(model, recipe("test", "partial", 9).table(0, 9))
    with pytest.raises(ValueError, match=r"no task 'visit'\. Did you mean 'visits'"):
        preset("smoke", "visits-ggnn", "visit")
    with pytest.raises(ValueError, match="visits-ggnn cannot be trained on the full task, only on visits"):
        preset("smoke", "visits-ggnn", "full")
    with pytest.raises(ValueError, match="ipa-gnn cannot be trained on the visits task, only on full and partial"):
        preset("smoke", "ipa-gnn", "visits")
    with pytest.raises(ValueError, match="'full' is taken"):
        register_task(replace(visits, name="full"))
    with pytest.raises(ValueError, match="reads traces, and masked programs have none"):
        replace(visits, programs="partial")
    with pytest.raises(ValueError, match=r"has the targets \['visited', 'visited'\]"):
        Task("twice", visits.targets * 2)
    assert find_task("partial").masked
    assert not find_task(visits).masked


@pytest.mark.slow
def test_a_third_task_is_trained_evaluated_reported_and_drawn_by_the_commands_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "visits.py").write_text(VISITS)
    (commands,) = re.findall(r"```sh\n(ipagnn train runs/visits .*?)```", PAGE, re.DOTALL)
    environment = os.environ | {"PYTHONPATH": str(Path(ipagnn.__file__).parents[1])}
    printed = ""
    for command in commands.strip().splitlines():
        arguments = [sys.executable, "-m", *command.split()]
        done = subprocess.run(arguments, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stderr)
        printed += done.stdout
    assert "f1 of visited" in printed
    report = json.loads((tmp_path / "visits.json").read_text())
    assert report["tasks"] == ["visits"]
    assert report["runs"][0]["evaluation"]["targets"]["visited"]["f1"] > 0.5
    for name in ("visits.html", "visits.md"):
        assert "f1 of visited" in (tmp_path / name).read_text()
    assert "visits" in (tmp_path / "visits.svg").read_text()


def test_loss_of_a_count_is_that_of_a_poisson_distribution_and_metrics_are_by_hand(short: ProgramTable) -> None:
    lines = Target("lines", "count", "program", lambda table, _: torch.from_numpy(table.lengths))
    batch = build_model("line-rnn", hidden=2).collate(short)
    batch.targets["lines"] = torch.from_numpy(short.lengths)
    log_mean = torch.linspace(0.0, 3.0, len(short), dtype=torch.float64)
    expected = -torch.distributions.Poisson(log_mean.exp()).log_prob(batch.targets["lines"])
    loss = target_loss(lines, log_mean, batch)
    torch.testing.assert_close(loss, expected - torch.lgamma(batch.targets["lines"] + 1.0).double())
    exact = batch.targets["lines"].double().log()
    assert target_correct(lines, exact, batch).all()
    assert not target_correct(lines, exact + 1.0, batch).any()
    answers = Answers(kind="count", target=np.array([1, 2, 3, 4]), prediction=np.array([1, 2, 5, 3]))
    assert measure({"lines": answers}) == {"lines": {"exact": 0.5, "mean_absolute_error": 0.75}}


def test_f1_by_hand() -> None:
    target, prediction = np.array([True, True, True, False]), np.array([True, False, False, True])
    told = measure({"ran": Answers(kind="mask", target=target, prediction=prediction)})["ran"]
    assert told == {"accuracy": 0.25, "f1": pytest.approx(2 * 1 / (3 + 2))}
    nothing = np.zeros(4, np.bool_)
    assert measure({"ran": Answers(kind="mask", target=nothing, prediction=nothing)})["ran"]["f1"] == 1.0


def test_the_loss_of_several_targets_is_their_sum_and_all_must_be_right(short: ProgramTable) -> None:
    lines = Target("lines", "count", "program", lambda table, _: torch.from_numpy(table.lengths))
    both = register_task(Task("both", (*find_task("full").targets, lines)))
    try:

        class Both(LineRNN):
            tasks: ClassVar[tuple[str, ...]] = ("both",)

        model = Both(hidden=2)
        batch = model.collate(short)
        check_batch(batch, both.targets)
        output = Output({"value": model(batch).logits, "lines": torch.from_numpy(short.lengths).log()})
        parts = [target_loss(each, output.predictions[each.name], batch) for each in both.targets]
        torch.testing.assert_close(model.loss(output, batch), parts[0] + parts[1])
        value = output.logits.argmax(dim=1) == batch.target
        assert torch.equal(model.correct(output, batch), value)
        wrong = Output(output.predictions | {"lines": torch.zeros(len(short))})
        assert not model.correct(wrong, batch).any()
    finally:
        del TASKS["both"]


def test_one_more_metric_is_measured_and_printed(full_programs: ProgramTable, monkeypatch: pytest.MonkeyPatch) -> None:
    even = Metric("even_predictions", frozenset({"class"}), lambda answers: float((answers.prediction % 2 == 0).mean()))
    monkeypatch.setattr("ipagnn.evaluation.metrics.METRICS", [*METRICS, even])
    model = build_model("line-rnn", hidden=2)
    evaluation = evaluate(model, full_programs)
    summary = summarise(evaluation)
    share = float((evaluation.prediction % 2 == 0).mean())
    assert summary["targets"]["value"]["even_predictions"] == share
    console = Console(record=True, width=120)
    described = {"weights": "w", "set": {"name": "test", "count": len(full_programs)}}
    print_summary(console, summary | described, first=True)
    assert f"even predictions of value: {share:.1%}" in console.export_text()


def test_a_file_may_hold_a_task_alone(tmp_path: Path) -> None:
    (tmp_path / "task_alone.py").write_text(VISITS[: VISITS.index("@register\n")].replace('"visits"', '"visits-alone"'))
    try:
        assert register_file(tmp_path / "task_alone.py") == []
        assert register_file(tmp_path / "task_alone.py") == []  # imported once
        assert TASKS["visits-alone"].trace
    finally:
        del TASKS["visits-alone"]


def test_the_page_left_nothing_behind() -> None:
    assert set(TASKS) == {"full", "partial"}
    assert "visits-ggnn" not in MODELS
