"""What surrounds a model's kernels in a captured step, in few launches: loss, norm, clipping, Adam, average, metrics.

A captured graph replays every operation, however small, and one takes some microseconds: at batch 32 torch's operations
for these parts took as long as the model's backward pass. All sums are in a fixed order.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024
_PARTS = 256
"""Programs that sum a share of the squares each."""


@triton.jit
def _loss(  # type: ignore[no-untyped-def]
    logits, bias, target, d_logits, losses, correct, share, classes, WIDTH: tl.constexpr, BIAS: tl.constexpr
):
    """Cross entropy of a program, whether it is right, and share * the gradient of the loss by the logits."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    inside = column < classes
    x = tl.load(logits + row * classes + column, mask=inside, other=float("-inf")).to(tl.float32)
    if BIAS:
        x += tl.load(bias + column, mask=inside, other=0.0)
    wanted = tl.load(target + row).to(tl.int32)
    top = tl.max(x, axis=0)
    power = tl.exp(x - top)
    total = tl.sum(power, axis=0)
    tl.store(losses + row, top + tl.log(total) - tl.sum(tl.where(column == wanted, x, 0.0), axis=0))
    first = tl.min(tl.where(x == top, column, WIDTH), axis=0)  # of several equal ones, as arg max has it
    tl.store(correct + row, (first == wanted).to(tl.float32))
    gradient = share * (power / total - tl.where(column == wanted, 1.0, 0.0))
    tl.store(d_logits + row * classes + column, gradient.to(d_logits.dtype.element_ty), mask=inside)


