"""Compiling CUDA source at run time (NVRTC) and launching it on torch's current stream, by the driver's C interface.

Both libraries come with every CUDA build of torch and its driver, so no compiler is needed on the user's machine and
nothing is tied to a version of torch.
"""

import ctypes
import hashlib
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch

_SHARED_MEMORY_ATTRIBUTE = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_CLUSTER_DIMENSION = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute with a value of three numbers; values have room for 64 bytes."""

    _fields_ = (
        ("id", ctypes.c_int), ("pad", ctypes.c_int), ("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint),
        ("rest", ctypes.c_char * 52),
    )  # fmt: skip


class _LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        *((name, ctypes.c_uint) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared")),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(_Attribute)), ("count", ctypes.c_uint),
    )  # fmt: skip


@cache
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


@cache
def _compiler() -> Any:
    major = str(torch.version.cuda).split(".")[0]
    for name in (f"libnvrtc.so.{major}", "libnvrtc.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise RuntimeError(f"libnvrtc of CUDA {torch.version.cuda} was not found; it comes with CUDA builds of torch.")


def _check(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"{what} failed with CUDA error {code}.")


@cache
def compile_cuda(source: str, options: tuple[str, ...]) -> bytes:
    """Machine code (cubin) of CUDA C++ source; compiling takes seconds, so it is kept in the user's cache directory."""
    what = "\0".join((str(torch.version.cuda), *options, source))
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    kept = Path(home, "ipagnn", f"{hashlib.sha256(what.encode()).hexdigest()}.cubin")
    try:
        return kept.read_bytes()
    except OSError:
        code = _compile(source, options)
    with suppress(OSError):  # a cache that cannot be written is none
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=kept.parent, delete=False) as file:
            file.write(code)
        Path(file.name).replace(kept)
    return code


def _compile(source: str, options: tuple[str, ...]) -> bytes:
    nvrtc, program = _compiler(), ctypes.c_void_p()
    _check(
        nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"ipagnn.cu", 0, None, None),
        "nvrtcCreateProgram",
    )
    arguments = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    if nvrtc.nvrtcCompileProgram(program, len(options), arguments):
        size = ctypes.c_size_t()
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        raise RuntimeError(f"The CUDA source did not compile:\n{log.value.decode()}")
    size = ctypes.c_size_t()
    _check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)), "nvrtcGetCUBINSize")
    cubin = ctypes.create_string_buffer(size.value)
    _check(nvrtc.nvrtcGetCUBIN(program, cubin), "nvrtcGetCUBIN")
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return cubin.raw


class Kernel:
    """One kernel of a compiled source, ready to launch."""

    def __init__(self, code: bytes, name: str, shared_memory: int) -> None:
        torch.cuda.current_stream()  # makes sure there is a context to load into
        self._module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._shared_memory = shared_memory
        cuda = _driver()
        _check(cuda.cuModuleLoadData(ctypes.byref(self._module), code), "cuModuleLoadData")
        _check(
            cuda.cuModuleGetFunction(ctypes.byref(self._function), self._module, name.encode()), "cuModuleGetFunction"
        )
        code_ = cuda.cuFuncSetAttribute(self._function, _SHARED_MEMORY_ATTRIBUTE, shared_memory)
        _check(code_, "cuFuncSetAttribute")

    def clusters(self, blocks: int, threads: int) -> int:
        """How many clusters of so many blocks run at a time."""
        cluster = _Attribute(_CLUSTER_DIMENSION, 0, blocks, 1, 1)
        config = _LaunchConfig(
            blocks, 1, 1, threads, 1, 1, self._shared_memory, None, ctypes.pointer(cluster), 1
        )  # fmt: skip
        count = ctypes.c_int()
        code = _driver().cuOccupancyMaxActiveClusters(ctypes.byref(count), self._function, ctypes.byref(config))
        _check(code, "cuOccupancyMaxActiveClusters")
        return count.value

    def __call__(self, blocks: int, threads: int, arguments: Sequence[Any]) -> None:
        """Launch with ctypes `arguments` (structures or numbers) on torch's current stream."""
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        code = _driver().cuLaunchKernel(
            self._function, blocks, 1, 1, threads, 1, 1, self._shared_memory, stream, pointers, None
        )
        _check(code, "cuLaunchKernel")
