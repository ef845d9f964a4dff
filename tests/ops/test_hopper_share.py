"""How processes share a GPU."""

import pytest

from ipagnn.ops.pointer.hopper.source import SHARE, part


def test_each_takes_its_part_of_the_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SHARE, raising=False)
    assert part(15) == 15
    monkeypatch.setenv(SHARE, "4")
    assert (part(15), part(3)) == (3, 1)
    monkeypatch.setenv(SHARE, "a quarter")
    with pytest.raises(ValueError, match="IPAGNN_SHARE is 'a quarter'; it must be the number of processes"):
        part(15)
