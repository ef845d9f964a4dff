"""Attacks this installation with programs, requests, damaged files and `kill -9`, and counts what goes wrong.

    python experiments/attack.py --minutes 5

Only this machine is attacked: the server listens on 127.0.0.1, and files lie in a temporary folder. Every area stops
when its count or its share of the time is reached. The exit status is 1 if anything was lost, wrong or crashed.

| area | injected | must not happen |
|---|---|---|
| programs | programs with some letters and lines changed | anything but a program or a `ProgramError` |
| tokens | token ids with some of them changed | another verdict than the parser's |
| model, manifest, shard, checkpoint, config | files with some bytes, keys or values changed | anything but a sentence |
| requests | mutated programs to `/api/predict` and `/api/explain` | 5xx but 503, no answer, tracebacks, > 1 GB |
| connections | 1,100 halves of headers, 260 clients that never read | a server that others cannot reach |
| kills | `kill -9` of `generate` and `train` at any time | other bytes at the end |
"""

import argparse
import hashlib
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import torch

from ipagnn.data import generate, read_shards
from ipagnn.data.shards import MANIFEST
from ipagnn.languages.arithmetic import Lengths, ProgramError, Sampler, execute, format_program, parse
from ipagnn.languages.arithmetic._compiled.check import FINE, find_problem
from ipagnn.languages.arithmetic.interpreter import ExecutionError
from ipagnn.languages.arithmetic.reference import spells_program
from ipagnn.models import available_models, build_model, load_model, save_model
from ipagnn.training import RunFolder, TrainConfig, preset, read_config, read_metrics, train
from ipagnn.training.runs.checkpoint import Checkpoint

LETTERS = "v0123456789 +-*/=<>%:\n\r\t[]_MASK#ifwhilebreakcontinuepasselseé\u2028😀\x00"
HANG_SECONDS = 30.0
PEAK_BYTES = 10**9
ODD: list[Any] = [None, True, -1, 0, 2**31, 2**63, 1e300, float("nan"), "", "nope", "7", [], {}, [[]], {"a": {"b": []}}]
FILES = ("model", "manifest", "shard", "checkpoint", "config")


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


def mutated_text(text: str, draw: random.Random) -> str:
    """A text with some letters, lines and numbers changed."""
    letters = list(text)
    for _ in range(draw.choice((0, 1, 1, 2, 5, 30))):
        at, kind = draw.randrange(len(letters) + 1), draw.randrange(5)
        if kind == 0:
            letters.insert(at, draw.choice(LETTERS))
        elif kind == 1:
            del letters[at : at + draw.randrange(1, 8)]
        elif kind == 2:
            letters[at : at + 1] = draw.choice(LETTERS)
        elif kind == 3:
            letters[at:at] = letters[at : at + draw.randrange(1, 60)]
        else:
            letters.insert(at, draw.choice(("999", "1000", "\nwhile v0 > 0:\n  v0 = 1", "\n_", "*= 999")))
    return "".join(letters)


def mutated_tokens(tokens: "np.ndarray[Any, Any]", draw: random.Random) -> "np.ndarray[Any, Any]":
    """Token ids with some of them changed."""
    tokens = tokens.copy()
    for _ in range(draw.choice((0, 1, 1, 2, 4))):
        i, kind = draw.randrange(len(tokens)), draw.randrange(4)
        if kind == 0:
            tokens[i, draw.randrange(4)] = draw.choice((0, 1, 2, 999, 1001, 1014, 1019, 1036, 1045, 1047, -1, 32767))
        elif kind == 1 and len(tokens) > 1:
            tokens = np.delete(tokens, i, 0)
        elif kind == 2:
            tokens[[i, draw.randrange(len(tokens))]] = tokens[[draw.randrange(len(tokens)), i]]
        else:
            tokens[i, 0] = max(int(tokens[i, 0]) + draw.choice((-1, 1)), -9) % 2**15
    return tokens


def mutated_bytes(data: bytes, draw: random.Random) -> bytes:
    """Bytes cut off, overwritten, repeated or taken out."""
    damaged = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 8))):
        at, kind = draw.randrange(len(damaged) + 1), draw.randrange(4)
        if kind == 0:
            del damaged[at:]
        elif kind == 1:
            damaged[at : at + 4] = draw.randbytes(4)
        elif kind == 2:
            damaged[at:at] = damaged[at : at + draw.randrange(1, 40)]
        else:
            del damaged[at : at + draw.randrange(1, 40)]
    return bytes(damaged)


