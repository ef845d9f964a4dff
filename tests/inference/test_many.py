"""Many programs at once: batches, files, folders, standard input, and vectors."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ipagnn
from ipagnn.inference.embed import embed
from ipagnn.inference.explain import explain
from ipagnn.inference.loaded import LoadedModel
from ipagnn.inference.predict import predict
from ipagnn.inference.run import run_programs
from ipagnn.languages.arithmetic import Lengths, ProgramError, Sampler, format_program, parse
from ipagnn.models import build_model, save_model
from ipagnn.models.registry import MODELS

Run = Callable[..., Any]
MASKED = "v0 = 3\n[MASK]\nv0 *= 2\n"


@pytest.fixture(scope="module")
def sources_of_all_sizes() -> list[str]:
    lengths = [12, 2, 60, 5, 30, 5, 90, 3]
    return [format_program(Sampler("full", Lengths.exact(n), seed=7).program(i)[0]) for i, n in enumerate(lengths)]


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.safetensors"
    save_model(build_model("ipa-gnn", hidden=8), path)
    return path


@pytest.mark.parametrize("name", ["ipa-gnn", "trace-rnn", "line-rnn", "ggnn", "no-control"])
def test_many_answers_are_those_of_one_at_a_time(name: str, sources_of_all_sizes: list[str]) -> None:
    model = build_model(name, hidden=8).eval()
    sources = sources_of_all_sizes if name == "ipa-gnn" else sources_of_all_sizes[:2] + sources_of_all_sizes[3:4]
    for one, found in zip(sources, predict(sources, model), strict=True):
        alone = predict(one, model)
        np.testing.assert_allclose(found.probabilities, alone.probabilities, rtol=1e-4)
        assert (found.steps, found.true_value, found.lines) == (alone.steps, alone.true_value, alone.lines)
        assert (found.exit_mass is None) == (alone.exit_mass is None)
        assert (found.exit_mass or 0) == pytest.approx(alone.exit_mass or 0, rel=1e-4)
        assert found.dropped == pytest.approx(alone.dropped, rel=1e-3, abs=1e-6)
    for one, explained in zip(sources, explain(sources, model), strict=True):
        single = explain(one, model)
        assert (explained.path, explained.path_ends) == (single.path, single.path_ends)
        assert explained.trace == single.trace
        if single.pointer is not None:
            assert explained.pointer is not None
            shared = min(len(explained.pointer), len(single.pointer))  # the longer one may follow less than 1e-5 on
            np.testing.assert_allclose(explained.pointer[:shared], single.pointer[:shared], atol=1e-5)
            assert np.abs(np.diff(explained.pointer[shared - 1 :], axis=0)).sum() < 1e-4
            assert np.abs(np.diff(single.pointer[shared - 1 :], axis=0)).sum() < 1e-4
            np.testing.assert_allclose(explained.visits, single.visits, rtol=1e-3)


def test_programs_run_together(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = list(Sampler("full", Lengths.exact(10), seed=7).table(0, 100))
    chosen = LoadedModel("tiny", build_model("ipa-gnn", hidden=8).eval())
    sizes: list[int] = []
    forward = type(chosen.model).forward
    monkeypatch.setattr(
        type(chosen.model),
        "forward",
        lambda self, batch, **more: sizes.append(len(batch)) or forward(self, batch, **more),
    )
    assert len(run_programs(programs, chosen)) == sum(sizes) == 100
    assert len(sizes) < 10


def test_one_thread_for_small_inputs_and_the_caller_keeps_its_own() -> None:
    model = build_model("ipa-gnn", hidden=8).eval()
    seen: list[int] = []
    model.register_forward_pre_hook(lambda *_: seen.append(torch.get_num_threads()))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        predict("v0 = 1\nv0 += 1", model)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [1]


def test_an_empty_list_has_no_answers_and_a_bad_program_is_named() -> None:
    model = build_model("ipa-gnn", hidden=8).eval()
    assert predict([], model) == explain([], model) == []
    with pytest.raises(ProgramError, match="line 1"):
        predict(["v0 = 1", "nonsense"], model)


def test_every_program_gets_the_model_that_fits() -> None:
    if not {"env-ipa-gnn-full", "env-ipa-gnn-partial"} <= set(ipagnn.available_models()):
        pytest.skip("this installation comes without weights")
    sources = [MASKED, "v0 = 12\nv0 += 5", MASKED, "v0 = 1\nv0 += 1"]
    prediction = ipagnn.predict(sources)
    assert [p.task for p in prediction] == ["partial", "full", "partial", "full"]
    assert len({p.model for p in prediction}) == 2
    assert [p.value for p in prediction[1::2]] == [17, 2]
    with pytest.raises(ValueError, match="vectors of two models cannot be compared"):
        embed(sources)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_model_embeds(name: str, sources_of_all_sizes: list[str]) -> None:
    model = build_model(name, hidden=8).eval()
    sources = [source for source in sources_of_all_sizes if len(source.split("\n")) <= 12]
    vectors = embed(sources, model)
    assert vectors.dtype == np.float32
    assert vectors.ndim == 2
    assert len(vectors) == len(sources)
    np.testing.assert_allclose(vectors[1], embed(sources[1:2], model)[0], rtol=1e-4, atol=1e-6)
    assert not np.allclose(vectors[0], vectors[1])
    layer = getattr(model, "output", None)
    if layer is not None:  # the answer is what the output layer makes of it
        with torch.no_grad():
            probabilities = layer(torch.from_numpy(vectors)).double().softmax(1).numpy()
        np.testing.assert_allclose(probabilities, [p.probabilities for p in predict(sources, model)], rtol=1e-3)


def test_what_cannot_be_embedded() -> None:
    model = build_model("ipa-gnn", hidden=8)
    with pytest.raises(TypeError, match="takes a list"):
        embed("v0 = 1", model)
    with pytest.raises(ValueError, match="at least one"):
        embed([], model)


def answers_of(run: Run, weights: Path, *arguments: object, stdin: bytes = b"", code: int = 0) -> list[dict[str, Any]]:
    done = run("predict", *arguments, "--model", weights, "--json", stdin=stdin)
    assert done.code == code, done.err
    return [json.loads(line) for line in done.out.splitlines()]


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize("count", [1, 2, 300])
def test_what_sample_prints_can_be_read(run: Run, weights: Path, form: tuple[str, ...], count: int) -> None:
    printed = run("sample", "--length", 5, "--count", count, *form).out
    answer = answers_of(run, weights, "-", stdin=printed.encode())
    drawn = Sampler("full", Lengths.exact(5), seed=0).table(0, count)
    assert ["\n".join(each["lines"]) for each in answer] == [format_program(program) for program in drawn]
    assert [each["true_value"] for each in answer] == drawn.target.tolist()
    names = [f"standard input, program {i}" for i in range(1, count + 1)]
    assert [each.get("file") for each in answer] == (names if count > 1 else [None])


def test_files_folders_and_json_lines(run: Run, weights: Path, tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    folder.mkdir()
    texts = {"a.py": "v0 = 1\n\nv0 += 1  # 2\n# 3\n\nv0 += 1\n", "b.py": "v0 = 4", "programs/c.py": "v0 = 5\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "d.jsonl").write_text('{"source": "v0 = 6", "target": 6}\n\n"v0 = 7"\n')
    answer = answers_of(run, weights, tmp_path / "a.py", tmp_path / "b.py", folder, tmp_path / "d.jsonl")
    assert [each["true_value"] for each in answer] == [3, 4, 5, 6, 7]
    assert [Path(each["file"]).name for each in answer] == [
        "a.py",
        "b.py",
        "c.py",
        "d.jsonl, program 1",
        "d.jsonl, program 2",
    ]
    text = run("predict", folder / "c.py", tmp_path / "b.py", "--model", weights).out
    assert text.startswith(f"{folder / 'c.py'}\n")
    assert text.count("Trust: ") == 2


def test_failures_are_told_in_their_place(run: Run, weights: Path, tmp_path: Path) -> None:
    for name, content in {"a.py": b"v0 = 1", "b.py": b"v0 /= 1", "c.py": b"\xff", "d.py": b"v0 = 2"}.items():
        (tmp_path / name).write_bytes(content)
    answer = answers_of(run, weights, tmp_path, code=2)
    assert [each.get("true_value") for each in answer] == [1, None, None, 2]
    assert (answer[1]["line"], answer[1]["column"]) == (1, 4)
    assert "not UTF-8" in answer[2]["error"]
    done = run("predict", tmp_path, "--model", weights)
    assert done.code == 2
    assert f"Error: {tmp_path / 'b.py'}, line 1, column 4: found" in done.err
    assert "2 of 4 programs could not be answered" in done.err
    assert done.out.count("Trust: ") == 2
    answer = answers_of(run, weights, "-", stdin=b'"v0 = 1"\n{"text": 3}\n"v0 = 2"\n{', code=2)
    assert [each.get("true_value") for each in answer] == [1, None, 2, None]
    assert answer[1]["error"] == "Line 2 is no program: it must be a string, or an object with the key source."


def test_plots_are_for_one_program_and_say_where_they_are(run: Run, weights: Path, tmp_path: Path) -> None:
    program = tmp_path / "a.py"
    program.write_text("v0 = 1\nv0 += 1")
    plot = tmp_path / "a.svg"
    assert f"{plot} holds the plot" in run("predict", program, "--model", weights, "--plot", plot).out
    assert plot.is_file()
    assert "is for one program" in run("predict", program, program, "--model", weights, "--plot", plot).err
    missing = tmp_path / "none" / "a.svg"
    done = run("predict", program, "--model", weights, "--plot", missing)
    assert done.code == 2
    assert f"there is no folder {missing.parent}" in done.err
    assert not missing.parent.exists()


def test_programs_of_any_shape_stay_apart_and_whole(run: Run, weights: Path) -> None:
    text = "# 12\n\nv0 = 1  # first\n\nv0 += 1\n# -3\n\n\n# another\nv0 = 2\r\n\r\n# 2\r\n"
    answer = answers_of(run, weights, "-", stdin=text.encode())
    assert ["\n".join(each["lines"]) for each in answer] == ["v0 = 1\nv0 += 1", "v0 = 2"]
    assert parse("v0 = 1\nv0 += 1") is not None
    done = run("predict", "-", "--model", weights, stdin=b"")
    assert done.code == 2
    assert "found an empty program" in done.err
