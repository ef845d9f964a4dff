"""What is said where a program is not of the language of the models that answer by default, but of another's."""

from typing import Any

import pytest

from ipagnn import available_models, predict
from ipagnn.languages.arithmetic import ProgramError
from ipagnn.languages.arithmetic.card import DIGITS_MODEL, EXTENDED_MODEL

extended_model = pytest.mark.skipif(EXTENDED_MODEL not in available_models(), reason=f"there is no {EXTENDED_MODEL}")


@extended_model
@pytest.mark.parametrize(
    "source", ["v0 = 22\nv1 = 3\nv0 += v1", "v0 = 12345", "v0 = 1\nv1 = 2\nif v0 < v1:\n  v0 -= 1"]
)
def test_the_error_names_the_model_that_reads_more(run: Any, source: str) -> None:
    say = f'`--model {EXTENDED_MODEL}` (in Python model="{EXTENDED_MODEL}") reads such programs.'
    with pytest.raises(ProgramError) as told:
        predict(source)
    assert str(told.value).endswith(f"from 0 to 999. {say}")
    assert run("explain", "-", stdin=source.encode()).err.rstrip().endswith(say)
    assert predict(source, EXTENDED_MODEL).true_value is not None
    for other in (f"{source}\n_", f"{source}\nv0 = -1", "v0 ="):
        with pytest.raises(ProgramError) as told:
            predict(other)
        assert "such programs" not in str(told.value)
    with pytest.raises(ProgramError) as told:
        predict(source, DIGITS_MODEL)
    assert "such programs" not in str(told.value)
