"""The packed execution on a Hopper GPU in bf16, as two persistent kernels: see `forward.cu`."""

from functools import cache

import torch

from ipagnn.ops.pointer.hopper.driver import Kernel, compile_cuda
from ipagnn.ops.pointer.hopper.source import BACKWARD, FORWARD, THREADS, UNITS, arguments, shared_memory, source
from ipagnn.ops.pointer.triton.buffers import Buffers, KernelWeights
from ipagnn.ops.pointer.triton.launcher import Launcher
from ipagnn.ops.pointer.triton.plan import Plan

MOST_BLOCKS = 8
"""Largest cluster of blocks that every Hopper GPU runs."""
PROGRAMS_ALONE = 9
"""Programs up to which a cluster runs them as one group (measured on an H200: yes at batch 128, no at 256)."""
_HOPPER = (9, 0)


def fits(weights: KernelWeights) -> bool:
    """Whether the kernels run these weights, where they are."""
    device = weights.table.device
    return (
        device.type == "cuda"
        and weights.dtype == torch.bfloat16
        and weights.padded <= UNITS * MOST_BLOCKS
        and torch.cuda.get_device_capability(device) == _HOPPER
    )


def part(clusters: int, processes: int) -> int:
    """What one of several processes may take of all clusters that the GPU runs at a time."""
    return max(1, clusters // processes)


def groups(weights: KernelWeights, programs: int, *, processes: int = 1) -> int:
    """How many groups to make of a batch: one for each cluster that runs at a time, or two if there is work for both.

    Products cost the same for 8 rows as for 32, so two groups pay only when one would have more rows in a step.

    Args:
        weights: The weights.
        programs: Programs of the batch.
        processes: How many share the GPU side by side (MPS), each with its part of the clusters.
    """
    forward, _ = _kernels(weights.padded)
    clusters = part(forward.clusters(weights.padded // UNITS, THREADS), processes)
    return clusters if programs <= PROGRAMS_ALONE * clusters else 2 * clusters


@cache
def _kernels(padded: int) -> tuple[Kernel, Kernel]:
    def kernel(file: str, name: str, memory: int) -> Kernel:
        code = compile_cuda(source(file), (f"-DP={padded}", "-std=c++17", "--gpu-architecture=sm_90a"))
        return Kernel(code, name, memory)

    forward, backward = shared_memory(padded)
    return kernel(FORWARD, "packed_forward", forward), kernel(BACKWARD, "packed_backward", backward)


class HopperLauncher(Launcher):
    """A `Launcher` for a plan of many groups: every cluster runs one or two of them from the first step to the last.

    `processes` is that of `groups`.
    """

    def __init__(
        self,
        weights: KernelWeights,
        buffers: Buffers,
        plan: Plan,
        *,
        hard: bool,
        normalise: bool,
        exact: bool = False,
        processes: int = 1,
    ) -> None:
        super().__init__(weights, buffers, plan, hard=hard, normalise=normalise, exact=exact)
        self._forward_kernel, self._backward_kernel = _kernels(weights.padded)
        blocks = weights.padded // UNITS
        self._blocks = (
            min(plan.capacity.groups, part(self._forward_kernel.clusters(blocks, THREADS), processes)) * blocks
        )
        self._plan, self._state, self._gradients = arguments(weights, buffers, plan, hard=hard, normalise=normalise)

    def _forward_rows(self) -> None:
        self._forward_kernel(self._blocks, THREADS, [self._plan, self._state])

    def _backward_rows(self) -> None:
        self._backward_kernel(self._blocks, THREADS, [self._plan, self._state, self._gradients])
