"""The IPA-GNN laid out as the authors' release is, in JAX, against our step on the same GPU in the same run.

    PYTHONPATH=src python benchmarks/jax_dense.py [--batch 1024 32] [--seconds 4] [--hidden 200]
    PYTHONPATH=src python benchmarks/jax_dense.py --check

Dense: 30 steps for every program, every node of a padded graph at every step, the two-layer LSTM over the four tokens
of its statement, all in float32 arrays (products in what JAX takes by default; `--products highest` for full float32);
a scan over steps, a scan over tokens, sums over arriving edges by segment. Two things favour it: the four gates are one
product, and batches wait on the device. `one-hot` is the same with the sums as products with index matrices.

`--check` holds logits, gradients and some updates against the reference execution of this package, on any machine. JAX
runs in a process of its own that knows nothing of torch, and is given arrays.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

STEPS = 30
EPSILON = 1e-7
CLIP, RATE, DECAY_1, DECAY_2, ADAM_EPSILON = 5.0, 1e-3, 0.9, 0.999, 1e-8
UPDATES = 3
Arrays = dict[str, Any]


# In the process of JAX.


def logits_of(weights: Arrays, batch: Arrays, sums: str) -> Any:
    """The model. tokens [program, node, 4]; true, false [program, node]; exits, steps [program] -> [program, class]"""
    import jax
    from jax import lax
    from jax import numpy as jnp

    programs, nodes, _ = batch["tokens"].shape
    hidden = weights["cell.embedding"].shape[1]
    embedded = jnp.moveaxis(weights["cell.embedding"][batch["tokens"]], 2, 0)  # [token, program, node, hidden]
    is_exit = jnp.arange(nodes) == batch["exits"][:, None]
    sides = [batch["true"], batch["false"]]
    matrices = [jax.nn.one_hot(side, nodes) for side in sides]

    def arriving(values: Any, side: int) -> Any:
        """The sum of what goes to each node. [program, node, ...]"""
        if sums == "one-hot":
            return jnp.einsum("pst,ps...->pt...", matrices[side], values)
        return jax.vmap(lambda v, to: jax.ops.segment_sum(v, to, num_segments=nodes))(values, sides[side])

    def layer(memory: Any, output: Any, x: Any, number: int) -> tuple[Any, Any]:
        gates = x @ weights[f"cell.input_{number}"] + output @ weights[f"cell.hidden_{number}"]
        i, f, g, o = jnp.split(gates + weights[f"cell.bias_{number}"], 4, axis=-1)
        memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
        return memory, jax.nn.sigmoid(o) * jnp.tanh(memory)

    def token(state: Any, x: Any) -> tuple[Any, None]:
        memory_1, output_1 = layer(state[0], state[1], x, 1)
        memory_2, output_2 = layer(state[2], state[3], output_1, 2)
        return (memory_1, output_1, memory_2, output_2), None

    def step(carry: Any, t: Any) -> tuple[Any, None]:
        state, pointer = carry
        executed, _ = lax.scan(token, state, embedded)
        executed = jax.tree.map(lambda new, old: jnp.where(is_exit[..., None], old, new), executed, state)
        scores = jnp.concatenate(executed, axis=-1) @ weights["control.branch.weight"] + weights["control.branch.bias"]
        flow = pointer[..., None] * jax.nn.softmax(scores)
        mass = arriving(flow[..., 0], 0) + arriving(flow[..., 1], 1)

        def arrived(part: Any) -> Any:
            total = arriving(flow[..., :1] * part, 0) + arriving(flow[..., 1:] * part, 1)
            return total / (mass + EPSILON)[..., None]

        running = t < batch["steps"]
        state = jax.tree.map(
            lambda new, old: jnp.where(running[:, None, None], new, old), tuple(map(arrived, executed)), state
        )
        return (state, jnp.where(running[:, None], mass, pointer)), None

    state = (jnp.zeros((programs, nodes, hidden), jnp.float32),) * 4
    pointer = jnp.zeros((programs, nodes), jnp.float32).at[:, 0].set(1.0)
    (state, _), _ = lax.scan(step, (state, pointer), jnp.arange(STEPS))
    final = jnp.concatenate(state, axis=-1)[jnp.arange(programs), batch["exits"]]
    return final @ weights["output.weight"] + weights["output.bias"]


def make_update(sums: str) -> Callable[..., Any]:
    """One training step: weights, moments, count, batch -> weights, moments, count, loss."""
    import jax
    from jax import numpy as jnp

    def update(weights: Arrays, moments: Any, count: Any, batch: Arrays) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(weights, batch, sums)
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in gradients.values()))
        gradients = {name: g * jnp.minimum(1.0, CLIP / norm) for name, g in gradients.items()}
        count += 1
        first = {name: DECAY_1 * m + (1 - DECAY_1) * gradients[name] for name, m in moments[0].items()}
        second = {name: DECAY_2 * m + (1 - DECAY_2) * gradients[name] ** 2 for name, m in moments[1].items()}

        def moved(name: str, weight: Any) -> Any:
            slope = first[name] / (1 - DECAY_1**count)
            return weight - RATE * slope / (jnp.sqrt(second[name] / (1 - DECAY_2**count)) + ADAM_EPSILON)

        return {name: moved(name, weight) for name, weight in weights.items()}, (first, second), count, loss

    return jax.jit(update, donate_argnums=(0, 1))


def loss_of(weights: Arrays, batch: Arrays, sums: str) -> Any:
    """Mean cross entropy of the targets."""
    import jax
    from jax import numpy as jnp

    return -jnp.mean(
        jax.nn.log_softmax(logits_of(weights, batch, sums))[jnp.arange(len(batch["target"])), batch["target"]]
    )


def run_jax(folder: Path, sums: str, products: str, seconds: float) -> None:
    """Read weights and batches, and write what came of them (without `seconds`) or how long steps took."""
    import jax
    from jax import numpy as jnp

    jax.config.update("jax_default_matmul_precision", None if products == "default" else products)
    weights = {name: jnp.asarray(value) for name, value in np.load(folder / "weights.npz").items()}
    files = sorted(folder.glob("batch-*.npz"))
    batches = [{name: jnp.asarray(value) for name, value in np.load(file).items()} for file in files]
    update = make_update(sums)
    state: Any = (weights, (jax.tree.map(jnp.zeros_like, weights),) * 2, jnp.zeros((), jnp.float32))
    if not seconds:
        logits = jax.jit(logits_of, static_argnums=2)(weights, batches[0], sums)
        gradients = jax.jit(jax.grad(loss_of), static_argnums=2)(weights, batches[0], sums)
        found = {"logits": logits, **{f"gradient {name}": value for name, value in gradients.items()}}
        losses = []
        for _ in range(UPDATES):
            *state, loss = update(*jax.tree.map(jnp.copy, state), batches[0])
            losses.append(loss)
        np.savez(folder / "found.npz", losses=np.array(losses), **{name: np.asarray(x) for name, x in found.items()})
        return
    state = jax.tree.map(jnp.copy, state)
    began = time.perf_counter()
    for batch in batches:
        *state, _ = update(*state, batch)
    jax.block_until_ready(state)
    compiled = time.perf_counter() - began
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        for batch in batches:
            *state, _ = update(*state, batch)
        jax.block_until_ready(state)
        count += len(batches)
    milliseconds = 1e3 * (time.perf_counter() - began) / count
    peak = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0) / 2**30
    found = {
        "ms": milliseconds,
        "compile_s": compiled,
        "device": str(jax.devices()[0]),
        "jax": jax.__version__,
        "gib": peak,
    }
    (folder / "found.json").write_text(json.dumps(found))


# In the process of torch.


def padded(batch: Any, nodes: int) -> Arrays:
    """A batch as arrays with so many nodes a program; those that a program does not have lead to themselves."""
    programs = len(batch)
    offsets = batch.node_offsets.numpy()
    program = batch.node_program.numpy()
    place = np.arange(len(program)) - offsets[program]
    arrays: Arrays = {"tokens": np.zeros((programs, nodes, 4), np.int32)}
    arrays["tokens"][program, place] = batch.node_tokens.numpy()
    for name in ("true", "false"):
        arrays[name] = np.tile(np.arange(nodes, dtype=np.int32), (programs, 1))
        arrays[name][program, place] = getattr(batch, name).numpy() - offsets[program]
    exits = np.diff(offsets).astype(np.int32) - 1
    return arrays | {"exits": exits, "steps": batch.steps.numpy(), "target": batch.target.numpy().astype(np.int32)}


def in_jax(model: Any, batches: list[Any], sums: str, products: str, seconds: float) -> Arrays:
    """What `run_jax` found in a process of its own."""
    nodes = max(int(batch.node_offsets.diff().max()) for batch in batches)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.savez(folder / "weights.npz", **{key: value.cpu().numpy() for key, value in model.state_dict().items()})
        for k, batch in enumerate(batches):
            np.savez(folder / f"batch-{k:02d}.npz", **padded(batch, nodes))
        command = [sys.executable, __file__, "--child", name, "--sums", sums, "--products", products]
        environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        subprocess.run([*command, "--seconds", str(seconds)], check=True, env=environment)
        if seconds:
            found: Arrays = json.loads((folder / "found.json").read_text())
            return found
        return dict(np.load(folder / "found.npz"))


def check(hidden: int) -> None:
    """Print how far logits, gradients and the losses of some updates are from our dense form; fail if it is far."""
    import torch
    from torch.nn.functional import cross_entropy

    from ipagnn.data.splits import training_sampler
    from ipagnn.models import build_model, model_config
    from ipagnn.training.config import TrainConfig
    from ipagnn.training.step import PlainStep

    settings = model_config("ipa-gnn", hidden=hidden)
    table = training_sampler("full", 10, 0).table(0, 32)
    whole = build_model(settings, 0).collate(table).steps
    table = table.take([i for i, steps in enumerate(whole.tolist()) if steps <= STEPS])
    model = build_model(settings, 0)
    batch = model.collate(table)
    theirs = {sums: in_jax(model, [batch], sums, "highest", 0) for sums in ("segments", "one-hot")}
    logits = model(batch, execution="reference").logits
    cross_entropy(logits, batch.target).backward()
    ours = {"logits": logits.detach()} | {f"gradient {name}": p.grad for name, p in model.named_parameters()}
    config = TrainConfig(model=settings).replace(batch_size=len(batch), learning_rate=RATE, device="cpu")
    step = PlainStep(model, config, torch.device("cpu"))
    losses = []
    for _ in range(UPDATES):
        step(batch)
        losses.append(step.metrics().loss)
    for sums, found in theirs.items():
        print(f"{len(batch)} programs, T(x) {int(batch.steps.min())} to {int(batch.steps.max())}, H {hidden}, {sums}")
        for name, value in ours.items():
            distance = float((torch.from_numpy(found[name]) - value).norm() / value.norm())
            print(f"  {name:32s} {distance:.1e} of its norm")
            assert distance < 3e-5, name
        print(
            "  losses of updates",
            *(f"{a:.5f} and {b:.5f}" for a, b in zip(losses, found["losses"], strict=True)),
            sep="  ",
        )
        assert np.allclose(losses, found["losses"], atol=2e-4)
        assert losses[-1] < losses[0] - 1e-2


def compare(hidden: int, batch: int, seconds: float, products: str) -> None:
    """Print milliseconds a step and examples/s of both, and their ratio."""
    from gpu import DEVICE, config, milliseconds, source  # beside this file

    from ipagnn.models import build_model
    from ipagnn.training.graph_step import GraphStep

    fastest = 0.0
    tables = [source(batch, 1).table(k * batch, batch) for k in range(8)]
    settings = config(hidden, batch, "fp32", "dense")
    model = build_model(settings.model, 0)
    for sums in ("segments", "one-hot"):
        found = in_jax(model, [model.collate(table) for table in tables], sums, products, seconds)
        rate = 1e3 * batch / found["ms"]
        fastest = max(fastest, rate)
        print(
            f"batch {batch:5d}  JAX {found['jax']} dense, {sums:8s}    {found['ms']:9.3f} ms a step "
            f"{rate:11,.0f} examples/s  {found['gib']:.1f} GiB  "
            f"(compiled in {found['compile_s']:.0f} s; {found['device']})",
            flush=True,
        )
    for precision, window in (("tf32", 1), ("bf16", 1), ("bf16", 16)):
        settings = config(hidden, batch, precision)
        step = GraphStep(build_model(settings.model, 0), settings, DEVICE)
        ours = milliseconds(
            step, [step.prepare(source(batch, window).table(k * batch, batch)) for k in range(16)], seconds
        )
        rate = 1e3 * batch / ours
        print(
            f"batch {batch:5d}  packed {precision}, window {window:2d}        {ours:9.3f} ms a step "
            f"{rate:11,.0f} examples/s  {rate / fastest:.1f} times the faster of these",
            flush=True,
        )


def main() -> None:
    """Check, compare, or be the process of JAX."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=[1024, 32])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--hidden", type=int, default=200)
    parser.add_argument("--products", choices=("default", "tensorfloat32", "highest"), default="default")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--sums", default="segments", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        run_jax(options.child, options.sums, options.products, options.seconds)
        return
    if find_spec("jax") is None:
        print("There is no JAX here, so nothing was measured.")
    elif options.check:
        check(options.hidden)
    else:
        import torch

        if not torch.cuda.is_available():
            print("There is no CUDA GPU here, so nothing was measured.")
            return
        print(torch.cuda.get_device_name(), flush=True)
        for batch in options.batch:
            compare(options.hidden, batch, options.seconds, options.products)


if __name__ == "__main__":
    main()
