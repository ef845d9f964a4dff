"""The persistent kernels for Hopper GPUs, run without one: compiled as C++ for an emulator of what they use.

They must compute what the packed execution in plain torch does, to the precision of bf16, whatever the order in which
threads come to do their part. Memory that nobody has written is not a number.
"""

import ctypes
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ipagnn.data.contract import Batch
from ipagnn.data.splits import training_sampler
from ipagnn.models import build_model
from ipagnn.models.base import ProgramModel
from ipagnn.models.ipa_gnn import IPAGNN
from ipagnn.ops.pointer.hopper.source import BACKWARD, FORWARD, THREADS, UNITS, arguments, shared_memory, source
from ipagnn.ops.pointer.triton.buffers import Buffers, KernelWeights
from ipagnn.ops.pointer.triton.plan import Plan

COMPILER = shutil.which("g++")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++ to compile the kernels for the emulator")
EMULATOR = Path(__file__).parent / "hopper" / "emulator.h"
PARAMETERS = {
    FORWARD: ("packed_forward", ("Plan", "State")),
    BACKWARD: ("packed_backward", ("Plan", "State", "Gradients")),
}


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Compiles a kernel for a padded hidden size, once."""
    folder = tmp_path_factory.mktemp("hopper")

    @cache
    def build(name: str, padded: int) -> Any:
        function, types = PARAMETERS[name]
        text = source(name, EMULATOR.read_text())
        shared = "extern __shared__ __align__(128) unsigned char memory[];"
        assert shared in text
        text = text.replace(shared, "unsigned char *memory = emulator::shared();")
        given = ", ".join(f"const {kind} *a{i}" for i, kind in enumerate(types))
        passed = ", ".join(f"*a{i}" for i in range(len(types)))
        text += f"""
extern "C" int emulate({given}, int clusters, u32 seed) {{
  return emulator::launch([=] {{ {function}({passed}); }}, clusters, BLOCKS, THREADS, seed);
}}
extern "C" int shared_bytes() {{ return SHARED_BYTES; }}
"""
        code, library = folder / f"{name}{padded}.cpp", folder / f"{name}{padded}.so"
        code.write_text(text)
        assert COMPILER is not None
        options = ["-O2", "-w", "-std=c++17", "-shared", "-fPIC", f"-DP={padded}"]
        subprocess.run([COMPILER, *options, str(code), "-o", str(library)], check=True)
        return ctypes.CDLL(str(library))

    return build


class Emulated:
    """One forward and backward pass of the kernels over a batch."""

    def __init__(self, built: Any, model: ProgramModel, batch: Batch, *, clusters: int, groups: int, seed: int) -> None:
        self.built, self.model, self.clusters, self.seed = built, model, clusters, seed
        self.weights = KernelWeights(model.config.hidden, torch.bfloat16, torch.device("cpu"))
        cell = model.cell
        branch: tuple[Tensor, ...] = (torch.zeros(4 * model.config.hidden, 2), torch.zeros(2))
        if isinstance(model, IPAGNN):
            branch = tuple(model.control.branch.parameters())
        with torch.no_grad():
            self.weights.load(
                cell.table(), cell.hidden_1, cell.input_2, cell.hidden_2, cell.bias_2, branch[0], branch[1]
            )
        self.plan = Plan.build(*model.walked(batch), groups=groups)  # type: ignore[operator]
        memory = torch.full((Buffers.bytes(self.weights, self.plan.capacity.rows),), 0xFF, dtype=torch.uint8)
        self.buffers = Buffers(self.weights, self.plan.capacity.rows, len(batch), memory)
        self.hard = isinstance(model, IPAGNN) and model.hard
        self.normalise = isinstance(model, IPAGNN) and model.config.normalise
        self.given = arguments(self.weights, self.buffers, self.plan, hard=self.hard, normalise=self.normalise)
        self.rows = int(self.plan.offsets[-1, -1])

    def launch(self, name: str) -> None:
        kernel = self.built(name, self.weights.padded).emulate
        given = self.given[: len(PARAMETERS[name][1])]
        assert kernel(*(ctypes.byref(x) for x in given), self.clusters, ctypes.c_uint(self.seed)) == 0

    def forward(self) -> Tensor:
        """Final states; the exits are not the kernel's work."""
        self.launch(FORWARD)
        b, plan, size = self.buffers, self.plan, self.model.config.hidden
        states = torch.stack([b.c[0, 4], b.h[0, 4].float(), b.c[1, 4], b.h[1, 4].float()], dim=1)[: self.rows]
        scores = (states * self.weights.branch_weight).sum(dim=(1, 2)) + self.weights.branch_bias
        decision = torch.where(plan.branches[: self.rows] > 0, scores.sigmoid(), 1.0)
        b.decision[: self.rows] = decision
        if self.hard:
            decision = (decision >= 0.5).float()
        first, codes = plan.arrival_offsets.tolist(), plan.arrivals.tolist()
        for program in range(len(b.final)):
            total, mass = torch.zeros_like(b.final[0]), torch.zeros(())
            for code in codes[first[self.rows + program] : first[self.rows + program + 1]]:
                source, side = divmod(code, 2)
                weight = b.pointer[source] * (1 - decision[source] if side else decision[source])
                total, mass = total + weight * states[source], mass + weight
            b.final_mass[program] = mass
            b.final[program] = total / (mass + 1e-7) if self.normalise and mass > 0 else total
        return b.final[:, :, :size].reshape(len(b.final), -1).clone()

    def backward(self, d_final: Tensor) -> dict[str, Tensor]:
        """Gradients of the weights by name, from those of the gates that the kernel leaves."""
        b, size = self.buffers, self.model.config.hidden
        b.d_final[:, :, :size] = d_final.view(-1, 4, size)
        b.along_final.copy_((b.final * b.d_final).sum(dim=(1, 2)))
        self.launch(BACKWARD)
        gates, h = b.gates.float()[:, :, : self.rows], b.h.float()[:, :, : self.rows]
        c = b.c[:, :, : self.rows]

        def product(states: Tensor, layer: int) -> Tensor:
            wide = torch.einsum("trp,trug->pgu", states, gates[layer])
            return wide[..., :size]

        table = torch.zeros(len(self.weights.table), 4, self.weights.padded)
        for token in range(4):
            table.index_add_(0, self.plan.tokens[: self.rows, token].long(), gates[0, token].mT)
        input_2 = product(h[0, 1:], 1)
        score = b.d_score[: self.rows]
        branch = torch.cat([score @ part[:, :size] for part in (c[0, 4], h[0, 4], c[1, 4], h[1, 4])])
        return {
            "table": table[..., :size].reshape(len(table), -1),
            "hidden_1": product(h[0, :4], 0)[:size].reshape(size, -1),
            "input_2": input_2[:size].reshape(size, -1),
            "hidden_2": product(h[1, :4], 1)[:size].reshape(size, -1),
            "bias_2": input_2[-1].reshape(-1),
            "branch": torch.stack([branch, -branch], dim=1),
            "branch_bias": torch.stack([score.sum(), -score.sum()]),
        }


