"""Compute what a change of the code's structure must leave as it is, and write or check the golden files.

    python tests/golden/make.py --check     # compare to the last bit; for before and after on one machine
    python tests/golden/make.py             # write golden.json, after a change of behaviour that is wanted

`golden.json` has a section for each function in `SECTIONS`. Floats are stored as a hash of their bytes (`bits`), which
holds on one machine only, and as some rounded values, which `test_golden.py` compares with a tolerance on any machine.

`checkpoints/` has a run folder for each of `RUNS`, stopped after ten of twenty steps by the version that made these
files. Newer versions must resume them, so they are only written where they are missing: never delete them.
"""

import argparse
import hashlib
import json
import math
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from ipagnn.data import generate, read_shards, recipe
from ipagnn.languages.arithmetic import Lengths, ProgramTable, Sampler
from ipagnn.languages.arithmetic._compiled.hash import program_hashes
from ipagnn.models import ProgramModel, available_models, build_model, load_model, model_config
from ipagnn.training import Progress, RunFolder, TrainConfig, preset, read_config, read_metrics, train
from ipagnn.training.sources import make_source, open_data

HERE = Path(__file__).parent
GOLDEN = HERE / "golden.json"
CHECKPOINTS = HERE / "checkpoints"
RECORDS = HERE.parents[1] / "records"
PRESETS = ("paper", "quick", "smoke")
NAMES = ("ipa-gnn", "hard-ip-rnn", "trace-rnn", "line-rnn", "no-control", "no-execute", "ggnn", "r-gat")
RUNS = (*NAMES, "ipa-gnn-partial", "ipa-gnn-muon")
LENGTHS = Lengths.uniform(range(3, 21))
STOP, STEPS = 10, 20
"""Steps of a stored run when it was stopped, and in all."""


def settings(config: TrainConfig) -> dict[str, Any]:
    """What a configuration says, under names of this file's own: the one place to adapt when fields are renamed."""
    model, budget = config.model, config.model.budget
    options = {
        "ipa-gnn": {"normalise": "normalise"},
        "hard-ip-rnn": {"normalise": "normalise"},
        "trace-rnn": {"decoder": "decoder"},
        "line-rnn": {"decoder": "decoder"},
        "no-control": {"both_ways": "bidirectional", "edge_types": "edge_types"},
        "no-execute": {"normalise": "normalise", "absorb": "absorbing_exit"},
        "ggnn": {},
        "r-gat": {"heads": "heads"},
        "env-ipa-gnn": {"width": "width", "values": "values"},
    }[model.name]
    return {
        "model": model.name,
        "hidden": model.hidden,
        "options": {key: getattr(model, name) for key, name in options.items()} | {"indent": model.indent},
        "model_budget": [budget.kind, budget.factor, budget.cap],
        "grammar": sha256(json.dumps(model.grammar.to_dict(), sort_keys=True).encode()),
        "task": config.task,
        "length": config.data.length,
        "data": config.data.source,
        "seed": config.seed,
        "init_from": config.init_from,
        "batch_size": config.data.batch_size,
        "examples": config.data.examples,
        "bucket_batches": config.data.bucket_batches,
        "curriculum": config.data.curriculum,
        "training_budget": [config.data.budget, config.data.budget_cap],
        "optimizer": config.optimizer.algorithm,
        "learning_rate": config.optimizer.learning_rate,
        "max_grad_norm": config.optimizer.max_grad_norm,
        "schedule": config.optimizer.schedule,
        "warmup": config.optimizer.warmup,
        "averaging": config.optimizer.averaging,
        "precision": config.run.precision,
        "validation": [config.run.validation_count, config.run.validation_every],
        "log_every": config.run.log_every,
        "on_nan": [config.optimizer.on_nan, config.optimizer.norm_limit],
    }


def run_config(run: str) -> TrainConfig:
    """The configuration of a run in `checkpoints/`, as it was when it began."""
    name = run.removesuffix("-partial").removesuffix("-muon")
    smoke = preset("smoke", name, "partial" if run.endswith("-partial") else "full")
    config = smoke.replace(
        model=smoke.model.replace(hidden=8),
        batch_size=16,
        examples=16 * STEPS,
        schedule="cosine",
        warmup=64,
        validation_count=64,
        validation_every=16 * STEPS,
        log_every=1,
        checkpoint_every=0.0,
        checkpoint_steps=STOP + 1,
        device="cpu",
    )
    if run.endswith("-muon"):
        config = config.replace(algorithm="muon", budget="trace", averaging=0.9, bucket_batches=4, curriculum=0.4)
    return config


