"""Runs the benchmarks of this folder one after the other: `python benchmarks/run.py [NAME…]`.

Every other script here is a benchmark: it prints what it measured and asserts nothing.
"""

import argparse
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent


def processor() -> str:
    """The processor's name, where the system tells."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def main() -> int:
    """Run the benchmarks named on the command line, or all; the exit code of the first that fails."""
    scripts = {path.stem: path for path in sorted(HERE.glob("*.py")) if path.name != "run.py"}
    parser = argparse.ArgumentParser(description="Measure speed; asserts nothing.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to run: {', '.join(scripts)} (default: all)")
    names = parser.parse_args().names or list(scripts)
    unknown = [name for name in names if name not in scripts]
    if unknown:
        parser.error(f"no benchmark is called {unknown[0]!r}; there are {', '.join(scripts)}.")
    libraries = ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "numba", "pyarrow"))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(f"{processor()}, {cores} cores; Python {platform.python_version()}, {libraries}")
    for name in names:
        print(f"\n== {name}", flush=True)
        result = subprocess.run([sys.executable, str(scripts[name])], check=False)
        if result.returncode:
            return result.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
