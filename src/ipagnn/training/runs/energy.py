"""The energy that a GPU has used, as its own counter tells (NVML), where there is one."""

import ctypes
from collections.abc import Callable
from typing import Any, Final

import torch

_LIBRARY: Final = "libnvidia-ml.so.1"
_MILLI: Final = 1e-3


def energy_meter(device: torch.device) -> Callable[[], float] | None:
    """A function that tells the joules a device has used since this call, by whomever; None where nobody measures.

    Args:
        device: The device that computes.
    """
    if device.type != "cuda":
        return None
    try:
        uuid = str(torch.cuda.get_device_properties(device).uuid)
        library: Any = ctypes.CDLL(_LIBRARY)
        handle = ctypes.c_void_p()
        if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode(), ctypes.byref(handle)):
            return None
        first = _read(library, handle)
    except (OSError, AttributeError):  # no such library, or an older one or torch
        return None
    return None if first is None else lambda: _MILLI * ((_read(library, handle) or first) - first)


def _read(library: Any, handle: ctypes.c_void_p) -> int | None:
    """Millijoules since the driver was loaded."""
    total = ctypes.c_ulonglong()
    failed = library.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(total))
    return None if failed else total.value
