from dataclasses import dataclass
from typing import Any, Literal

import pytest

from ipagnn._common.hints import near_miss
from ipagnn._common.options import check_options, describe, option, options_from_dict, options_to_dict, phrases


@dataclass(frozen=True, kw_only=True)
class Inner:
    factor: float = option(1.0, "Multiplies the steps.", above=0, phrase="{:g} times the steps")


@dataclass(frozen=True, kw_only=True)
class Outer:
    heads: int = option(1, "Number of heads.", least=1, most=8, phrase="{} heads")
    typed: bool = option(False, "Use edge types.", phrase="edge types")
    name: Literal["adam", "sgd"] = option("adam", "Which optimizer.")
    share: float = option(0.5, "A share.", least=0, below=1)
    size: int = option(2, "A power of two.", choices=(1, 2, 4))
    inner: Inner = option(Inner(), "More options.")

    def __post_init__(self) -> None:
        check_options(self)


def test_options_survive_a_dictionary() -> None:
    options = Outer(heads=3, typed=True, name="sgd", inner=Inner(factor=2.5))
    values = options_to_dict(options)
    assert values["inner"] == {"factor": 2.5}
    assert options_from_dict(Outer, values) == options
    assert options_from_dict(Outer, {}) == Outer()


def test_whole_numbers_will_do_for_real_ones() -> None:
    found = options_from_dict(Outer, {"inner": {"factor": 2}}).inner.factor
    assert found == 2
    assert isinstance(found, float)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"head": 3}, "'model.head' is not a setting. Did you mean 'model.heads'?"),
        ({"inner": {"facto": 3}}, "'model.inner.facto' is not a setting. Did you mean 'model.inner.factor'?"),
        ({"facto": 3}, "Did you mean 'model.inner.factor'?"),
        ({"zzz": 3}, "'model.zzz' is not a setting. The settings are model.heads, model.typed, "),
        ({"heads": True}, "model.heads is True; it must be a whole number."),
        ({"heads": 1.0}, "model.heads is 1.0; it must be a whole number."),
        ({"typed": 1}, "model.typed is 1; it must be true or false."),
        ({"share": "much"}, "model.share is 'much'; it must be a number."),
        ({"inner": 3}, "model.inner is 3; it must be a table of settings."),
        ({"name": "sgdd"}, "model.name is 'sgdd'; it must be one of adam, sgd."),
        ({"heads": 0}, "heads is 0; it must be from 1 to 8."),
        ({"heads": 9}, "heads is 9; it must be from 1 to 8."),
        ({"share": 1}, "share is 1.0; it must be at least 0 and below 1."),
        ({"share": float("nan")}, "share is nan; it must be at least 0 and below 1."),
        ({"size": 3}, "size is 3; it must be one of 1, 2, 4."),
    ],
)
def test_what_is_not_accepted_is_refused_in_a_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        options_from_dict(Outer, values, "model")
    assert sentence in str(caught.value)


def test_keywords_are_checked_too() -> None:
    with pytest.raises(ValueError, match="typed is 'yes'; it must be true or false"):
        Outer(typed="yes")  # type: ignore[arg-type]


def test_numbers_must_be_finite() -> None:
    @dataclass(frozen=True)
    class Free:
        rate: float = option(1.0, "Any number.")

    check_options(Free(-1e30))
    with pytest.raises(ValueError, match="rate is inf; it must be a finite number"):
        check_options(Free(float("inf")))


def test_options_are_described_with_those_inside_them() -> None:
    described = {each.name: each for each in describe(Outer, "model")}
    assert list(described) == [f"model.{x}" for x in ("heads", "typed", "name", "share", "size", "inner.factor")]
    assert described["model.heads"].kind == "a whole number"
    assert described["model.name"].kind == "adam or sgd"
    assert described["model.inner.factor"].default == 1.0
    assert described["model.inner.factor"].help == "Multiplies the steps."


def test_reports_say_what_differs_from_the_defaults() -> None:
    assert phrases(Outer()) == []
    assert phrases(Outer(heads=3, typed=True, name="sgd")) == ["3 heads", "edge types"]


def test_the_near_miss_is_found_with_and_without_tables() -> None:
    known = ["model.hidden", "optimizer.learning_rate", "seed"]
    assert near_miss("sed", known, "The settings are") == "Did you mean 'seed'?"
    assert near_miss("hiden", known, "The settings are") == "Did you mean 'model.hidden'?"
    assert near_miss("run.learning_rat", known, "The settings are") == "Did you mean 'optimizer.learning_rate'?"
    assert near_miss("model.xyz", known, "The settings are") == f"The settings are {', '.join(known)}."
    assert near_miss("b.name", ["a.name", "b.nam", "b.name2"], "") == "Did you mean 'a.name'?"
    assert near_miss("b.nam", ["a.name", "b.name"], "") == "Did you mean 'b.name'?"
    assert near_miss("x", known, "The settings are") == f"The settings are {', '.join(known)}."