@triton.jit
def _tally(losses, correct, norm, failed, kept, programs, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add a step to the sums of `Tally`."""
    loss = tl.zeros((WIDTH,), tl.float64)
    right = tl.zeros((WIDTH,), tl.float64)
    for start in range(0, programs, WIDTH):
        index = start + tl.arange(0, WIDTH)
        loss += tl.load(losses + index, mask=index < programs, other=0.0).to(tl.float64)
        right += tl.load(correct + index, mask=index < programs, other=0.0).to(tl.float64)
    length = tl.load(norm).to(tl.float64)
    bad = tl.load(failed) > 0
    steps = tl.load(kept + 6)
    if bad:
        tl.store(kept + 5, tl.load(kept + 5) + 1)
        tl.store(kept + 7, tl.minimum(tl.load(kept + 7), steps))
    else:
        tl.store(kept, tl.load(kept) + programs)
        tl.store(kept + 1, tl.load(kept + 1) + tl.sum(loss, axis=0))
        tl.store(kept + 2, tl.load(kept + 2) + tl.sum(right, axis=0))
        tl.store(kept + 3, tl.load(kept + 3) + 1)
        tl.store(kept + 4, tl.load(kept + 4) + length)
        tl.store(kept + 8, tl.maximum(tl.load(kept + 8), length))
    tl.store(kept + 6, steps + 1)


@triton.jit
def _squares(gradient, partials, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(tl.program_id(0) * BLOCK, size, tl.num_programs(0) * BLOCK):
        index = start + tl.arange(0, BLOCK)
        x = tl.load(gradient + index, mask=index < size, other=0.0)
        total += x * x
    tl.store(partials + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def _decide(  # type: ignore[no-untyped-def]
    partials, norm, failed, applied, step, factors, rate, limit, clip,
    DECAY: tl.constexpr, LOG_1: tl.constexpr, LOG_2: tl.constexpr, DELAY: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """From the sums of squares to everything about the update that is one number.

    factors: what gradients are divided by, the step size, the root of the second moment's correction, the share of the
    average that is new.
    """
    length = tl.sqrt(tl.sum(tl.load(partials + tl.arange(0, PARTS)), axis=0))
    good = length <= limit  # not where it is not a number
    tl.store(norm, length)
    tl.store(failed, 1.0 - good.to(tl.float32))
    count = tl.load(step) + good.to(tl.float32)
    tl.store(step, count)
    times = tl.load(applied) + good.to(tl.float64)
    tl.store(applied, times)
    correction_1 = 1.0 - tl.exp(count.to(tl.float64) * LOG_1)
    correction_2 = 1.0 - tl.exp(count.to(tl.float64) * LOG_2)
    decay = tl.minimum((1.0 + times) / (DELAY + times), DECAY)
    tl.store(factors, tl.maximum(length / clip, 1.0))
    tl.store(factors + 1, (tl.load(rate).to(tl.float64) / correction_1).to(tl.float32))
    tl.store(factors + 2, tl.sqrt(correction_2).to(tl.float32))
    tl.store(factors + 3, (1.0 - decay).to(tl.float32))


@triton.jit
def _adam(  # type: ignore[no-untyped-def]
    weights, gradient, first, second, average, failed, factors, size,
    BETA_1: tl.constexpr, BETA_2: tl.constexpr, EPS: tl.constexpr, AVERAGE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    if tl.load(failed) == 0:
        index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = index < size
        g = tl.load(gradient + index, mask=inside) / tl.load(factors)
        m = tl.load(first + index, mask=inside)
        m += (1.0 - BETA_1) * (g - m)
        v = BETA_2 * tl.load(second + index, mask=inside) + (1.0 - BETA_2) * g * g
        w = tl.load(weights + index, mask=inside)
        w -= tl.load(factors + 1) * m / (tl.sqrt(v) / tl.load(factors + 2) + EPS)
        tl.store(first + index, m, mask=inside)
        tl.store(second + index, v, mask=inside)
        tl.store(weights + index, w, mask=inside)
        if AVERAGE:
            a = tl.load(average + index, mask=inside)
            tl.store(average + index, a + tl.load(factors + 3) * (w - a), mask=inside)


def losses(
    logits: Tensor, target: Tensor, bias: Tensor | None = None, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of each program, 1 where it is right, and the gradient of the mean loss by the logits.

    Args:
        logits: [program, class]
        target: [program]
        bias: What is to be added to all logits. [class]
        dtype: Of the gradient, if not that of the logits.
    """
    programs, classes = logits.shape
    loss, correct = (torch.empty(programs, device=logits.device) for _ in range(2))
    d_logits = torch.empty_like(logits, dtype=dtype)
    _loss[(programs,)](
        logits, logits if bias is None else bias, target, d_logits, loss, correct, 1.0 / programs, classes,
        WIDTH=triton.next_power_of_2(classes), BIAS=bias is not None,
    )  # fmt: skip
    return loss, correct, d_logits


def tally(kept: Tensor, loss: Tensor, correct: Tensor, norm: Tensor, failed: Tensor) -> None:
    """What `Tally.add` does, from the losses of the programs."""
    _tally[(1,)](loss, correct, norm, failed, kept, len(loss), WIDTH=256)


class FusedAdam:
    """Norm, clipping, Adam and average of a flat parameter in three launches.

    Args:
        settings: Those of a `torch.optim.Adam`: betas, eps.
        delay: See `Update`.

    Attributes:
        norm, failed: See `Update`.
    """

    def __init__(self, settings: dict[str, Any], delay: float, device: torch.device) -> None:
        self._betas: tuple[float, float] = settings["betas"]
        self._eps: float = settings["eps"]
        self._delay = delay
        self.norm, self.failed = torch.zeros((), device=device), torch.zeros((), device=device)
        self._partials, self._factors = torch.zeros(_PARTS, device=device), torch.zeros(4, device=device)

    def __call__(
        self,
        weights: Tensor,
        gradient: Tensor,
        state: dict[str, Tensor],
        applied: Tensor,
        rate: Tensor,
        *,
        limit: float,
        clip: float,
        average: Tensor | None,
        decay: float,
    ) -> None:
        """Apply a gradient; `state` is that of torch's Adam."""
        size = weights.numel()
        _squares[(_PARTS,)](gradient, self._partials, size, BLOCK=_BLOCK)
        beta_1, beta_2 = self._betas
        _decide[(1,)](
            self._partials, self.norm, self.failed, applied, state["step"], self._factors, rate, float(limit),
            float(clip), DECAY=decay, LOG_1=math.log(beta_1), LOG_2=math.log(beta_2), DELAY=self._delay, PARTS=_PARTS,
        )  # fmt: skip
        _adam[(triton.cdiv(size, _BLOCK),)](
            weights, gradient, state["exp_avg"], state["exp_avg_sq"], weights if average is None else average,
            self.failed, self._factors, size, BETA_1=beta_1, BETA_2=beta_2, EPS=self._eps,
            AVERAGE=average is not None, BLOCK=_BLOCK,
        )  # fmt: skip
