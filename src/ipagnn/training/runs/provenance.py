"""What a run record must contain so that others can judge and repeat the run: code, versions, hardware."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from ipagnn import __version__


def provenance(command: list[str], device: torch.device, processes: int) -> dict[str, Any]:
    """This start of a run, for `run.json`."""
    commit, dirty = _commit()
    packages = ("torch", "numpy", "numba", "safetensors", "pyarrow", "triton")
    return {
        "command": command,
        "started": now(),
        "commit": commit,
        "dirty": dirty,
        "versions": {
            "ipagnn": __version__,
            "python": platform.python_version(),
            **{name: version for name in packages if (version := _version(name))},
        },
        "hardware": hardware(device) | {"processes": processes},
    }


def now() -> str:
    """The time, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def hardware(device: torch.device) -> dict[str, Any]:
    """What computes."""
    found: dict[str, Any] = {
        "device": str(device),
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "gpu": properties.name,
            "gpu_memory_gb": round(properties.total_memory / 1e9, 1),
            "cuda": torch.version.cuda,
        }
    return found


def peak_memory_mb(device: torch.device) -> float:
    """Largest memory of this process so far, on the device that computes."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    status = Path("/proc/self/status")  # on Linux, where `ru_maxrss` counts what the parent had, too
    if status.exists():
        return next(1024 * int(x.split()[1]) for x in status.read_text().splitlines() if x.startswith("VmHWM")) / 1e6
    try:
        import resource
    except ImportError:  # no such thing on Windows
        return float("nan")
    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def _commit() -> tuple[str | None, bool | None]:
    """Commit of this source and whether it was changed since; None where it is no clone."""
    here = Path(__file__)

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(here.parent), *arguments]
        return subprocess.run(command, capture_output=True, check=True, text=True, timeout=30).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", here.name)  # an installation inside some other repository is none of ours
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain"))
    except (OSError, subprocess.SubprocessError):
        return None, None
