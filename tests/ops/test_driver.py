"""Compiled code is kept: what must hold of it without a GPU."""

from pathlib import Path

import pytest

from ipagnn.ops.pointer.hopper import driver as cuda_driver


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The sources that were compiled, where a compiler stands in that only notes them."""
    seen: list[str] = []

    def compiler(source: str, options: tuple[str, ...]) -> bytes:
        seen.append(source)
        return f"{source} {options}".encode()

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cuda_driver, "_compile", compiler)
    return seen


def fresh(source: str, *options: str) -> bytes:
    """As in a new process."""
    cuda_driver.compile_cuda.cache_clear()
    return cuda_driver.compile_cuda(source, options)


def test_code_is_compiled_once(compiled: list[str]) -> None:
    first = fresh("a", "-DP=32")
    assert fresh("a", "-DP=32") == first
    assert compiled == ["a"]


def test_other_source_or_options_are_other_code(compiled: list[str]) -> None:
    assert len({fresh("a", "-DP=32"), fresh("a", "-DP=64"), fresh("b", "-DP=32")}) == 3
    assert compiled == ["a", "a", "b"]


def test_a_cache_that_cannot_be_written_is_none(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert fresh("a") == fresh("a")
    assert compiled == ["a", "a"]


def test_a_missing_compiler_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> None:
        raise OSError(name)

    cuda_driver._compiler.cache_clear()
    monkeypatch.setattr(cuda_driver.ctypes, "CDLL", none)
    with pytest.raises(RuntimeError, match=r"libnvrtc of CUDA .* was not found; it comes with CUDA builds of torch\."):
        cuda_driver._compiler()
