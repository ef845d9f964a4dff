"""The page opens from disk, is small, and shows the numbers of the JSON beside it."""

import base64
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from ipagnn.evaluation import build_test_recipe, evaluate_on_test_set
from ipagnn.languages.arithmetic import AUTHORS, Grammar
from ipagnn.models import MODELS, ProgramModel, build_model, model_config
from ipagnn.reporting.card import model_card
from ipagnn.reporting.figure_accuracy import curves
from ipagnn.reporting.formats import FORMATS
from ipagnn.reporting.report import build_document, write_report
from ipagnn.reporting.report_html import look_up
from ipagnn.reporting.report_markdown import BEGIN, END, markdown, write_into
from ipagnn.reporting.runs import RunRecord
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
    summary = evaluate_on_test_set(model, build_test_recipe(task, (5, 10), 10))
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
    ipa = build_model("ipa-gnn", hidden=4)
    return [
        run(folder, "a", ipa, "full", 0, **done),
        run(folder, "b", build_model("ipa-gnn", hidden=4, seed=1), "full", 1, **done),
        run(folder, "c", ipa, "partial", 0, **done),
        run(folder, "d", build_model("r-gat", hidden=2), "full", 0),
    ]


@pytest.fixture(scope="module")
def written(runs: list[RunRecord], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path, Path]:
    model = build_model("ipa-gnn", hidden=4).eval()
    return write_report(runs, tmp_path_factory.mktemp("report") / "new" / "report.html", lambda _: model)


def test_numbers_on_the_page_are_those_of_the_json(written: tuple[Path, ...]) -> None:
    page, table, numbers, picture = written
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
            assert (row[task]["ours"] is not None) == (f"rows.{i}.{task}.ours" in shown)
    assert "runs.0.cost.seconds" in shown
    assert "runs.3.cost.seconds" not in shown
    assert table.read_text() == markdown(document)
    assert base64.b64encode(picture.read_bytes()).decode() in page.read_text()


def test_the_page_is_small_and_needs_no_network(written: tuple[Path, ...]) -> None:
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


def test_every_model_with_runs_has_a_row_and_no_other(runs: list[RunRecord]) -> None:
    document = build_document(runs)
    by_model = {row["model"]: row for row in document["rows"]}
    assert list(by_model) == ["ipa-gnn", "r-gat"]
    assert by_model["r-gat"]["partial"]["ours"] is None
    first, second = (r.evaluation["overall"]["accuracy"] for r in runs[:2] if r.evaluation)
    full = by_model["ipa-gnn"]["full"]
    assert full["ours"] == pytest.approx((first + second) / 2)
    assert full["stderr"] == pytest.approx(abs(first - second) / 2)
    assert (full["runs"], full["count"]) == (2, 20)
    assert full["difference"] is None  # these are other programs than the paper's


