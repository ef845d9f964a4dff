"""Figures: what they show, that their texts fit, and that they can be told apart in grey."""

from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from ipagnn.languages.arithmetic import Lengths, Sampler, parse, value
from ipagnn.models import MODELS, ProgramModel, build_model
from ipagnn.reporting import figures, paper
from ipagnn.reporting.columns import SHADES, Edge, _lanes, graph_edges
from ipagnn.reporting.figure_accuracy import accuracy_figure, curves
from ipagnn.reporting.figure_pointer import pointer_figure, trace_pointer
from ipagnn.reporting.style import FORMATS, LOOKS, figure_bytes, line_looks, save, style


def summary(model: str, task: str, accuracy: float, lengths: tuple[int, ...] = (20, 30)) -> dict[str, Any]:
    row = {"accuracy": accuracy, "stderr": 0.02, "count": 50}
    return {"model": model, "task": task, "overall": row, "by_length": {str(n): row for n in lengths}}


def texts(figure: Figure) -> list[tuple[Text, Bbox]]:
    with style():
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        renderer = canvas.get_renderer()
        found = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
        return [(t, t.get_window_extent(renderer)) for t in found]


def assert_texts_fit(figure: Figure) -> None:
    boxes = texts(figure)
    page = figure.bbox
    for text, box in boxes:
        inside = page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1
        assert inside, f"{text.get_text()!r} is cut off"
        assert text.get_fontsize() >= 5, f"{text.get_text()!r} is too small to read"
    for (one, a), (other, b) in combinations(boxes, 2):
        overlap = min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 2
        assert not overlap, f"{one.get_text()!r} overlaps {other.get_text()!r}"


def test_the_check_of_texts_can_fail() -> None:
    figure = figures.paths()
    figure.text(0.99, 0.5, "cut off on the right")
    with pytest.raises(AssertionError, match="is cut off"):
        assert_texts_fit(figure)
    figure = figures.paths()
    figure.text(0.05, 0.5, "across the source")
    with pytest.raises(AssertionError, match="overlaps"):
        assert_texts_fit(figure)


@pytest.mark.parametrize("name", figures.POINTER_FIGURES)
def test_texts_of_pointer_figures_fit(ipa_gnn: ProgramModel, name: str) -> None:
    assert_texts_fit(figures.POINTER_FIGURES[name][1](ipa_gnn))


def test_texts_of_tables_fit(ipa_gnn: ProgramModel) -> None:
    assert_texts_fit(figures.representation())
    assert_texts_fit(figures.paths())
    assert_texts_fit(figures.paths(None, ipa_gnn))


@pytest.mark.parametrize("task", ["full", "partial"])
def test_texts_of_long_programs_fit(ipa_gnn: ProgramModel, task: Any) -> None:
    program = Sampler(task, Lengths.exact(50), seed=4).table(0, 1)[0]
    assert_texts_fit(figures.given(ipa_gnn, [program, parse("v0 = 1")]))
    assert_texts_fit(figures.representation(program))


@pytest.mark.parametrize("trained", [[], [10]])
@pytest.mark.parametrize("tasks", [["full"], ["partial"], ["full", "partial"]])
@pytest.mark.parametrize("count", [1, 2, 5, len(MODELS)])
def test_texts_of_the_accuracy_figure_fit(count: int, tasks: list[str], trained: list[int]) -> None:
    named = list(paper.ORDER)[:count]
    found = [summary(m, t, 0.5, tuple(range(20, 101, 10))) for m in named for t in tasks]
    found[0]["ceiling"] = {"by_length": {"20": {"best": 0.5}, "30": {"best": 0.6}}}
    figure = accuracy_figure(found, trained)
    assert_texts_fit(figure)
    assert figure.get_figwidth() == 6.8
    assert [axes.get_title()[:3] for axes in figure.axes] == (["(a)", "(b)"] if len(tasks) > 1 else ["Exe"])
    legends = [[text.get_text() for text in legend.get_texts()] for legend in figure.legends]
    assert all(("training: up to 10 lines" in labels) == bool(trained) for labels in legends)


def test_training_lengths_are_shaded_where_all_runs_share_them() -> None:
    found = [summary("ipa-gnn", "full", 0.5)]
    band = accuracy_figure(found, [10, 10]).axes[0].patches[0]
    assert (band.get_x(), band.get_width()) == (0, 10)
    assert not accuracy_figure(found, [10, 6]).axes[0].patches


def test_bands_are_not_cut_off() -> None:
    rough = summary("ipa-gnn", "full", 0.54, (5,))
    rough["by_length"]["5"]["stderr"] = 0.08
    assert accuracy_figure([rough]).axes[0].get_ylim() == (0, 80)


VARIANTS = ("", "decoder", "edge types", "enough steps", "decoder, enough steps", "edge types, enough steps")


def test_labels_of_variants_fit() -> None:
    found = [summary("ipa-gnn", "full", 0.5, (20, 30)) | {"variant": variant} for variant in VARIANTS]
    found += [summary("line-rnn", "partial", 0.4, (20, 30)) | {"variant": variant} for variant in VARIANTS]
    figure = accuracy_figure(found)
    assert_texts_fit(figure)
    left, right = (legend.get_window_extent() for legend in figure.legends)  # with the lines beside their texts
    assert figure.bbox.x0 <= left.x0 < left.x1 <= right.x0 < right.x1 <= figure.bbox.x1


