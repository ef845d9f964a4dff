from pathlib import Path

import pytest

from ipagnn.training import preset
from ipagnn.training.sweep.grid import PAPER_GRID, expand, read_grid


def test_the_papers_grid_is_two_sizes_by_four_rates() -> None:
    trials = expand(PAPER_GRID)
    found = [(trial.config.model.hidden, trial.config.optimizer.learning_rate) for trial in trials]
    assert found == [(h, rate) for h in (200, 300) for rate in (3e-3, 1e-3, 3e-4, 1e-4)]
    assert trials[0].name == "hidden=200,learning_rate=0.003"
    assert trials[0].values == {"model.hidden": 200, "optimizer.learning_rate": 3e-3}
    base = preset("paper")
    for trial in trials:
        same = trial.config.replace(
            learning_rate=base.optimizer.learning_rate,
            model=trial.config.model.replace(hidden=base.model.hidden),
        )
        assert same == base


def test_a_file_names_settings_and_their_values(tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(
        "rate = [1e-3]  # its name in version 0.1.0\n"
        '[model]\nname = ["ggnn", "line-rnn"]\n[model.grammar]\noperands = [[1, 3], [1, 9]]\n'
    )
    grid = read_grid(file)
    assert grid == {
        "optimizer.learning_rate": [1e-3],
        "model.name": ["ggnn", "line-rnn"],
        "model.grammar.operands": [[1, 3], [1, 9]],
    }
    trials = expand(grid, "smoke", {"task": "partial"})
    assert [trial.name for trial in trials] == [
        f"learning_rate=0.001,name={name},operands={operands}"
        for name in ("ggnn", "line-rnn")
        for operands in ("1-3", "1-9")
    ]
    last = trials[-1].config
    assert (last.model.name, last.model.grammar.operands, last.task) == ("line-rnn", (1, 9), "partial")
    assert last.model.grammar.loop_counts == preset("smoke").model.grammar.loop_counts
    assert last.data.length == preset("smoke").data.length


def test_names_are_names_of_folders() -> None:
    trials = expand({"data.source": ["a/b c", "../d"], "optimizer.averaging": [0, 0.99]}, "smoke")
    assert [trial.name for trial in trials] == [
        f"source={data},averaging={decay}" for data in ("a_b_c", ".._d") for decay in ("0", "0.99")
    ]
    with pytest.raises(ValueError, match="two trials source=a_b"):
        expand({"data.source": ["a/b", "a:b"]}, "smoke")


def test_samples_are_points_of_the_grid_and_always_the_same() -> None:
    grid = {"seed": list(range(20)), "optimizer.learning_rate": [1e-3, 1e-4]}
    everything = expand(grid, "smoke")
    some = expand(grid, "smoke", samples=7)
    assert len({trial.name for trial in some}) == 7
    assert [trial for trial in everything if trial in some] == some
    assert some == expand(grid, "smoke", samples=7)
    assert some != everything[:7]
    assert expand(grid, "smoke", samples=1000) == everything


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learning_rat = [1e-3]", "Did you mean 'optimizer.learning_rate'?"),
        ("hidden = [1]", "Did you mean 'model.hidden'?"),
        ("rate = 1e-3", "optimizer.learning_rate is 0.001; it must be a list"),
        ("rate = []", "optimizer.learning_rate is []; it must be a list"),
        ("", "names no setting"),
        ("rate = [1e-3", "Unclosed array"),
    ],
)
def test_a_bad_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(text)
    with pytest.raises(ValueError) as caught:
        read_grid(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert message in str(caught.value)


def test_contradictions_are_refused() -> None:
    with pytest.raises(ValueError, match="learning_rate is set to one value and is also in the grid"):
        expand({"optimizer.learning_rate": [1e-3]}, "smoke", {"optimizer": {"learning_rate": 1e-2}})
    with pytest.raises(ValueError, match=r"two trials learning_rate=0\.001"):
        expand({"optimizer.learning_rate": [1e-3, 1e-3]}, "smoke")
    with pytest.raises(ValueError, match="cannot be trained on the partial task"):
        expand({"model.name": ["line-rnn", "trace-rnn"]}, "smoke", {"task": "partial"})
    with pytest.raises(ValueError, match="it must be a number"):
        expand({"optimizer.learning_rate": ["fast"]}, "smoke")
