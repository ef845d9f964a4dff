"""What a run says about the process that trains."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from ipagnn.training.runs.provenance import peak_memory_mb


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process counts what its parent had, too")
def test_memory_is_that_of_this_process_alone() -> None:
    block = np.ones(10**8)
    peak = "from ipagnn.training.runs.provenance import peak_memory_mb as peak"
    code = f"import torch; {peak}; print(peak(torch.device('cpu')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 20 < float(done.stdout) < block.nbytes / 1e6 <= peak_memory_mb(torch.device("cpu"))