def predictions(name: str) -> dict[str, Any]:
    """What packaged weights give for complete programs, and for masked ones where they were trained on these."""
    model = load_model(name)
    if model.trained_digits is not None:
        model = model.with_digits(3)  # few enough to have a probability for every value
    tasks = ["full", "partial"] if name.endswith("-partial") else ["full"]
    return {task: logits(model, Sampler(task, LENGTHS, model.config.grammar, seed=24).table(0, 12)) for task in tasks}


def initial(name: str) -> dict[str, Any]:
    """Fresh weights of seed 0, in order, and what they give: packed in float32, and dense in float64."""
    config = preset("smoke", name).model
    model = build_model(config, 0).eval()
    dense = build_model(config, 0).eval().double()
    table = Sampler(lengths=LENGTHS, grammar=config.grammar, seed=24).table(0, 12)
    return {
        "state_dict": [[key, list(x.shape), floats(x)] for key, x in model.state_dict().items()],
        "named_parameters": [key for key, _ in model.named_parameters()],
        "packed": logits(model, table),
        "dense": logits(dense, table, "reference"),
    }


def training(run: str) -> dict[str, Any]:
    """The next ten steps of a stored checkpoint: their metrics, and all tensors of the last checkpoint."""
    with tempfile.TemporaryDirectory() as place:
        with zipfile.ZipFile(CHECKPOINTS / f"{run}.zip") as archive:
            archive.extractall(place)
        folder = RunFolder(place)
        config = folder.config()
        result = train(config, place)
        lines = read_metrics(folder)
        steps = [line for line in lines if line["kind"] == "train"]
        selected = load_model(folder.path / "model.safetensors").state_dict()
        (validation,) = (line for line in lines if line["kind"] == "validation")
        return {
            "settings": settings(config),
            "result": [result.state, result.step, result.examples, result.best_step, result.accuracy],
            "steps": [line["step"] for line in steps],
            **{key: floats([line[key] for line in steps], STEPS) for key in ("loss", "accuracy", "norm", "rate")},
            "validation": floats([validation["loss"]], 0),
            # Single weights depend on rounding more than losses do, so only the norms of tensors are compared.
            "tensors": {key: floats(x, 0) for key, x in sorted(load_file(folder.last).items())},
            "selected": {key: floats(x, 0) for key, x in sorted(selected.items())},
        }


def record(name: str) -> dict[str, Any]:
    """The settings of a record."""
    return settings(read_config(RECORDS / name / "config.toml"))


def presets(name: str) -> dict[str, Any]:
    """The presets of a model."""
    return {kind: settings(preset(kind, name)) for kind in PRESETS}


def programs(task: str) -> dict[str, Any]:
    """The first programs of streams and splits, and of what a run trains on."""
    config = preset("smoke", "ipa-gnn", task)
    sources = {
        "plain": config,
        "bucketed": config.replace(bucket_batches=4),
        "curriculum": config.replace(curriculum=0.5, examples=64),
        "all": config.replace(bucket_batches=4, curriculum=0.5, examples=256, seed=3, length=8),
        "by lines": config.replace(bucket_batches=4, model=model_config("line-rnn", config.model)),
    }
    if task == "full":
        sources["short traces"] = config.replace(budget="trace", budget_cap=20, length=10)
        sources["by trace"] = config.replace(bucket_batches=4, model=model_config("trace-rnn", config.model))
    withheld = Sampler(task, seed=0, withheld=True).table(0, 5)
    return {
        "sampler": integers(Sampler(task, seed=0).table(0, 1000)),
        "may be trained on": integers(Sampler(task, seed=0, withheld=False).table(0, 200)),
        "short traces": integers(Sampler(task, seed=0, trace_limit=30).table(0, 200)),
        "withheld": [f"{x:016x}" for x in program_hashes(withheld.line_offsets, withheld.line_tokens)],
        "validation": integers(recipe("validation", task).table(0, 100)),
        "test": integers(recipe("test", task).table(0, 4500).take(range(0, 4500, 100))),
        "sources": {key: integers(make_source(x, None).table(0, 128)) for key, x in sources.items()},
    }


def shards(kind: str) -> dict[str, Any]:
    """A small data set on disk, and the order in which a run reads it. Bytes depend on the version of pyarrow."""
    with tempfile.TemporaryDirectory() as place:
        manifest = generate(place, count=2000, seed=0, shard_size=800, threads=1)
        config = preset(kind).replace(source=place)
        return {
            "counts": [[x.name, x.count] for x in manifest.shards],
            "bits": [x.sha256 for x in manifest.shards] + [manifest.fingerprint],
            "by_length": {str(key): count for key, count in manifest.by_length.items()},
            "duplicates": manifest.duplicates,
            "programs": integers(ProgramTable.concatenate([read_shards(place).shard(i) for i in range(3)])),
            "epochs": integers(make_source(config, open_data(config)).table(1900, 300)),
        }


