"""`predict`: from Python and from the command line."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ipagnn
from ipagnn.inference.loaded import EXACT_NODE_STEPS, LoadedModel, load_cached
from ipagnn.inference.predict import predict
from ipagnn.languages.arithmetic import Grammar, Lengths, ProgramError, Sampler, execute, format_program, parse
from ipagnn.languages.arithmetic.holes import hole_distribution
from ipagnn.models import ProgramModel, build_model, save_model

Run = Callable[..., Any]
LOOP = "v0 = 7\nv1 = 3\nwhile v1 > 0:\n  v1 -= 1\n  v0 *= 2\n"
MASKED = "v0 = 3\n[MASK]\nv0 *= 2\n"


@pytest.fixture(scope="module")
def model() -> ProgramModel:
    return build_model("ipa-gnn", hidden=8).eval()


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory, model: ProgramModel) -> Path:
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    save_model(model, path)
    return path


def test_probabilities_are_those_of_the_model(model: ProgramModel) -> None:
    prediction = predict(LOOP, model)
    with torch.inference_mode():
        expected = model(model.collate([parse(LOOP)])).logits[0].double().softmax(0).numpy()
    np.testing.assert_allclose(prediction.probabilities, expected, rtol=1e-6)
    assert prediction.probabilities.sum() == pytest.approx(1)
    top = prediction.top(7)
    assert [c.probability for c in top] == sorted(prediction.probabilities.tolist(), reverse=True)[:7]
    assert all(prediction.probabilities[c.value] == c.probability for c in top)


def test_the_truth_of_a_complete_program(model: ProgramModel) -> None:
    prediction = predict(LOOP, model)
    assert (prediction.true_value, prediction.truth.trace_length) == execute(parse(LOOP)) == (56, 12)
    assert prediction.truth.exact is None
    assert prediction.to_dict()["true_probability"] == prediction.probabilities[56]


def test_the_truth_of_a_masked_program(model: ProgramModel) -> None:
    prediction = predict(MASKED, model)
    assert prediction.task == "partial"
    assert prediction.true_value is None
    assert {c.value: c.probability for c in prediction.truth.exact or ()} == hole_distribution(
        parse(MASKED)
    ).probabilities
    # By hand: 3 + k, 3 - k and 3 * k, doubled; 4..12, 2..-6 and 3..27 meet at 6, 9 and 12 only.
    by_value = {c.value: c.probability for c in prediction.truth.exact or ()}
    assert by_value[12] == by_value[18] == by_value[24] == pytest.approx(2 / 27)
    assert len(by_value) == 24


def test_a_program_without_a_value_still_gets_a_prediction(model: ProgramModel) -> None:
    prediction = predict("v0 = 1\nwhile v0 > 0:\n  v0 = 1\n", model)
    assert prediction.true_value is None
    assert prediction.truth.why == "Line 2: `while v0 > 0:` never ends: its state repeats."
    assert prediction.probabilities.sum() == pytest.approx(1)
    masked = predict("v0 = 1\nwhile v0 > 0:\n  _\n", model, max_steps=1_000)
    assert (masked.truth.why or "").startswith("With one of its fillings, line ")


def test_other_languages() -> None:
    other = build_model("ipa-gnn", hidden=8, grammar=Grammar(modulus=60, condition_modulus=6)).eval()
    prediction = predict("v0 = 59\nif v0 % 6 > 4:\n  v0 += 9\n", other)
    assert prediction.probabilities.shape == (60,)
    assert prediction.true_value == 8
    assert prediction.lines[1] == "if v0 % 6 > 4:"
    with pytest.raises(ProgramError, match="`6` after `%`"):
        predict("v0 = 59\nif v0 % 10 > 4:\n  v0 += 9\n", other)


def test_long_programs_are_pruned_and_hardly_change(model: ProgramModel) -> None:
    program = Sampler("full", Lengths.exact(60), seed=2).program(0)[0]
    loaded = LoadedModel("tiny", model)
    prediction = predict(format_program(program), model)
    assert len(program) * prediction.steps > EXACT_NODE_STEPS
    assert prediction.dropped > 0
    with torch.inference_mode():
        exact = model(model.collate([program])).logits[0].double().softmax(0).numpy()
    assert np.abs(prediction.probabilities - exact).sum() < 0.02
    assert loaded.prune_for(EXACT_NODE_STEPS) == 0


@pytest.mark.parametrize("name", ["ipa-gnn", "ggnn"])
def test_a_model_that_reads_no_indentation(name: str) -> None:
    blind = build_model(name, hidden=8, indent=False).eval()
    prediction = predict(LOOP, blind)
    with torch.inference_mode():
        expected = blind(blind.collate([parse(LOOP)])).logits[0].double().softmax(0).numpy()
    np.testing.assert_allclose(prediction.probabilities, expected, rtol=1e-6)


def test_a_model_that_needs_complete_programs() -> None:
    trace_rnn = build_model("trace-rnn", hidden=8).eval()
    assert predict(LOOP, trace_rnn).true_value == 56
    with pytest.raises(ValueError, match="needs complete programs"):
        predict(MASKED, trace_rnn)


def test_damaged_weights_are_told() -> None:
    broken = build_model("ipa-gnn", hidden=8).eval()
    with torch.no_grad():
        broken.output.bias.fill_(torch.nan)
    with pytest.raises(ValueError, match="damaged"):
        predict(LOOP, broken)


def test_models_are_loaded_once_until_their_file_changes(weights: Path, tmp_path: Path) -> None:
    assert load_cached(weights) is load_cached(weights)
    path = tmp_path / "model.safetensors"
    save_model(build_model("ipa-gnn", hidden=4), path)
    before = load_cached(path)
    save_model(build_model("ipa-gnn", hidden=6), path)
    after = load_cached(path)
    assert (before.config.hidden, after.config.hidden) == (4, 6)
    assert load_cached(tmp_path).config.hidden == 6  # a folder that holds the file


def test_no_fitting_model_in_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipagnn.inference.loaded.available_models", list)
    with pytest.raises(ValueError, match=r"no model env-ipa-gnn-full .*none comes with it.*--model.*--task full"):
        predict(LOOP)
    with pytest.raises(ValueError, match=r"no model env-ipa-gnn-partial"):
        predict(MASKED)
    with pytest.raises(ProgramError, match="line 1"):
        predict("print(1)")


def test_the_packaged_models_fit_their_tasks() -> None:
    if not {"env-ipa-gnn-full", "env-ipa-gnn-partial"} <= set(ipagnn.available_models()):
        pytest.skip("this installation comes without weights")
    full = predict("v0 = 12\nv0 += 5")
    assert (full.model, full.top(1)[0].value) == ("env-ipa-gnn-full", 17)
    assert predict(MASKED).model == "env-ipa-gnn-partial"


def test_the_package_in_one_line(model: ProgramModel) -> None:
    assert ipagnn.predict is predict
    assert set(ipagnn.__all__) <= set(dir(ipagnn))
    for name in ipagnn.__all__:
        assert getattr(ipagnn, name)
    with pytest.raises(AttributeError, match="'nonsense'"):
        ipagnn.nonsense  # noqa: B018


def test_importing_the_package_does_not_wait_for_torch() -> None:
    script = "import sys, ipagnn; print(ipagnn.__version__, 'torch' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    assert done.stdout.split()[1:] == ["False", "False"]


def test_html_escapes_and_names_the_truth(model: ProgramModel) -> None:
    html = predict(LOOP, model)._repr_html_()
    assert "the true result is 56" in html
    assert "<th>exact</th>" in predict(MASKED, model)._repr_html_()
    endless = predict("v0 = 1\nwhile v0 > 0:\n  v0 = 1\n", model)._repr_html_()
    assert "while v0 &gt; 0" in endless


def test_results_that_print_as_nothing_are_left_out_of_tables(run: Run, model: ProgramModel) -> None:
    answer = predict("v0 = 7")
    assert [each.value for each in answer.shown()] == [7] == [each.value for each in answer.top(1)]
    assert len(answer.top()) == len(answer.to_dict()["top"]) == 5
    assert " 0.0%" not in run("predict", "-", stdin=b"v0 = 7").out
    assert answer._repr_html_().count("<tr>") == 2
    unsure = predict(LOOP, model)
    assert unsure.shown(9) == unsure.top(9)


def test_json(run: Run, weights: Path) -> None:
    done = run("predict", "-", "--model", weights, "--json", stdin=LOOP.encode())
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert answer == predict(LOOP, weights).to_dict()
    assert answer["true_value"] == 56
    assert len(answer["top"]) == 5
    assert set(answer["top"][0]) == {"value", "probability"}
    assert (
        len(json.loads(run("predict", "-", "--model", weights, "--json", "--top", 9, stdin=LOOP.encode()).out)["top"])
        == 9
    )


def test_what_a_terminal_shows(run: Run, weights: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(LOOP)
    done = run("predict", file, "--model", weights)
    assert "The true result is 56, after 12 statements; the model gives it" in done.out
    file.write_text(MASKED)
    done = run("predict", file, "--model", weights)
    assert "Likeliest over all fillings: 12 7.4%, 18 7.4%, 24 7.4%" in done.out
    assert "exact" in done.out


@pytest.mark.parametrize("source", [LOOP, MASKED])
def test_plots(run: Run, weights: Path, tmp_path: Path, source: str) -> None:
    target = tmp_path / "plot.svg"
    done = run("predict", "-", "--model", weights, "--plot", target, stdin=source.encode())
    assert done.code == 0, done.err
    assert target.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "stdin", "sentence"),
    [
        (["-"], b"v0 = 1\nprint(v0)", "standard input, line 2, column 1: found `print`"),
        (["-"], b"\xff\xfe", "standard input is not UTF-8 text"),
        (["missing.py"], b"", "missing.py: No such file"),
        (["-", "--plot", "x.gif"], b"v0 = 1", "must end in .svg, .pdf or .png"),
        (["-", "--top", "0"], b"v0 = 1", "greater than or equal to 1"),
        (["-", "--model", "nothing-like-it"], b"v0 = 1", "There is no file and no model 'nothing-like-it'"),
    ],
)
def test_bad_input(
    run: Run, weights: Path, is_sentence: Callable[[str], bool], arguments: list[str], stdin: bytes, sentence: str
) -> None:
    model = [] if "--model" in arguments else ["--model", weights]
    done = run("predict", *arguments, *model, stdin=stdin)
    assert done.code == 2
    assert is_sentence(done.err), done.err
    assert sentence in done.err
