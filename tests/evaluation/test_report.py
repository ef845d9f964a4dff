"""The page opens from disk, is small, and shows the numbers of the JSON beside it."""

import base64
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from ipagnn.evaluation import RunRecord, evaluate_on_test_set, paper, test_recipe
from ipagnn.evaluation.report import build_document, markdown, write_report
from ipagnn.evaluation.report_html import FORMATS, look_up
from ipagnn.models import ModelConfig, ProgramModel, build_model
from ipagnn.programs import Grammar
from ipagnn.training import TrainConfig

VOID = {"meta", "img", "br", "link"}


class Page(HTMLParser):
    """Numbers by key, and every tag that is opened or closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.numbers: list[tuple[str, str, str]] = []
        self.attributes: list[tuple[str, str, str]] = []
        self._now: tuple[str, str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        given = {key: value or "" for key, value in attrs}
        self.attributes += [(tag, key, value) for key, value in given.items()]
        if "data-key" in given:
            self._now = (given["data-key"], given["data-format"])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self._now = None

    def handle_data(self, data: str) -> None:
        if self._now:
            self.numbers.append((*self._now, data))


def run(folder: Path, name: str, model: ProgramModel, task: Any, seed: int, **result: Any) -> RunRecord:
    summary = evaluate_on_test_set(model, test_recipe(task, (5, 10), 10))
    starts = [
        {
            "command": ["ipagnn", "train", "<script>alert(1)</script>"],
            "commit": "abc",
            "versions": {"torch": "2"},
            "hardware": {"cpu": "a processor", "gpu": "a GPU & more"},
        }
    ]
    return RunRecord(folder / name, TrainConfig(model=model.config, task=task, seed=seed), result, starts, summary)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunRecord]:
    folder = tmp_path_factory.mktemp("runs")
    done = {"state": "finished", "examples": 1000, "seconds": 10.0, "accuracy": 0.5}
    ipa = build_model(ModelConfig(hidden=4))
    return [
        run(folder, "a", ipa, "full", 0, **done, joules=1234.5),
        run(folder, "b", build_model(ModelConfig(hidden=4), seed=1), "full", 1, **done),
        run(folder, "c", ipa, "partial", 0, **done),
        run(folder, "d", build_model(ModelConfig(name="r-gat", hidden=2)), "full", 0),
    ]


@pytest.fixture(scope="module")
def written(runs: list[RunRecord], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    model = build_model(ModelConfig(hidden=4)).eval()
    return write_report(runs, tmp_path_factory.mktemp("report") / "new" / "report.html", lambda _: model)


def test_numbers_on_the_page_are_those_of_the_json(written: tuple[Path, Path, Path]) -> None:
    page, table, numbers = written
    document = json.loads(numbers.read_text())
    html = Page()
    html.feed(page.read_text())
    html.close()
    assert html.open == []
    assert len(html.numbers) > 100
    for key, form, shown in html.numbers:
        assert FORMATS[form](look_up(document, key)) == shown, key
    shown = {key for key, _, _ in html.numbers}
    for i, row in enumerate(document["rows"]):
        for task in ("full", "partial"):
            for what in ("paper", "ours"):
                assert (row[task][what] is not None) == (f"rows.{i}.{task}.{what}" in shown)
    assert "runs.0.cost.joules" in shown
    assert "runs.1.cost.joules" not in shown
    assert table.read_text() == markdown(document)


def test_the_page_is_small_and_needs_no_network(written: tuple[Path, Path, Path]) -> None:
    text = written[0].read_text()
    html = Page()
    html.feed(text)
    assert len(text) < 5_000_000
    assert "<script" not in text
    assert not re.search(r"https?://", re.sub(r"base64,[A-Za-z0-9+/=]+", "", text))
    sources = [value for _, key, value in html.attributes if key in ("src", "href", "action", "data")]
    assert sources
    assert all(value.startswith("data:image/svg+xml;base64,") for value in sources)
    assert all(value for tag, key, value in html.attributes if (tag, key) == ("img", "alt"))
    assert len(sources) == 4  # accuracy, figure 4, the supplement full and masked


def test_every_row_of_the_paper_is_there_and_models_beyond_it(runs: list[RunRecord]) -> None:
    document = build_document(runs)
    by_model = {row["model"]: row for row in document["rows"]}
    assert {model for model, _ in paper.ACCURACY} | {"r-gat"} == set(by_model)
    assert {task: by_model["ipa-gnn"][task]["paper"] for task in ("full", "partial")} == {
        "full": 0.621,
        "partial": 0.291,
    }
    assert by_model["trace-rnn"]["full"]["ours"] is None
    first, second = (r.evaluation["overall"]["accuracy"] for r in runs[:2] if r.evaluation)
    full = by_model["ipa-gnn"]["full"]
    assert full["ours"] == pytest.approx((first + second) / 2)
    assert full["stderr"] == pytest.approx(abs(first - second) / 2)
    assert (full["runs"], full["count"]) == (2, 40)
    assert full["difference"] is None  # these are other programs than the paper's


def test_the_difference_is_that_of_runs_on_the_papers_test_set(runs: list[RunRecord]) -> None:
    on_test_set = [
        replace(run, evaluation={**run.evaluation, "set": {"name": "D_test"}}) for run in runs if run.evaluation
    ]
    full = {row["model"]: row["full"] for row in build_document(on_test_set)["rows"]}["ipa-gnn"]
    assert full["difference"] == pytest.approx(full["ours"] - 0.621)
    mixed = build_document([on_test_set[0], *runs[1:]])
    assert {row["model"]: row["full"] for row in mixed["rows"]}["ipa-gnn"]["difference"] is None


def test_the_pointer_of_another_language_is_drawn_on_programs_of_that(runs: list[RunRecord], tmp_path: Path) -> None:
    grammar = Grammar(modulus=10, initial_values=(7, 7), operands=(3, 3), loop_counts=(2, 2), condition_operands=(4, 4))
    model = build_model(ModelConfig(hidden=4, grammar=grammar)).eval()
    page, _, _ = write_report(runs[:1], tmp_path / "report.html", lambda _: model)
    pictures = [base64.b64decode(code).decode() for code in re.findall(r"svg\+xml;base64,([^\"]+)", page.read_text())]
    assert len(pictures) == 2
    assert "on programs of its language" in page.read_text()
    assert "v0 = 7" in pictures[1]
    assert not re.search(r"v0 = [^7]|v0 .= [^3]", pictures[1])


def test_what_is_not_comparable_is_said(runs: list[RunRecord]) -> None:
    notes = " ".join(build_document(runs)["notes"])
    assert "Not measured on the paper's test set" in notes
    assert "Training had not finished: d." in notes


def test_markdown_by_hand() -> None:
    told = {"possible": True, "paper": 0.621, "ours": 0.7, "stderr": 0.012}
    document = {"rows": [{"title": "IPA-GNN", "full": told, "partial": told | {"ours": None}}], "notes": ["A note."]}
    assert markdown(document).splitlines()[2:] == ["| IPA-GNN | 62.1 | 70.0 ± 1.2 | 62.1 | — |", "", "A note."]


def test_bad_requests(runs: list[RunRecord], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in \.html"):
        write_report(runs, tmp_path / "report.txt")
    with pytest.raises(ValueError, match="no runs to report"):
        write_report([], tmp_path / "report.html")
    bare = RunRecord(tmp_path / "e", TrainConfig())
    with pytest.raises(ValueError, match="has not been evaluated; run `ipagnn evaluate"):
        write_report([bare], tmp_path / "report.html")
