"""Data sets for torch's own loaders, and the loop in the documentation."""

import pickle
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

import ipagnn
from ipagnn.data import Batch, Collator, ProgramDataset, ProgramStream, generate
from ipagnn.languages.arithmetic import Lengths, Sampler
from ipagnn.models import build_model

TRAINING = Path(__file__).parents[2] / "docs" / "training.md"
SAMPLER = Sampler("full", Lengths.training(6), seed=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "train"
    generate(path, "full", "train", 300, 1, shard_size=128, threads=1)
    return path


def same(a: Batch, b: Batch) -> bool:
    return torch.equal(a.target, b.target) and torch.equal(a.node_tokens, b.node_tokens) and torch.equal(a.true, b.true)


def test_items_are_programs_with_their_targets(folder: Path) -> None:
    table = SAMPLER.table(0, 50)
    for source, expected in ((table, table), (folder, None)):
        data = ProgramDataset(source)
        expected = expected or data.table
        assert len(data) == len(expected)
        program, target = data[7]
        assert (program, target) == (expected[7], int(expected.target[7]))
    with pytest.raises(IndexError):
        data[300]


def test_batches_are_those_of_the_model() -> None:
    table = SAMPLER.table(0, 50)
    for name in ("ipa-gnn", "line-rnn", "ggnn"):
        model = build_model(name, hidden=8, indent=False)
        loader = DataLoader(ProgramDataset(table), batch_size=20, collate_fn=model.collator())
        batches = list(loader)
        assert [len(batch) for batch in batches] == [20, 20, 10]
        expected = model.collate(table.slice(20, 40))
        assert same(batches[1], expected)
        torch.testing.assert_close(model(batches[1]).logits, model(expected).logits)


def test_a_stream_is_in_order_and_can_be_shared() -> None:
    table = SAMPLER.table(100, 700)
    assert [target for _, target in ProgramStream(SAMPLER, 100, 700)] == table.target.tolist()
    assert [target for _, target in islice(ProgramStream(SAMPLER, 100), 700)] == table.target.tolist()
    shared = [item for rank in range(3) for item in ProgramStream(SAMPLER, 100, 700, rank, 3)]
    assert Counter(shared) == Counter(zip(table, table.target.tolist(), strict=True))
    with pytest.raises(ValueError, match="of 2 processes"):
        ProgramStream(SAMPLER, rank=2, world=2)


def test_what_workers_are_sent_is_small(folder: Path) -> None:
    data = ProgramDataset(folder)
    assert len(data.table) == 300
    assert len(pickle.dumps(data)) < 5_000
    assert pickle.loads(pickle.dumps(data))[3] == data[3]
    assert pickle.loads(pickle.dumps(build_model("ipa-gnn", hidden=8).collator())) == Collator()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["data set", "stream"])
def test_several_workers(folder: Path, kind: str) -> None:
    model = build_model("ipa-gnn", hidden=8)
    data = ProgramDataset(folder) if kind == "data set" else ProgramStream(SAMPLER, 0, 600)
    loader = DataLoader(
        data, batch_size=64, collate_fn=model.collator(), num_workers=2, multiprocessing_context="spawn"
    )
    batches = list(loader)
    targets = Counter(target for batch in batches for target in batch.target.tolist())
    expected = data.table.target if isinstance(data, ProgramDataset) else SAMPLER.table(0, 600).target
    assert targets == Counter(expected.tolist())
    assert torch.isfinite(model(batches[0]).logits).all()


@pytest.mark.slow
def test_the_loop_in_the_documentation(tmp_path: Path) -> None:
    if "ipa-gnn-full" not in ipagnn.available_models():
        pytest.skip("this installation comes without weights")
    section = TRAINING.read_text().split("## Your own loop")[1]
    (script,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len([line for line in script.splitlines() if line and "import" not in line]) <= 20
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr
    first, *_, answer = done.stdout.splitlines()
    assert first.startswith("0 ")
    assert answer == "[]"  # the file knows the larger operands


class Lines(torch.nn.Module):
    """A model as a function of the tokens of its lines alone."""

    def __init__(self, model: torch.nn.Module, batch: Batch) -> None:
        super().__init__()
        self.model, self.batch = model, batch

    def forward(self, line_tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(replace(self.batch, line_tokens=line_tokens), execution="reference").logits
        return logits


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_model_that_reads_no_graph_can_be_exported() -> None:
    model = build_model("line-rnn", hidden=8).eval()
    batch, other = (model.collate(Sampler("full", Lengths.exact(4), seed=seed).table(0, 3)) for seed in (1, 2))
    program = torch.export.export(Lines(model, batch), (batch.line_tokens,), strict=False)
    torch.testing.assert_close(program.module()(other.line_tokens), model(other).logits)