def expected(model: ProgramModel, batch: Batch, d_final: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The same by the packed execution in plain torch."""
    cell = model.cell
    branch = model.control.branch if isinstance(model, IPAGNN) else None
    finals: list[Tensor] = []
    hook = model.output.register_forward_pre_hook(lambda _, inputs: finals.append(inputs[0]))
    model(batch, execution="rows")
    hook.remove()
    (final,) = finals
    (final * d_final).sum().backward()
    found = {name: getattr(cell, name).grad for name in ("hidden_1", "input_2", "hidden_2", "bias_2")}
    found["bias_1"] = cell.bias_1.grad
    if branch is not None:
        found |= {"branch": branch.weight.grad, "branch_bias": branch.bias.grad}
    return final.detach(), found


def near(found: Tensor, wanted: Tensor, tolerance: float) -> bool:
    return bool((found - wanted).norm() <= tolerance * wanted.norm() + 1e-6)


CASES = [
    pytest.param("ipa-gnn", 20, 5, 1, 2, id="one block"),
    pytest.param("ipa-gnn", 40, 9, 2, 3, id="two blocks, two clusters, a group left out"),
    pytest.param("trace-rnn", 20, 4, 1, 1, id="trace"),
    pytest.param("ipa-gnn", 20, 60, 1, 2, id="several chunks a step", marks=pytest.mark.slow),
    pytest.param("ipa-gnn", 200, 3, 1, 2, id="seven blocks", marks=pytest.mark.slow),
    pytest.param("ipa-gnn", 250, 3, 1, 1, id="eight blocks", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "hidden", "programs", "clusters", "groups"), CASES)
def test_the_kernels_compute_what_plain_torch_does(
    built: Any, name: str, hidden: int, programs: int, clusters: int, groups: int
) -> None:
    model = build_model(name, hidden=hidden, seed=0)
    batch = model.collate(training_sampler("full", 10, 1).table(0, programs))
    d_final = torch.randn(programs, 4 * hidden, generator=torch.Generator().manual_seed(0))
    wanted, gradients = expected(model, batch, d_final)
    emulated = Emulated(built, model, batch, clusters=clusters, groups=groups, seed=0)
    assert emulated.weights.padded == UNITS * -(-(hidden + 1) // UNITS)
    assert THREADS == 512
    assert near(emulated.forward(), wanted, 0.01)
    found = emulated.backward(d_final)
    found["bias_1"] = found["table"].sum(dim=0)
    for key, gradient in gradients.items():
        assert near(found[key], gradient, 0.05 if key == "branch_bias" else 0.02), key  # the bias's terms nearly cancel


def test_launches_ask_for_the_shared_memory_that_kernels_use(built: Any) -> None:
    for padded in (32, 64):
        asked = shared_memory(padded)
        assert asked == tuple(built(name, padded).shared_bytes() for name in (FORWARD, BACKWARD))


def test_results_do_not_depend_on_who_comes_first(built: Any) -> None:
    model = build_model("ipa-gnn", hidden=40, seed=0)
    batch = model.collate(training_sampler("full", 10, 1).table(0, 4))
    d_final = torch.randn(4, 160, generator=torch.Generator().manual_seed(0))
    results = []
    for seed in (1, 2):
        emulated = Emulated(built, model, batch, clusters=1, groups=2, seed=seed)
        results.append([emulated.forward(), *emulated.backward(d_final).values()])
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)