def mutated_values(values: Any, draw: random.Random) -> Any:
    """JSON with a value somewhere in it replaced, taken out or nested deeper."""
    if isinstance(values, dict) and values and draw.random() < 0.9:
        key = draw.choice(sorted(values))
        changed = dict(values)
        if draw.random() < 0.15:
            del changed[key]
        elif draw.random() < 0.05:
            changed[key + "x"] = changed.pop(key)
        else:
            changed[key] = mutated_values(values[key], draw)
        return changed
    if isinstance(values, list) and values and draw.random() < 0.7:
        at = draw.randrange(len(values))
        return [*values[:at], mutated_values(values[at], draw), *values[at + 1 :]]
    return draw.choice(ODD)


def mutated_safetensors(data: bytes, draw: random.Random) -> bytes:
    """A file of tensors whose header or metadata says something else."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__")
    key = draw.choice(sorted(metadata))
    if draw.random() < 0.8:
        try:
            metadata[key] = json.dumps(mutated_values(json.loads(metadata[key]), draw))
        except ValueError:
            metadata[key] = draw.choice(("", "nope", "[" * 5000, "1e999", "null"))
    else:
        header = mutated_values(header, draw)
    whole = header | {"__metadata__": metadata} if isinstance(header, dict) else header
    text = json.dumps(whole).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


def mutated_file(kind: str, data: bytes, draw: random.Random) -> bytes:
    """A file of its kind, damaged in a way that its reader may not notice at once."""
    if draw.random() < 0.3:
        return mutated_bytes(data, draw)
    if kind in ("model", "checkpoint"):
        return mutated_safetensors(data, draw)
    if kind == "manifest":
        values = mutated_values(json.loads(data), draw)
        if isinstance(values, dict):
            values["checksum"] = ""
        return json.dumps(values).encode()
    if kind == "config":
        lines = data.decode().split("\n")
        at = draw.randrange(len(lines))
        name = lines[at].partition("=")[0]
        lines[at] = f"{name} = {draw.choice(('nan', 'inf', '1e300', '-1', '[]', '{}', '[[1]]', 'true', '7', ''))}"
        return "\n".join(lines).encode()
    return mutated_bytes(data, draw)


class Samples:
    """A small file of each kind, and what reads it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        smoke = preset("smoke", "line-rnn")
        self.config: TrainConfig = smoke.replace(
            model=smoke.model.replace(hidden=4),
            batch_size=8,
            examples=96,
            validation_count=20,
            validation_every=32,
            log_every=2,
            checkpoint_every=0.0,
            checkpoint_steps=4,
        )
        train(self.config, root / "run")
        generate(root / "data", "full", "train", 200, shard_size=100)
        save_model(build_model("ipa-gnn", hidden=4), root / "model.safetensors")
        self.shard = read_shards(root / "data").manifest.shards[0].name

    def path(self, kind: str) -> Path:
        """Where the file of a kind is."""
        return {
            "model": self.root / "model.safetensors",
            "manifest": self.root / "data" / MANIFEST,
            "shard": self.root / "data" / self.shard,
            "checkpoint": self.root / "run" / "checkpoints" / "last.safetensors",
            "config": self.root / "run" / "config.toml",
        }[kind]

    def read(self, kind: str, damaged: bytes) -> None:
        """Read a damaged file in its place, as the package does, and put the old one back."""
        path = self.path(kind)
        before = path.read_bytes()
        manifest = self.path("manifest")
        described = manifest.read_bytes()
        try:
            path.write_bytes(damaged)
            if kind == "model":
                load_model(path)
            elif kind == "checkpoint":
                Checkpoint.read(path)
            elif kind == "config":
                read_config(path)
                read_metrics(RunFolder(path.parent))
            else:
                if kind == "shard":  # with a checksum that is right, so that the shard itself is read
                    values = json.loads(described) | {"checksum": ""}
                    values["shards"][0] |= {"bytes": len(damaged), "sha256": hashlib.sha256(damaged).hexdigest()}
                    manifest.write_text(json.dumps(values))
                read_shards(path.parent).verify()
        finally:
            manifest.write_bytes(described)
            path.write_bytes(before)


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


def attack_files(kind: str, count: int, deadline: float, samples: Samples, seed: int) -> Tally:
    """Let damaged files of a kind be read."""
    tally, draw = Tally(kind), random.Random(f"{kind} {seed}")
    data = samples.path(kind).read_bytes()
    while tally.injected < count and time.monotonic() < deadline:
        damaged = mutated_file(kind, data, draw)
        watched(tally, lambda damaged=damaged: samples.read(kind, damaged))  # type: ignore[misc]
    tally.lost = int(samples.path(kind).read_bytes() != data)
    tally.peak_mb = peak_mb()
    return tally


