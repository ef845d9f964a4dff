"""What is counted in each area."""

import json
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HANG_SECONDS = 30.0


@dataclass
class Tally:
    """What came of an area."""

    area: str
    injected: int = 0
    refused: int = 0
    lost: int = 0
    wrong: int = 0
    errors_5xx: int = 0
    tracebacks: int = 0
    hangs: int = 0
    peak_mb: float = 0.0

    @property
    def is_clean(self) -> bool:
        """Whether nothing happened that must not."""
        return not (self.lost or self.wrong or self.errors_5xx or self.tracebacks or self.hangs)

    def row(self) -> str:
        """A row of the table."""
        numbers = (self.injected, self.refused, self.lost, self.wrong, self.errors_5xx, self.tracebacks, self.hangs)
        return f"| {self.area} | {' | '.join(f'{x:,}' for x in numbers)} | {self.peak_mb:,.0f} |"


HEADER = (
    "| area | injected | refused | lost | wrong | 5xx | tracebacks | hangs | peak memory (MB) |\n" + "|---" * 9 + "|"
)


def peak_mb(process: int | str = "self") -> float:
    """Largest memory of a process so far."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1e3
    return 0.0


def watched(tally: Tally, work: Callable[[], object]) -> None:
    """Do something that may be refused with a sentence, and count everything else."""
    began = time.monotonic()
    tally.injected += 1
    try:
        work()
    except (ValueError, FileNotFoundError) as error:
        tally.refused += 1
        if isinstance(error, UnicodeDecodeError | json.JSONDecodeError):
            _tell(tally, error)
    except Exception as error:
        _tell(tally, error)
    tally.hangs += time.monotonic() - began > HANG_SECONDS


def _tell(tally: Tally, error: Exception) -> None:
    tally.tracebacks += 1
    if tally.tracebacks <= 3:
        traceback.print_exception(error)
