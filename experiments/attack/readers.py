"""Attacks on what reads programs and files."""

import hashlib
import json
import random
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from ipagnn.data import generate, read_shards
from ipagnn.data.shards import MANIFEST
from ipagnn.languages.arithmetic import Lengths, Program, Sampler, execute, format_program, parse
from ipagnn.languages.arithmetic._compiled.check import FINE, find_problem
from ipagnn.languages.arithmetic.interpreter import ExecutionError
from ipagnn.languages.arithmetic.reference import spells_program
from ipagnn.models import build_model, load_model, save_model
from ipagnn.training import RunFolder, TrainConfig, preset, read_config, read_metrics, train
from ipagnn.training.runs.checkpoint import Checkpoint

from .mutations import mutated_file, mutated_tokens, texts
from .tally import Tally, peak_mb, watched

FILES = ("model", "manifest", "shard", "checkpoint", "config")


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

    def read(self, kind: str, damaged: bytes) -> bool:
        """Read a damaged file in its place, as the package does, and put the old one back.

        Returns:
            Whether what was read is true, as far as anyone can tell.
        """
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
                data = read_shards(path.parent)
                data.verify()
                if kind == "shard":
                    return all(map(_is_true, data.table(), data.table().target.tolist()))
            return True
        finally:
            manifest.write_bytes(described)
            path.write_bytes(before)


def _is_true(program: Program, target: int) -> bool:
    """Whether a program is of the language and has the target, found out in the plain way."""
    return spells_program(program.line_tokens.tolist()) and execute(program).value == target


def attack_files(kind: str, count: int, deadline: float, samples: Samples, seed: int) -> Tally:
    """Let damaged files of a kind be read."""
    tally, draw = Tally(kind), random.Random(f"{kind} {seed}")
    data = samples.path(kind).read_bytes()
    while tally.injected < count and time.monotonic() < deadline:
        damaged = mutated_file(kind, data, draw)

        def read(damaged: bytes = damaged) -> None:
            tally.wrong += not samples.read(kind, damaged)

        watched(tally, read)
    tally.lost = int(samples.path(kind).read_bytes() != data)
    tally.peak_mb = peak_mb()
    return tally


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
