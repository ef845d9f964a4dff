"""Commands that are refused."""

from collections.abc import Callable

import pytest

from ..conftest import Run


@pytest.fixture
def refused(run: Run, is_sentence: Callable[[str], bool]) -> Callable[..., str]:
    """`refused("sample", "--length", "1")`: the sentence, where it and exit code 2 must be all that comes."""

    def call(*arguments: object, stdin: bytes = b"") -> str:
        code, out, err = run(*arguments, stdin=stdin)
        assert (code, out) == (2, "")
        assert is_sentence(err)
        return err

    return call