def texts(draw: random.Random) -> Iterator[str]:
    """Mutated programs without an end."""
    tables = [Sampler(task, Lengths.uniform((5, 10, 20)), seed=4).table(0, 200) for task in ("full", "partial")]  # type: ignore[arg-type]
    sources = [format_program(program) for table in tables for program in table]
    while True:
        yield mutated_text(draw.choice(sources), draw)


def attack_programs(count: int, deadline: float, seed: int) -> Tally:
    """Let mutated texts be parsed, written and executed."""
    tally, draw = Tally("programs"), random.Random(seed)

    def run(source: str) -> None:
        program = parse(source)
        tally.wrong += parse(format_program(program)) != program
        with suppress(ExecutionError):
            execute(program, max_steps=10_000)

    for source in texts(draw):
        if tally.injected >= count or time.monotonic() > deadline:
            break
        watched(tally, lambda source=source: run(source))  # type: ignore[misc]
    tally.peak_mb = peak_mb()
    return tally


def attack_tokens(count: int, deadline: float, seed: int) -> Tally:
    """Let mutated tokens be checked, in both ways."""
    tally, draw = Tally("tokens"), random.Random(seed)
    table = Sampler("full", Lengths.uniform((2, 5, 10, 20)), seed=seed).table(0, 500)
    programs = [program.line_tokens for program in table]
    while tally.injected < count and time.monotonic() < deadline:
        tokens = mutated_tokens(draw.choice(programs), draw)
        fine = find_problem(np.array((0, len(tokens))), tokens, 0)[2] == FINE
        tally.wrong += fine != spells_program(tokens.tolist())
        tally.injected += 1
        tally.refused += not fine
    tally.peak_mb = peak_mb()
    return tally