def test_a_model_that_is_not_the_papers_is_reported_by_its_title(
    runs: list[RunRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ninth(MODELS["line-rnn"]):  # type: ignore[misc]
        name = "ninth"
        title = "Ninth model"

    monkeypatch.setitem(MODELS, "ninth", Ninth)
    config = TrainConfig(model=model_config("ninth", hidden=4))
    assert runs[0].evaluation is not None
    evaluation, result = runs[0].evaluation | {"model": "ninth"}, runs[0].result | {"step": 10}
    ninth = replace(runs[0], config=config, result=result, evaluation=evaluation)
    page, table, _, _ = write_report([runs[0], ninth], tmp_path / "report.html")
    assert [row["title"] for row in build_document([ninth, runs[0]])["rows"]] == ["IPA-GNN", "Ninth model"]
    assert "| Ninth model |" in table.read_text()
    assert "Ninth model" in page.read_text()
    assert model_card(ninth, "ninth-full", "a-record", 0, 10).startswith("# ninth-full\n\nNinth model with 4 hidden")
    monkeypatch.setattr(Ninth, "title", "")
    assert build_document([ninth])["rows"][0]["title"] == "ninth"


def test_tasks_without_runs_have_no_columns(runs: list[RunRecord]) -> None:
    document = build_document(runs[2:3])
    assert document["tasks"] == ["partial"]
    assert "full" not in markdown(document)


def changed(run: RunRecord, accuracy: float, validation: float, **settings: Any) -> RunRecord:
    assert run.evaluation is not None
    overall = {"accuracy": accuracy, "stderr": 0.01, "count": 4500}
    return replace(
        run,
        config=run.config.replace(**settings),
        result=run.result | {"accuracy": validation},
        evaluation={**run.evaluation, "overall": overall, "set": {"name": "D_test"}},
    )


def test_runs_that_differ_in_the_seed_alone_are_averaged_and_validation_chooses_the_settings(
    runs: list[RunRecord],
) -> None:
    a = runs[0]
    document = build_document(
        [
            changed(a, 0.60, 0.80, seed=1),
            changed(a, 0.64, 0.82, seed=2, log_every=7, device="cpu"),
            changed(a, 0.70, 0.75, learning_rate=0.5),  # better on the test set, which may not choose
            runs[1],  # measured on other programs than the paper's
        ]
    )
    groups = document["groups"]
    assert sorted(group["runs"] for group in groups) == [[0, 1], [2], [3]]
    row = document["rows"][0]["full"]
    assert groups[row["group"]]["runs"] == [0, 1]
    assert row["ours"] == pytest.approx(0.62)
    assert row["stderr"] == pytest.approx(0.02)
    assert row["difference"] == pytest.approx(-0.001)
    chosen = groups[row["group"]]
    assert chosen["validation"]["mean"] == pytest.approx(0.81)
    assert (chosen["test"]["least"], chosen["test"]["largest"]) == (0.60, 0.64)
    assert "62.0 ± 2.0 (60.0 to 64.0)" in markdown(document)


def test_runs_trained_with_enough_steps_have_a_row_of_their_own(runs: list[RunRecord]) -> None:
    steps = changed(runs[0], 0.70, 0.75, budget="static")  # validation with T(x) steps does not speak for it
    rows = build_document([changed(runs[0], 0.60, 0.80), steps])["rows"]
    assert [(row["title"], row["full"]["ours"]) for row in rows] == [
        ("IPA-GNN", 0.60),
        ("IPA-GNN, enough steps", 0.70),
    ]
    further = replace(changed(steps, 0.74, 0.72, learning_rate=0.5), trained=0.9)  # fresh programs of training choose
    assert build_document([replace(steps, trained=0.8), further])["rows"][0]["full"]["ours"] == 0.74
    assert build_document([replace(steps, trained=0.95), further])["rows"][0]["full"]["ours"] == 0.70
    assert replace(changed(steps, 0.7, 0.75, source="programs"), trained=0.99).selects == 0.75  # may have been seen
    found = {"model": "ipa-gnn", "task": "full", "by_length": {}}
    drawn = curves(
        [found | {"overall": {"accuracy": x}, "variant": v} for x, v in ((0.6, ""), (0.7, "enough steps"))], "full"
    )
    assert [(curve.variant, curve.overall) for curve in drawn] == [("enough steps", 0.7), ("", 0.6)]


def test_runs_with_the_releases_decoder_have_a_row_of_their_own(runs: list[RunRecord]) -> None:
    model = model_config("line-rnn", hidden=8)
    line = changed(runs[0], 0.2, 0.80, model=model)
    decoder = changed(runs[0], 0.3, 0.75, model=model.replace(decoder=True))
    rows = build_document([decoder, line])["rows"]
    assert [(row["title"], row["full"]["ours"]) for row in rows] == [
        ("Line-by-Line RNN", 0.2),
        ("Line-by-Line RNN, decoder", 0.3),
    ]


def test_no_control_with_edge_types_has_a_row_of_its_own(runs: list[RunRecord]) -> None:
    model = model_config("no-control", hidden=8)
    plain = changed(runs[0], 0.2, 0.50, model=model)
    typed = changed(runs[0], 0.3, 0.75, model=model.replace(edge_types=True))
    rows = build_document([typed, plain])["rows"]
    assert [(row["title"], row["full"]["ours"]) for row in rows] == [("NoControl", 0.2), ("NoControl, edge types", 0.3)]


def test_the_difference_is_that_of_runs_on_the_papers_test_set(runs: list[RunRecord]) -> None:
    on_test_set = [
        replace(run, evaluation={**run.evaluation, "set": {"name": "D_test"}}) for run in runs if run.evaluation
    ]
    full = {row["model"]: row["full"] for row in build_document(on_test_set)["rows"]}["ipa-gnn"]
    assert full["difference"] == pytest.approx(full["ours"] - 0.621)
    mixed = build_document(
        [on_test_set[0], *runs[1:]]
    )  # runs with the same settings on other programs are no part of it
    full = {row["model"]: row["full"] for row in mixed["rows"]}["ipa-gnn"]
    assert full["runs"] == 1
    assert full["difference"] is not None


def test_authors_labels_are_compared_with_the_paper_but_are_a_group_of_their_own(runs: list[RunRecord]) -> None:
    plain = changed(runs[0], 0.60, 0.80)
    limited = replace(
        plain,
        config=plain.config.replace(model=plain.config.model.replace(grammar=AUTHORS)),
        evaluation={**(plain.evaluation or {}), "set": {"name": "D_test with the authors' labels"}},
    )
    document = build_document([plain, replace(limited, result={**limited.result, "accuracy": 0.90})])
    assert document["rows"][0]["full"]["group"] == 0  # the true values first, whatever validation says
    words = {group["runs"][0]: group["description"] for group in document["groups"]}
    assert words[1] == f"{words[0]}, authors' labels"
    assert [group["difference"] for group in document["groups"]] == pytest.approx([0.60 - 0.621] * 2)
    assert not any("Not measured" in note for note in document["notes"])
    assert build_document([limited])["rows"][0]["full"]["difference"] == pytest.approx(0.60 - 0.621)


def test_the_pointer_of_another_language_is_drawn_on_programs_of_that(runs: list[RunRecord], tmp_path: Path) -> None:
    grammar = Grammar(modulus=10, initial_values=(7, 7), operands=(3, 3), loop_counts=(2, 2), condition_operands=(4, 4))
    model = build_model("ipa-gnn", hidden=4, grammar=grammar).eval()
    page, *_ = write_report(runs[:1], tmp_path / "report.html", lambda _: model)
    pictures = [base64.b64decode(code).decode() for code in re.findall(r"svg\+xml;base64,([^\"]+)", page.read_text())]
    assert len(pictures) == 2
    assert "on programs of its language" in page.read_text()
    assert "v0 = 7" in pictures[1]
    assert not re.search(r"v0 = [^7]|v0 .= [^3]", pictures[1])


def test_the_papers_numbers_stand_beside_those_on_its_test_set_alone(runs: list[RunRecord], tmp_path: Path) -> None:
    alone, mixed = build_document(runs), build_document([changed(runs[0], 0.60, 0.80), *runs[1:]])
    assert (alone["compared"], mixed["compared"]) == ([], ["full"])
    assert "so its numbers are not given" in " ".join(alone["notes"])
    assert "Training had not finished: d." in " ".join(alone["notes"])
    assert "Not measured on the paper's test set of 4,500 programs" in " ".join(mixed["notes"])
    page, table, *_ = write_report(runs, tmp_path / "report.html")
    for text in (table.read_text(), re.sub(r"base64,[A-Za-z0-9+/=]+", "", page.read_text())):
        assert not re.search(r"62\.1|29\.1|paper( \||</th>)", text)
    assert "paper against" not in page.read_text()
    rows = {row["model"]: row for row in mixed["rows"]}
    assert (rows["ipa-gnn"]["full"]["paper"], rows["ipa-gnn"]["partial"]["paper"]) == (0.621, None)
    assert rows["r-gat"]["full"]["paper"] is None
    assert markdown(mixed).splitlines()[0] == "| model | full: paper | full: ours | partial |"
    page, *_ = write_report([changed(runs[0], 0.60, 0.80), *runs[1:]], tmp_path / "mixed.html")
    assert "rows.0.full.paper" in page.read_text()
    assert "rows.0.partial.paper" not in page.read_text()


def test_markdown_by_hand(runs: list[RunRecord], tmp_path: Path) -> None:
    run = changed(runs[0], 0.7, 0.812, batch_size=1024, averaging=0.999, schedule="cosine", curriculum=0.2)
    run = replace(run, result=run.result | {"step": 12_345, "examples": 12_640_000, "seconds": 150.0})
    document = build_document([run])
    lines = markdown(document).splitlines()
    assert lines[2] == "| IPA-GNN | 62.1 | 70.0 ± 1.0 |"
    assert lines[6] == (
        "| 1 | IPA-GNN | full | H 4, Adam at 0.001, cosine decay, weights averaged (0.999), even lengths for 20% | a | "
        "a GPU & more | 1,024 | 12,345 | 12.6 M | 2.5 min | 81.2 | 70.0 ± 1.0 | 62.1 |"
    )
    assert lines[8].startswith("|  | by length | task | 5 | 10 |")
    (tmp_path / "a").mkdir()
    assert "| [seed 0](a) |" in markdown(document, tmp_path)


def test_tables_go_between_the_marks_of_a_file(runs: list[RunRecord], tmp_path: Path) -> None:
    document = build_document(runs)
    file = tmp_path / "README.md"
    file.write_text(f"# Before\n\n{BEGIN}\nold\n{END}\n\nafter\n")
    for _ in range(2):  # the second time in place of the first
        write_into(file, document)
        assert file.read_text() == f"# Before\n\n{BEGIN}\n\n{markdown(document)}\n{END}\n\nafter\n"
    file.write_text(f"{END} {BEGIN}")
    with pytest.raises(ValueError, match="has no place for the tables"):
        write_into(file, document)


def test_bad_requests(runs: list[RunRecord], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in \.html"):
        write_report(runs, tmp_path / "report.txt")
    with pytest.raises(ValueError, match="no runs to report"):
        write_report([], tmp_path / "report.html")
    bare = RunRecord(tmp_path / "e", TrainConfig())
    with pytest.raises(ValueError, match="has not been evaluated; run `ipagnn evaluate"):
        write_report([bare], tmp_path / "report.html")