def test_variants_of_a_model_differ_in_their_markers() -> None:
    variants = ("", "enough steps", "enough steps, taught by traces")
    lines = (
        accuracy_figure([summary("ipa-gnn", "full", 0.5, (20, 30)) | {"variant": variant} for variant in variants])
        .axes[0]
        .get_lines()
    )
    assert len({(line.get_fillstyle(), line.get_markerfacecolor()) for line in lines}) == len(lines) == 3


@pytest.mark.parametrize("kind", FORMATS)
def test_formats(tmp_path: Path, kind: str) -> None:
    path = save(figures.paths(), tmp_path / "new" / f"figure.{kind}")
    assert path.read_bytes().startswith({"pdf": b"%PDF", "svg": b"<?xml", "png": b"\x89PNG"}[kind])
    assert path.read_bytes() == figure_bytes(figures.paths(), kind)  # the same figure, the same file
    with pytest.raises(ValueError, match=r"must end in \.pdf, \.svg or \.png"):
        save(figures.paths(), tmp_path / "figure.jpg")


def test_looks_differ_in_more_than_colour() -> None:
    assert set(LOOKS) == set(MODELS)
    assert set(paper.ORDER) == set(MODELS) - {"env-ipa-gnn"}
    looks = line_looks([*LOOKS, "a-ninth", "a-tenth"])
    assert len(looks) == len(LOOKS) + 2
    for one, other in combinations(looks.values(), 2):
        assert one.colour != other.colour
        assert one.marker != other.marker
        assert one.dashes != other.dashes


def test_shades_darken_evenly_in_grey() -> None:
    grey = [0.299 * r + 0.587 * g + 0.114 * b for r, g, b in (to_rgb(SHADES(i / 50)) for i in range(51))]
    steps = [a - b for a, b in pairwise(grey)]
    assert min(steps) > 0.005
    assert max(steps) < 0.05


@given(st.sets(st.tuples(st.integers(0, 20), st.integers(0, 20)).filter(lambda e: e[0] != e[1]), max_size=20))
@settings(max_examples=50, deadline=None)
def test_no_two_edges_share_a_lane_beside_the_same_lines(pairs: set[tuple[int, int]]) -> None:
    lanes = _lanes([Edge(*pair) for pair in pairs])
    assert len(lanes) == len(pairs)
    for one, other in combinations(lanes, 2):
        if lanes[one] == lanes[other]:
            a, b = sorted((one.source, one.target)), sorted((other.source, other.target))
            assert a[1] <= b[0] or b[1] <= a[0]


def test_pointer_rows_are_lines() -> None:
    model = build_model("ipa-gnn", hidden=4).eval()
    program = parse(paper.PATHS)
    (found,) = trace_pointer(model, [program])
    assert found.pointer.shape[1] == len(program) + 1
    assert [bool(x) for x in (found.pointer[0] != found.pointer[0])] == [
        False,
        False,
        False,
        True,
        False,
        False,
    ]  # else
    assert found.pointer[0, 0] == 1
    assert found.pointer[-1, -1] == pytest.approx(1, abs=1e-5)
    assert found.true_lines == [0, 1, 4, 5][: len(found.pointer)]
    assert found.value == 405


def test_masked_programs_show_the_value_of_the_complete_ones() -> None:
    model = build_model("ipa-gnn", hidden=4).eval()
    complete, masked = (parse(source[0]) for source in (paper.SUPPLEMENT, paper.SUPPLEMENT_MASKED))
    (found,) = trace_pointer(model, [masked], [complete])
    assert found.value == value(complete)
    assert found.true_lines == []
    assert trace_pointer(model, [masked])[0].value is None


def test_models_without_a_pointer_cannot_be_drawn() -> None:
    model = build_model("line-rnn", hidden=2)
    with pytest.raises(ValueError, match="line-rnn has no instruction pointer"):
        trace_pointer(model, [parse("v0 = 1")])
    with pytest.raises(ValueError, match="makes no branch decisions"):
        figures.paths(None, model)


def test_programs_of_the_paper_are_what_it_prints() -> None:
    for source in (*paper.SUPPLEMENT, *(s for group in paper.POINTER for s in group)):
        assert not parse(source).is_partial
    assert [parse(source).masked_lines for source in paper.SUPPLEMENT_MASKED] == [(9,), (2,), (1,), (8,)]
    edges, lines = graph_edges(parse(paper.REPRESENTATION))
    assert lines == list(range(9))
    assert {(e.source, e.target) for e in edges if e.dashed} == {(2, 8), (4, 7)}


def test_curves_by_hand() -> None:
    runs = [summary("ggnn", "full", 0.2), summary("ipa-gnn", "full", 0.6), summary("ipa-gnn", "full", 0.8)]
    runs.append(summary("ipa-gnn", "partial", 0.3))
    first, second = curves(runs, "full")
    assert (first.model, first.runs, first.lengths) == ("ipa-gnn", 2, [20, 30])
    assert first.accuracy == pytest.approx([0.7, 0.7])
    assert first.stderr == pytest.approx([0.1, 0.1])  # deviation 0.1·sqrt(2) over sqrt(2)
    assert (second.model, second.stderr) == ("ggnn", [0.02, 0.02])
    with pytest.raises(ValueError, match="no results to draw"):
        accuracy_figure([])


def test_figures_leave_settings_as_they_were() -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    figure_bytes(pointer_figure([trace_pointer(build_model("ipa-gnn", hidden=2), [parse("v0 = 1")])]))
    assert dict(mpl.rcParams) == before