class Server:
    """The server in a process of its own, on a free port of 127.0.0.1."""

    def __init__(self, log: Path) -> None:
        models = [part for name in available_models() for part in ("--model", name)]
        command = [sys.executable, "-m", "ipagnn", "serve", "--port", "0", *models]
        self.log = log
        with log.open("w") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert self.process.stdout is not None
        found = re.search(r"http://\S+", self.process.stdout.readline())
        if not found:
            raise SystemExit(f"The server did not start: {log.read_text()[-500:]}")
        self.address = urlsplit(found.group())

    def ask(self, method: str, path: str, body: Any = None, timeout: float = HANG_SECONDS) -> tuple[int, bytes]:
        """Status and body of an answer."""
        with closing(http.client.HTTPConnection(self.address.netloc, timeout=timeout)) as connection:
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def end(self) -> float:
        """Seconds that it took to end in good order."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
        return time.monotonic() - began


def attack_requests(server: Server, count: int, deadline: float, seed: int, clients: int = 4) -> Tally:
    """Send mutated programs to all models, and then what takes most memory."""
    tally, lock = Tally("requests"), threading.Lock()
    models = available_models()

    def work(rank: int) -> None:
        draw = random.Random(f"{seed} {rank}")
        for source in texts(draw):
            with lock:
                if tally.injected >= count or time.monotonic() > deadline:
                    return
                tally.injected += 1
            body: Any = {"source": source, "model": draw.choice((None, *models))}
            body = mutated_values(body, draw) if draw.random() < 0.05 else body
            try:
                status, answer = server.ask("POST", draw.choice(("/api/predict", "/api/explain")), body)
            except TimeoutError:
                tally.hangs += 1
                continue
            except (OSError, http.client.HTTPException):
                tally.lost += 1
                continue
            with lock:
                tally.refused += status in (400, 413, 422, 503)
                tally.errors_5xx += status >= 500 and status != 503
                if status == 200:
                    document = json.loads(answer)
                    with suppress(ProgramError, ExecutionError):
                        true = execute(parse(source), max_steps=10_000).value
                        tally.wrong += document["true_value"] is not None and document["true_value"] != true

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in models:  # what takes most memory
        for source in ("v0 = 1\nwhile v0 > 0:\n  v0 = 1", "\n".join(["v0 = 1", *["v0 += 1"] * 199])):
            status, _ = server.ask("POST", "/api/explain", {"source": source, "model": name})
            tally.injected += 1
            tally.refused += status in (422, 503)
            tally.errors_5xx += status >= 500 and status != 503
    tally.tracebacks = server.log.read_text().count("Traceback")
    tally.peak_mb = peak_mb(server.process.pid)
    tally.wrong += tally.peak_mb * 1e6 > PEAK_BYTES
    return tally


def attack_connections(server: Server) -> Tally:
    """Idle and unread connections, during which others must be answered."""
    tally = Tally("connections")
    body = json.dumps({"source": "v0 = 7\nv1 = 9\nwhile v1 > 0:\n  v1 -= 1\n  v0 *= 2"})
    header = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    unread = f"POST /api/explain HTTP/1.1\r\n{header}{body}".encode() * 100
    half = b"POST /api/predict HTTP/1.1\r\nHost: loc"
    for count, first in ((1_100, half), (260, unread)):
        held = []
        for _ in range(count):
            one = socket.socket()
            one.settimeout(5)
            with suppress(OSError):
                one.connect((server.address.hostname, server.address.port))
                one.setblocking(False)
                one.send(first)
            held.append(one)
            tally.injected += 1
            if len(held) % 100 == 0:
                try:
                    status, _ = server.ask("GET", "/api/health", timeout=10)
                    tally.refused += status == 503
                    tally.lost += status not in (200, 503)
                except TimeoutError:
                    tally.hangs += 1
                except (OSError, http.client.HTTPException):
                    tally.lost += 1
        for one in held:
            one.close()
    tally.tracebacks = server.log.read_text().count("Traceback")
    tally.peak_mb = peak_mb(server.process.pid)
    tally.hangs += server.end() > 12
    return tally


def digests(folder: Path, pattern: str) -> dict[str, str]:
    """Hashes of files."""
    found = sorted(folder.rglob(pattern))
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def attack_by_killing(count: int, seconds: float, root: Path, samples: Samples, seed: int) -> Tally:
    """`kill -9` at any time; what is done again must end with the same bytes."""
    tally, draw = Tally("kills"), random.Random(seed)
    (root / "config.toml").write_bytes((samples.root / "run" / "config.toml").read_bytes())
    jobs: dict[str, tuple[list[str], str]] = {
        "data": (["generate", "{}", "--count", "300000", "--threads", "1"], "*.parquet"),
        "run": (["train", "{}", "--config", str(root / "config.toml")], "model.safetensors"),
    }
    whole: dict[str, tuple[dict[str, str], float]] = {}
    for name, (arguments, pattern) in jobs.items():
        began = time.monotonic()
        command = [sys.executable, "-m", "ipagnn", *(x.format(root / f"whole-{name}") for x in arguments)]
        subprocess.run(command, check=True, capture_output=True)
        whole[name] = digests(root / f"whole-{name}", pattern), time.monotonic() - began
    number, deadline = 0, time.monotonic() + seconds
    while tally.injected < count and time.monotonic() < deadline:
        number += 1
        name = draw.choice(sorted(jobs))
        (arguments, pattern), (expected, usual) = jobs[name], whole[name]
        folder = root / f"{name}-{number}"
        command = [sys.executable, "-m", "ipagnn", *(x.format(folder) for x in arguments)]
        for _ in range(min(3, count - tally.injected)):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                process.wait(draw.uniform(0, usual))
            except subprocess.TimeoutExpired:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
            tally.injected += 1
        done = subprocess.run(command, capture_output=True, check=False, text=True)
        tally.tracebacks += "Traceback" in done.stderr
        tally.lost += done.returncode != 0
        tally.wrong += done.returncode == 0 and digests(folder, pattern) != expected
        tally.lost += bool(list(folder.rglob("*.part")))
    tally.peak_mb = peak_mb()
    return tally


def attack(minutes: float, programs: int, requests: int, files: int, kills: int, seed: int) -> list[Tally]:
    """All areas, each until its count or its share of the time is reached."""
    torch.set_num_threads(1)
    shares = {"programs": 2, "tokens": 1, **dict.fromkeys(FILES, 1.5), "requests": 6, "kills": 4}
    unit = 60 * minutes / sum(shares.values())

    def until(area: str) -> float:
        return time.monotonic() + shares[area] * unit

    found: list[Tally] = []

    def tell(tally: Tally) -> None:
        found.append(tally)
        print(tally.row(), flush=True)

    print(HEADER)
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
            tell(attack_connections(server))
        finally:
            server.process.kill()
        tell(attack_by_killing(kills, shares["kills"] * unit, root, samples, seed))
    return found


def main() -> None:
    """Attack, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0, help="time for all areas together, about")
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
