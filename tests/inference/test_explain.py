"""`explain`: from Python and from the command line."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from ipagnn.cli.explain_text import BLOCKS, print_explanation
from ipagnn.evaluation.pointer import measure_pointer
from ipagnn.inference.explain import SHOWN_STEPS, Explanation, explain
from ipagnn.languages.arithmetic import PAPER, Lengths, Sampler, format_program, trace
from ipagnn.models import ProgramModel, build_model, save_model

from .conftest import decided

Run = Callable[..., Any]
BRANCHES = "v0 = 7\nif v0 % 10 > 3:\n  v0 += 1\nelse:\n  v0 -= 1\nv0 *= 2\n"
LOOP = "v0 = 7\nv1 = 3\nwhile v1 > 0:\n  v1 -= 1\n  v0 *= 2\n"


@pytest.fixture(scope="module")
def model() -> ProgramModel:
    return build_model("ipa-gnn", hidden=8).eval()


def test_hand_solved_branches() -> None:
    explanation = explain(BRANCHES, decided(0.75))
    assert explanation.pointer is not None
    assert explanation.branch is not None
    # nodes: v0 = 7, if, += 1, -= 1, *= 2, exit
    expected = [
        [1, 0, 0, 0, 0, 0],
        [0, 1, 0, 0, 0, 0],
        [0, 0, 0.75, 0.25, 0, 0],
        [0, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 0, 1],
    ]
    np.testing.assert_allclose(explanation.pointer, expected, atol=1e-6)
    assert explanation.path == [0, 1, 2, 4]
    assert explanation.path_ends
    assert [(s.step, s.line) for s in explanation.soft or ()] == [(1, 1)]
    assert (explanation.soft or ())[0].true == pytest.approx(0.75)
    assert [(s.line, s.executed) for s in explanation.shortcuts or ()] == []  # 0.75 of 1 is no short-cut
    np.testing.assert_allclose(explanation.visits, [1, 1, 0.75, 0.25, 1], atol=1e-6)
    assert explanation.executed is not None
    assert explanation.executed.tolist() == [1, 1, 1, 0, 1]
    assert explanation.exit_mass == pytest.approx(1)
    assert [step.v0 for step in explanation.trace or ()] == [7, 7, 8, 16]


def test_a_loop_that_is_left_at_once_is_a_shortcut() -> None:
    explanation = explain(LOOP, decided(0.001))
    assert explanation.path == [0, 1, 2]
    assert explanation.soft == []
    assert [(s.line, round(s.visits, 2), s.executed) for s in explanation.shortcuts or ()] == [
        (2, 1.0, 4),
        (3, 0.0, 3),
        (4, 0.0, 3),
    ]
    endless = explain(LOOP, decided(0.999))
    assert not endless.path_ends
    assert len(endless.path or ()) == endless.prediction.steps


def test_a_model_on_the_true_trace_cuts_nothing_short() -> None:
    explanation = explain(LOOP, build_model("trace-rnn", hidden=8).eval())
    assert explanation.visits is not None
    assert explanation.executed is not None
    np.testing.assert_allclose(explanation.visits, explanation.executed)
    assert explanation.shortcuts == []
    assert explanation.path is None  # it decides nothing
    assert explanation.soft is None


@pytest.mark.parametrize("name", ["line-rnn", "ggnn", "r-gat", "no-control"])
def test_models_without_a_pointer_still_predict(name: str) -> None:
    explanation = explain(BRANCHES, build_model(name, hidden=8).eval())
    assert explanation.pointer is None
    assert explanation.shortcuts is None
    assert explanation.prediction.true_value == 16
    assert json.loads(json.dumps(explanation.to_dict()))["pointer"] is None
    assert "no instruction pointer" in explanation._repr_html_()
    assert "no instruction pointer" in shown(explanation, 80)


def test_path_and_exit_are_those_of_the_evaluation(model: ProgramModel) -> None:
    for i in range(20):
        program = Sampler("full", Lengths.exact(12), seed=5).program(i)[0]
        explanation = explain(format_program(program), model)
        batch = model.collate([program])
        output = model(batch, record=("pointer", "branch"))
        expected = measure_pointer(output["pointer"].detach(), output["branch"].detach(), batch, PAPER, traced=True)
        assert (len(explanation.path or ()) if explanation.path_ends else -1) == expected.path_length[0]
        assert explanation.exit_mass == pytest.approx(float(expected.exit_mass[0]))


def test_json_says_what_the_object_holds(model: ProgramModel) -> None:
    program = Sampler("full", Lengths.exact(15), seed=1).program(3)[0]
    explanation = explain(format_program(program), model)
    data = json.loads(json.dumps(explanation.to_dict()))
    assert explanation.pointer is not None
    full = np.zeros_like(explanation.pointer)
    for t, row in enumerate(data["pointer"]):
        for node, share in row:
            full[t, node] = share
    np.testing.assert_allclose(full, explanation.pointer, atol=1.1e-3)
    steps = list(trace(program, len(explanation.pointer) - 1))
    assert data["trace"] == [{"line": s.line, "v0": s.v0, "branch": s.branch} for s in steps]
    assert data["exit"] == len(data["true"]) - 1
    assert all(0 <= share <= 1 for row in data["branch"] for _, share in row)


def test_long_programs_stay_small() -> None:
    lines = ["v0 = 1"]
    for k in range(1, 9):  # eight loops, one in the other: T(x) is beyond 2,000
        lines += ["  " * (k - 1) + text for text in (f"v{k} = 9", f"while v{k} > 0:", f"  v{k} -= 1")]
    lines.append("  " * 8 + "v0 += 1")
    explanation = explain("\n".join(lines), decided(0.9))
    assert explanation.prediction.steps > SHOWN_STEPS / 2
    assert explanation.pointer is not None
    assert len(explanation.pointer) <= SHOWN_STEPS + 1
    assert explanation.prediction.true_value == 9**8 % 1000 + 1
    assert len(json.dumps(explanation.to_dict())) < 2**20


def shown(explanation: Explanation, width: int, colour: bool = False) -> str:
    console = Console(width=width, force_terminal=True, color_system="truecolor" if colour else None, highlight=False)
    with console.capture() as capture:
        print_explanation(console, explanation, 5)
    return capture.get()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_heat_map_fits_the_terminal(model: ProgramModel, width: int) -> None:
    program = Sampler("full", Lengths.exact(40), seed=1).program(0)[0]
    text = shown(explain(format_program(program), model), width)
    rows = text.splitlines()[:41]
    assert max(map(len, rows)) <= width
    assert rows[0].startswith(" 1 v0 = ")
    assert "exit" in rows[40]
    assert rows[0].rstrip()[-1] in BLOCKS[1:]


def test_the_terminal_tells_path_soft_decisions_and_shortcuts() -> None:
    text = shown(explain(BRANCHES, decided(0.75)), 100)
    assert "Most likely path (4 statements): lines 1–3 6 exit" in text
    assert "Soft branch decisions: step 1 line 2 (75% true, p 1.00)" in text
    assert "No line was short-cut" in text
    text = shown(explain(LOOP, decided(0.001)), 100)
    assert "Every branch decision that mattered was discrete." in text
    assert "Short-cut lines: 3 (1.0 visits of 4), 4 (0.0 visits of 3), 5 (0.0 visits of 3)" in text
    assert "\x1b[38;2;255;190;60m" in shown(explain(LOOP, decided(0.001)), 100, colour=True)


def test_html_holds_the_map(model: ProgramModel) -> None:
    html = explain(BRANCHES, model)._repr_html_()
    assert html.count("<circle") == 4
    assert "if v0 % 10 &gt; 3:" in html
    assert "<script" not in html


def test_the_command(run: Run, tmp_path: Path, model: ProgramModel) -> None:
    weights = tmp_path / "tiny.safetensors"
    save_model(model, weights)
    done = run("explain", "-", "--model", weights, stdin=BRANCHES.encode())
    assert done.code == 0, done.err
    assert re.search(r"^1 v0 = 7 +█$", done.out, re.MULTILINE)
    answer = json.loads(run("explain", "-", "--model", weights, "--json", stdin=BRANCHES.encode()).out)
    assert answer == json.loads(json.dumps(explain(BRANCHES, weights).to_dict()))


def test_a_folder_gives_json_lines(run: Run, tmp_path: Path, model: ProgramModel) -> None:
    weights = tmp_path / "tiny.safetensors"
    save_model(model, weights)
    folder = tmp_path / "programs"
    (folder / "more").mkdir(parents=True)
    assert "holds no .py files" in run("explain", folder, "--model", weights).err
    (folder / "b.py").write_text(BRANCHES)
    (folder / "more" / "a.py").write_text(LOOP)
    done = run("explain", folder, "--model", weights, "--json")
    assert done.code == 0, done.err
    answer = [json.loads(line) for line in done.out.splitlines()]
    assert [(t["file"], t["true_value"]) for t in answer] == [
        (str(folder / "b.py"), 16),
        (str(folder / "more" / "a.py"), 56),
    ]
    (folder / "bad.py").write_text("v0 = 1\nv0 /= 2\n")
    done = run("explain", folder, "--model", weights, "--json")
    assert done.code == 2
    assert "1 of 3 programs" in done.err
    bad = json.loads(done.out.splitlines()[1])
    assert (bad["file"], bad["line"], bad["column"]) == (str(folder / "bad.py"), 2, 4)
    (folder / "bad.py").write_bytes(b"\xff")
    bad = json.loads(run("explain", folder, "--model", weights, "--json").out.splitlines()[1])
    assert "not UTF-8" in bad["error"]
    done = run("explain", folder, "--model", tmp_path / "none")
    assert done.code == 2
    assert not done.out


def test_a_bad_program_is_named(
    run: Run, tmp_path: Path, is_sentence: Callable[[str], bool], model: ProgramModel
) -> None:
    weights = tmp_path / "tiny.safetensors"
    save_model(model, weights)
    done = run("explain", "-", "--model", weights, stdin=b"v0 = 1\n  v0 += 1\n")
    assert done.code == 2
    assert is_sentence(done.err)
    assert "standard input, line 2" in done.err
