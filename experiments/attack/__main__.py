"""The command: all areas one after the other."""

import argparse
import math
import sys
import tempfile
import time
from pathlib import Path

import torch

from . import __doc__ as description
from .kills import attack_by_killing
from .readers import FILES, Samples, attack_files, attack_programs, attack_tokens
from .server import Server, attack_connections, attack_memory, attack_requests
from .tally import HEADER, Tally

SHARES = {"programs": 2, "tokens": 1, **dict.fromkeys(FILES, 1.5), "requests": 6, "memory": 3, "kills": 4}
"""Of the time, if there is a limit on it."""


def attack(minutes: float, programs: int, requests: int, files: int, kills: int, seed: int) -> list[Tally]:
    """All areas, each until its count or its share of the time is reached."""
    torch.set_num_threads(1)
    unit = 60 * minutes / sum(SHARES.values())

    def until(area: str) -> float:
        return time.monotonic() + SHARES[area] * unit

    found: list[Tally] = []

    def tell(tally: Tally) -> None:
        found.append(tally)
        print(tally.row(), flush=True)

    print(HEADER, flush=True)
    with tempfile.TemporaryDirectory(prefix="ipagnn-attack-") as folder:
        root = Path(folder)
        samples = Samples(root / "samples")
        tell(attack_programs(programs, until("programs"), seed))
        tell(attack_tokens(programs, until("tokens"), seed))
        for kind in FILES:
            tell(attack_files(kind, files, until(kind), samples, seed))
        server = Server(root / "server.log")
        try:
            tell(attack_requests(server, requests, until("requests"), seed))
            tell(attack_memory(server, until("memory")))
            tell(attack_connections(server))
        finally:
            server.process.kill()
        tell(attack_by_killing(kills, until("kills"), root, samples, seed))
    return found


def main() -> None:
    """Attack, and say what came of it."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=math.inf, help="about how long; by default until all is done")
    parser.add_argument("--programs", type=int, default=100_000, help="mutated programs, and mutated tokens")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--files", type=int, default=2_000, help="mutated files of each kind")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found = attack(options.minutes, options.programs, options.requests, options.files, options.kills, options.seed)
    failed = [tally.area for tally in found if not tally.is_clean]
    print(f"\nNot clean: {', '.join(failed)}." if failed else "\nNothing was lost, wrong or crashed.")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
