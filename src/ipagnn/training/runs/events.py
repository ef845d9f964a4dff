"""The metrics for TensorBoard, where it is installed."""

from contextlib import suppress
from pathlib import Path
from typing import Any

_COUNTS = ("kind", "step", "examples", "count", "seconds")


class Events:
    """Writes the numbers of metrics lines as scalars, `train/loss` and so on; without TensorBoard it does nothing.

    Args:
        directory: Where to.
        step: Steps taken so far; events of later ones, of an earlier start, are hidden.
    """

    def __init__(self, directory: Path, step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            self._writer: Any = None
        else:
            self._writer = SummaryWriter(str(directory), purge_step=step + 1 if step else None)

    def write(self, line: dict[str, Any]) -> None:
        """Write one line of metrics."""
        if self._writer is None:
            return
        for name, value in line.items():
            if name not in _COUNTS and value is not None:
                with suppress(OSError):  # other files report a full disk
                    self._writer.add_scalar(f"{line['kind']}/{name}", value, line["step"])

    def close(self) -> None:
        """Flush and close."""
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()
