"""Explaining a program takes little more memory than its recorded steps."""

import subprocess
import sys

import pytest

SCRIPT = """
import re, sys
from pathlib import Path
from ipagnn.inference.explain import explain_programs
from ipagnn.inference.loaded import load_cached

def used():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1000

model = load_cached(sys.argv[1])
explain_programs([model.parse("v0 = 1\\nv0 += 1")], model)
before = used()
program = "v0 = 1\\nv1 = 9\\nwhile v1 > 0:\\n  v1 -= 1\\n" + "  v0 *= 3\\n" * 150
[found] = explain_programs([model.parse(program)], model)
print(len(found.pointer), used() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_long_walk_leaves_no_holes_in_memory() -> None:
    """Small tensors that were kept between large ones took 240 MB here."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, "no-execute-full"], capture_output=True, text=True, check=True)
    steps, megabytes = map(int, done.stdout.split())
    assert steps > 300
    assert megabytes < 80