def files(run: str) -> str:
    """A hash of a stored run, which is to stay as it is."""
    return sha256((CHECKPOINTS / f"{run}.zip").read_bytes())


SECTIONS: dict[str, tuple[Callable[[str], Any], Iterable[str]]] = {
    "predictions": (predictions, available_models()),
    "initial": (initial, NAMES),
    "training": (training, RUNS),
    "records": (record, sorted(x.parent.name for x in RECORDS.glob("*/config.toml"))),
    "presets": (presets, NAMES),
    "programs": (programs, ("full", "partial")),
    "shards": (shards, ("paper",)),
    "files": (files, RUNS),
}


def sha256(data: bytes) -> str:
    """A hash of 64 bits, which is enough here."""
    return hashlib.sha256(data).hexdigest()[:16]


def integers(table: ProgramTable) -> str:
    """A hash of programs and their targets."""
    arrays = (table.line_offsets.astype("<i8"), table.line_tokens.astype("<i2"), table.target.astype("<i4"))
    return sha256(b"".join(x.tobytes() for x in arrays))


def floats(values: Any, shown: int = 3) -> dict[str, Any]:
    """A hash of an array of floats, its Euclidean norm and its first values."""
    array = np.ascontiguousarray(values)
    some = [math.sqrt((array.astype(np.float64) ** 2).sum()), *array.reshape(-1)[:shown].tolist()]
    return {"bits": sha256(array.tobytes()), "values": [float(f"{x:.7g}") for x in some]}


def logits(model: ProgramModel, table: ProgramTable, execution: str = "auto") -> list[dict[str, Any]]:
    """For every program the likeliest value, and the logits."""
    with torch.inference_mode():
        found = model(model.collate(table), execution=execution).logits
    return [{"argmax": int(x.argmax()), "top": floats(x.max()), "logits": floats(x)} for x in found]


def write_checkpoint(run: str) -> None:
    """Train a run for ten steps and store its folder, without what tells about the machine."""

    def stop(progress: Progress) -> None:
        if progress.step > STOP:
            raise InterruptedError

    with tempfile.TemporaryDirectory() as place:
        with suppress(InterruptedError):
            train(run_config(run), place, report=stop)
        about = json.loads((Path(place) / "run.json").read_text()) | {"starts": []}
        (Path(place) / "run.json").write_text(json.dumps(about))
        CHECKPOINTS.mkdir(exist_ok=True)
        with zipfile.ZipFile(CHECKPOINTS / f"{run}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name in ("config.toml", "run.json", "metrics.jsonl", "checkpoints/last.safetensors"):
                archive.writestr(zipfile.ZipInfo(name), (Path(place) / name).read_bytes(), zipfile.ZIP_DEFLATED)


def differences(golden: Any, found: Any, tolerance: float, path: str = "") -> list[str]:
    """Where two trees differ. With a tolerance floats may differ by it, and hashes of floats do not count."""
    if isinstance(golden, dict) and isinstance(found, dict):
        changed = [f"{path}/{key} {'is gone' if key in golden else 'is new'}" for key in golden.keys() ^ found.keys()]
        keys = [key for key in golden if key in found and not (tolerance and key == "bits")]
        return changed + [x for key in keys for x in differences(golden[key], found[key], tolerance, f"{path}/{key}")]
    if isinstance(golden, list) and isinstance(found, list) and len(golden) == len(found):
        pairs = enumerate(zip(golden, found, strict=True))
        return [x for i, (a, b) in pairs for x in differences(a, b, tolerance, f"{path}/{i}")]
    if isinstance(golden, float) and isinstance(found, float):
        same = math.isclose(golden, found, rel_tol=tolerance, abs_tol=tolerance)
    else:
        same = type(golden) is type(found) and golden == found
    return [] if same else [f"{path}: {golden!r} became {found!r}"]


def main() -> int:
    """Write or check the golden files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing; exit code 1 on a difference")
    check = parser.parse_args().check
    torch.set_num_threads(1)
    for run in RUNS:
        if not check and not (CHECKPOINTS / f"{run}.zip").exists():
            write_checkpoint(run)
    found = {key: {name: compute(name) for name in names} for key, (compute, names) in SECTIONS.items()}
    if not check:
        GOLDEN.write_text(json.dumps(found, indent=1) + "\n")
        return 0
    different = differences(json.loads(GOLDEN.read_text()), json.loads(json.dumps(found)), 0.0)
    print(*different, f"{len(different)} differences", sep="\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
